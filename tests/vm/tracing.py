# SPDX-License-Identifier: GPL-2.0
"""Output of the tracepoints rds:*."""

from contextlib import contextmanager

TRACING = "/sys/kernel/tracing"
EVENTS = f"{TRACING}/events/rds"


@contextmanager
def traced(node):
    """Enables the tracepoints. Yields a function that returns their lines so far, without the
    fields of ftrace."""
    node.run(f"echo > {TRACING}/trace; echo 1 > {EVENTS}/enable")

    def read():
        lines = node.run(["cat", f"{TRACING}/trace"]).out.splitlines()
        return [line.partition(" rds_")[2] for line in lines if " rds_" in line]

    try:
        yield read
    finally:
        node.run(f"echo 0 > {EVENTS}/enable; echo > {TRACING}/trace")
