# SPDX-License-Identifier: GPL-2.0
"""Coverage of the module by blocks: cover.c and record.py record, report.py makes tables."""
