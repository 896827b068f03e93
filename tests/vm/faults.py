# SPDX-License-Identifier: GPL-2.0
"""Memory runs out for the module, and for nobody else.

The kernel's fault injection can look at who called. What a test machine needs for its processes is
not touched, and neither is what the soft devices ask for: soft-RoCE does not outlive that."""

from contextlib import contextmanager

DEVICES = ("rdma_rxe", "siw")


def place(node, module):
    """Where a module's code is."""
    fields = node.run(f"grep ^{module} /proc/modules").out.split()
    start = int(fields[5], 16)
    return start, start + int(fields[1])


@contextmanager
def faults(node, *what, probability, **knobs):
    """what: folders of debugfs, as failslab; probability: in percent; knobs: what else to write there, with _ for -.
    What may sleep can fail, too."""
    device = next(x for x in DEVICES if node.run(f"grep ^{x} /proc/modules", check=False).status == 0)
    values = {"verbose": 0, "times": -1, "ignore-gfp-wait": "N",
              **{k.replace("_", "-"): v for k, v in knobs.items()}}
    for kind, module in (("require", "rds_rust"), ("reject", device)):
        values[f"{kind}-start"], values[f"{kind}-end"] = place(node, module)

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
