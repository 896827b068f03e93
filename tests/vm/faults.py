# SPDX-License-Identifier: GPL-2.0
"""Allocation failures that hit only the module, or only one function of another module.

The kernel's fault injection can select by caller. The processes of the test machine are not
affected.
"""

import re
from contextlib import contextmanager

# Settings that only some of the fault folders have: those for memory, and those for pages.
OF_SOME = ("ignore-gfp-wait", "min-order")
# Address range for faults of this project itself. These also fail in softirqs, which interrupt
# arbitrary code.
EVERYWHERE = (0, (1 << 64) - 1)
# Folder of these faults.
KNOBS = "/sys/kernel/debug/rds_faults"


def place(node, module):
    """Returns the address range of a module's code."""
    fields = node.run(f"grep ^{module} /proc/modules").out.split()
    start = int(fields[5], 16)
    return start, start + int(fields[1])


def functions(node, module):
    """Returns the functions of a module and their start addresses."""
    lines = node.run(f"grep -F '[{module}]' /proc/kallsyms").out.splitlines()
    return {name: int(address, 16) for address, kind, name, _ in map(str.split, lines) if kind in "tT"}


def place_of(node, function, module):
    """Returns the address range of a function of a module."""
    found = functions(node, module)
    start = found[function]
    return start, min(x for x in found.values() if x > start)


def place_of_rust(node, pattern):
    """Returns the address range of the only function of rds_rust whose mangled name matches."""
    name, = [x for x in functions(node, "rds_rust") if re.search(pattern, x)]
    return place_of(node, name, "rds_rust")


def place_in_kernel(node, function):
    """Returns the address range of a function of the kernel itself."""
    lines = node.run(f"grep -w -A 1 {function} /proc/kallsyms").out.splitlines()
    return tuple(int(x.split()[0], 16) for x in lines[:2])


@contextmanager
def faults(node, *what, probability, **knobs):
    """Makes allocations of rds_rust fail, except those of soft-RoCE that rds_rust causes. Soft-RoCE
    does not survive such failures."""
    with faults_within(node, place(node, "rds_rust"), *what, probability=probability,
                       spared=place(node, "rdma_rxe"), **knobs):
        yield


@contextmanager
def faults_within(node, callers, *what, probability, spared=(0, 0), **knobs):
    """Makes allocations fail that functions within `callers` cause.

    callers, spared: address ranges. what: folders of debugfs, such as failslab. probability: in
    percent. knobs: other settings, with _ instead of -. Allocations that may sleep can also fail.
    """
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
