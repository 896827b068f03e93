# SPDX-License-Identifier: GPL-2.0
"""Soft-RoCE with faults that a test requests, on memory of the DMA API: tests/vm/faulty."""

from contextlib import contextmanager

from rdsvm import cluster, hardware
from rdsvm.hardware import FAULTS

# Attributes of the messages of the connection manager.
CM_MESSAGES = {"REQ": 0x10, "REJ": 0x12, "REP": 0x13, "RTU": 0x14, "DREQ": 0x15, "DREP": 0x16}


class FaultyMachine(cluster.Machine):
    """A machine whose soft-RoCE devices have faults. way: that of its devices to memory."""

    def __init__(self, way, *args, **kwargs):
        super().__init__(*args, dma=way, **kwargs)
        self.checked = True


def knob(node, name, value=None):
    """Writes a file of the faults, or returns its number."""
    if value is None:
        return int(node.read_file(f"{FAULTS}/{name}"), 0)
    node.write_file(f"{FAULTS}/{name}", f"{value}\n")
    return value


@contextmanager
def fault(node, name, times=-1, skip=0, **settings):
    """Makes a fault occur `times` times, or always, after `skip` opportunities. settings: other
    files. Yields a function that returns how often it has occurred."""
    old = {x: knob(node, x) for x in settings}
    seen = knob(node, f"{name}/seen")
    for x, value in settings.items():
        knob(node, x, value)
    knob(node, f"{name}/skip", skip)
    knob(node, f"{name}/times", times)
    try:
        yield lambda: knob(node, f"{name}/seen") - seen
    finally:
        knob(node, f"{name}/times", 0)
        for x, value in old.items():
            knob(node, x, value)


@contextmanager
def violations(node):
    """Expects that devices access what they must not. Such an access is logged without a warning.
    Yields a function that returns the numbers of the kinds of violations that have occurred."""
    def found():
        counts = {x: knob(node, f"strict/{x}") for x in hardware.VIOLATIONS}
        return {x: count for x, count in counts.items() if count}

    assert not found()
    knob(node, "strict/expected", 1)
    try:
        yield found
    finally:
        knob(node, "strict/expected", 0)
        for x in hardware.VIOLATIONS:
            knob(node, f"strict/{x}", 0)
