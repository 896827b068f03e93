# SPDX-License-Identifier: GPL-2.0
"""Labs that outlive a run of pytest, for scripts/vm.py.

They are stored by name. None: each run has its own labs."""

LABS = None
