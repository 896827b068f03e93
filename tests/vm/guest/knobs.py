# SPDX-License-Identifier: GPL-2.0
"""Fault injection of this module, from within: see rds_faults in Documentation/testing.md."""

FAULTS = "/sys/kernel/debug/rds_faults"


def knob(name, value=None):
    """Writes a knob, or reads its number."""
    path = f"{FAULTS}/{name}"
    if value is None:
        with open(path, encoding="ascii") as f:
            return int(f.read())
    with open(path, "w", encoding="ascii") as f:
        f.write(str(value))
    return value
