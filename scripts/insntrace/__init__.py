# SPDX-License-Identifier: GPL-2.0
"""A profile of a guest by executed instructions: trace.c records, trace.py makes tables."""
