# SPDX-License-Identifier: GPL-2.0
"""Output of the tracepoints rds:*."""

import re
from collections import namedtuple
from contextlib import contextmanager

TRACING = "/sys/kernel/tracing"
EVENTS = f"{TRACING}/events/rds"
# Events that are not for each message.
RARE = ("rds_conn_state", "rds_drop", "rds_error", "rds_congestion")
MESSAGE = re.compile(r"msg_(\w+): <([^,]+),([^,]+),(\d+)> (\w+) port (\d+) -> (\d+) sequence (\d+) bytes (\d+)")
# A work request of an operation, as sizes_of() takes it.
REQUEST = r"(\w+) bytes (\d+)( last)? operation (\d+)"
# A message in the order of its way: names of addresses are those of sender and receiver.
Message = namedtuple("Message", "source destination tos transport sport dport sequence bytes")


@contextmanager
def traced(node, *events):
    """Enables tracepoints, those of RARE without a choice. Yields a function that returns their
    lines so far, without the fields of ftrace."""
    switches = " ".join(f"{EVENTS}/{x}/enable" for x in events or RARE)
    node.run(f"echo > {TRACING}/trace; echo 1 | tee {switches}")

    def read():
        lines = node.run(["cat", f"{TRACING}/trace"]).out.splitlines()
        return [line.partition(" rds_")[2] for line in lines if " rds_" in line]

    try:
        yield read
    finally:
        node.run(f"echo 0 > {EVENTS}/enable; echo > {TRACING}/trace")


def ways(lines):
    """Returns the names of the events of each message, in the order of the lines."""
    found = {}
    for line in lines:
        if match := MESSAGE.fullmatch(line):
            event, local, peer, tos, transport, *numbers = match.groups()
            ends = (local, peer) if event in ("queued", "posted", "acked") else (peer, local)
            found.setdefault(Message(*ends, int(tos), transport, *map(int, numbers)), []).append(event)
    return found


def parse(line, event, pattern):
    """Returns the groups of a pattern if the line is of this event."""
    match = re.fullmatch(rf"{event}: {pattern}", line)
    return match and match.groups()


def sizes_of(requests):
    """Returns kind and bytes of each operation, from its work requests (kind, bytes, last, number)
    in the order of the operations' ends."""
    parts, found = {}, []
    for kind, size, last, number in requests:
        parts[number] = parts.get(number, 0) + int(size)
        if last:
            found.append((kind, parts.pop(number)))
    assert not parts, "an operation has no last request"
    return found
