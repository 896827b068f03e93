# SPDX-License-Identifier: GPL-2.0
"""Memory runs out for the module, or for another's function, and for nobody else.

The kernel's fault injection can look at who called, so that what a test machine needs for its processes is not
touched."""

from contextlib import contextmanager

DEVICES = ("rdma_rxe", "siw")


def place(node, module):
    """From where to where a module's code is."""
    fields = node.run(f"grep ^{module} /proc/modules").out.split()
    start = int(fields[5], 16)
    return start, start + int(fields[1])


def place_of(node, function, module):
    """The same for a function of a module."""
    lines = node.run(f"grep -F '[{module}]' /proc/kallsyms").out.splitlines()
    symbols = {name: int(address, 16) for address, kind, name, _ in map(str.split, lines) if kind in "tT"}
    start = symbols[function]
    return start, min(x for x in symbols.values() if x > start)


@contextmanager
def faults(node, *what, probability, **knobs):
    """Memory runs out for rds_rust, but not for what it asks a device for."""
    device = next(x for x in DEVICES if node.run(f"grep ^{x} /proc/modules", check=False).status == 0)
    with faults_within(node, place(node, "rds_rust"), *what, probability=probability,
                       spared=place(node, device), **knobs):
        yield


@contextmanager
def faults_within(node, callers, *what, probability, spared=(0, 0), **knobs):
    """callers, spared: places; what: folders of debugfs, as failslab; probability: in percent; knobs: what else to
    write there, with _ for -. What may sleep can fail, too."""
    values = {"verbose": 0, "times": -1, "ignore-gfp-wait": "N",
              "require-start": callers[0], "require-end": callers[1],
              "reject-start": spared[0], "reject-end": spared[1],
              **{k.replace("_", "-"): v for k, v in knobs.items()}}

    def write(knob, value):
        for name in what:
            path = f"/sys/kernel/debug/{name}/{knob}"
            # Copies have no flags.
            node.run(f"echo {value} >{path}" if knob != "ignore-gfp-wait" else
                     f"[ ! -e {path} ] || echo {value} >{path}")

    for knob, value in values.items():
        write(knob, value)
    write("probability", probability)
    try:
        yield
    finally:
        write("probability", 0)
