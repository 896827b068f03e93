# SPDX-License-Identifier: GPL-2.0
"""What functions of the kernel are called, and how often."""

import re

TRACING = "/sys/kernel/tracing"


class Probes:
    """Sees the calls of functions, each its name and what of its arguments is to be told."""

    def __init__(self, node, *functions):
        self.node, self.functions = node, {x.split()[0]: x for x in functions}

    def __enter__(self):
        self.node.run(f"echo >{TRACING}/trace")
        self.node.run(f"cd {TRACING}; echo 0 >events/rds_calls/enable; echo >kprobe_events", check=False)
        for name, what in self.functions.items():
            self.node.run(f"cd {TRACING}; echo 'p:rds_calls/{name} {what}' >>kprobe_events && "
                          f"echo 1 >events/rds_calls/{name}/enable")
        return self

    def __exit__(self, *_):
        self.node.run(f"cd {TRACING}; echo 0 >events/rds_calls/enable; "
                      f"{'; '.join(f'echo -:rds_calls/{x} >>kprobe_events' for x in self.functions)}")

    def hits(self):
        """How often each was called."""
        lines = self.node.run(f"cat {TRACING}/kprobe_profile").out.splitlines()
        found = {x.split()[0]: int(x.split()[1]) for x in lines}
        return [found[name] for name in self.functions]

    def calls(self):
        """The calls in their order: (name, what is told)."""
        return re.findall(r": (\w+): \([^)]*\) ?(.*)$", self.node.run(f"cat {TRACING}/trace").out, re.M)
