# SPDX-License-Identifier: GPL-2.0
"""Traces of the code that a guest executes: trace.c records all of it, and trace.py makes profiles.

lines.c records accesses to memory as well, and sharing.py finds the cache lines that CPUs share.
"""
