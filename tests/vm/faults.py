# SPDX-License-Identifier: GPL-2.0
"""Memory runs out for the module, or for another's function, and for nobody else.

The kernel's fault injection can look at who called, so that what a test machine needs for its processes is not
touched."""

import re
from contextlib import contextmanager

# Knobs that only memory has, and only pages.
OF_SOME = ("ignore-gfp-wait", "min-order")
# For what is this module's own: also in softirqs, which come amid anything.
EVERYWHERE = (0, (1 << 64) - 1)
# Where that is.
KNOBS = "/sys/kernel/debug/rds_faults"


def place(node, module):
    """From where to where a module's code is."""
    fields = node.run(f"grep ^{module} /proc/modules").out.split()
    start = int(fields[5], 16)
    return start, start + int(fields[1])


def functions(node, module):
    """Those of a module, and where they begin."""
    lines = node.run(f"grep -F '[{module}]' /proc/kallsyms").out.splitlines()
    return {name: int(address, 16) for address, kind, name, _ in map(str.split, lines) if kind in "tT"}


def place_of(node, function, module):
    """From where to where a function is."""
    found = functions(node, module)
    start = found[function]
    return start, min(x for x in found.values() if x > start)


def place_of_rust(node, pattern):
    """The same for the one function of ours whose mangled name matches."""
    name, = [x for x in functions(node, "rds_rust") if re.search(pattern, x)]
    return place_of(node, name, "rds_rust")


def place_in_kernel(node, function):
    """The same for a function of the kernel itself."""
    lines = node.run(f"grep -w -A 1 {function} /proc/kallsyms").out.splitlines()
    return tuple(int(x.split()[0], 16) for x in lines[:2])


@contextmanager
def faults(node, *what, probability, **knobs):
    """Memory runs out for rds_rust, but not for what it asks soft-RoCE for, which does not outlive that."""
    with faults_within(node, place(node, "rds_rust"), *what, probability=probability,
                       spared=place(node, "rdma_rxe"), **knobs):
        yield


@contextmanager
def faults_within(node, callers, *what, probability, spared=(0, 0), **knobs):
    """callers, spared: places; what: folders of debugfs, as failslab; probability: in percent; knobs: what else to
    write there, with _ for -. What may sleep can fail, too."""
    values = {"verbose": 0, "times": -1, "space": 0, "interval": 1, "ignore-gfp-wait": "N", "task-filter": "N",
              "require-start": callers[0], "require-end": callers[1],
              "reject-start": spared[0], "reject-end": spared[1],
              **{k.replace("_", "-"): v for k, v in knobs.items()}}

    def write(knobs):
        paths = {f"/sys/kernel/debug/{name}/{knob}": value for knob, value in knobs.items() for name in what}
        node.run(" && ".join(("[ ! -e {0} ] || " if path.endswith(OF_SOME) else "").format(path)
                             + f"echo {value} >{path}" for path, value in paths.items()))

    write({**values, "probability": probability})
    try:
        yield
    finally:
        write({"probability": 0})
