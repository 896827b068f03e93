# SPDX-License-Identifier: GPL-2.0
"""Labs that outlive a run of pytest, for scripts/vm.py: by name, or None where each run has its
own."""

LABS = None
