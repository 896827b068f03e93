# SPDX-License-Identifier: GPL-2.0
"""Calls of kernel functions, recorded by kprobes."""

import re

TRACING = "/sys/kernel/tracing"


class Probes:
    """Records the calls of functions. Each is given by its name, with its module if it is of one,
    and the arguments to record.

    returns: functions whose returns are recorded, too, as calls of NAME_returns."""

    def __init__(self, node, *functions, returns=()):
        self.node, self.functions = node, {}
        for kind, suffix, group in (("p", "", functions), ("r", "_returns", returns)):
            for what in group:
                name = what.split()[0].split(":")[-1] + suffix
                self.functions[name] = f"{kind}:rds_calls/{name} {what}"

    def __enter__(self):
        self.node.run(f"echo >{TRACING}/trace")
        self.node.run(f"cd {TRACING}; echo 0 >events/rds_calls/enable; echo >kprobe_events", check=False)
        for name, event in self.functions.items():
            self.node.run(f"cd {TRACING}; echo '{event}' >>kprobe_events && "
                          f"echo 1 >events/rds_calls/{name}/enable")
        return self

    def __exit__(self, *_):
        self.node.run(f"cd {TRACING}; echo 0 >events/rds_calls/enable; "
                      f"{'; '.join(f'echo -:rds_calls/{x} >>kprobe_events' for x in self.functions)}")

    def hits(self):
        """Returns the number of calls of each function."""
        lines = self.node.run(f"cat {TRACING}/kprobe_profile").out.splitlines()
        found = {x.split()[0]: int(x.split()[1]) for x in lines}
        return [found[name] for name in self.functions]

    def calls(self, program=None):
        """Returns the calls in their order, as (name, recorded arguments). program: only calls by
        processes of this program."""
        text = self.node.run(f"cat {TRACING}/trace").out
        by = rf"^ *{re.escape(program)}-\d.*?" if program else ""
        return re.findall(rf"{by}: (\w+): \([^)]*\) ?(.*)$", text, re.M)
