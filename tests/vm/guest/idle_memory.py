# SPDX-License-Identifier: GPL-2.0
"""idle_memory.py WARM COUNT: memory of idle connections, both ends together.

The two ends of the machine's RDMA pair get many addresses. WARM connections come first, so that
one-time allocations exist. Then memory is measured, COUNT more connections are made, and memory is
measured again. Prints the difference for each connection as JSON, in KiB.
"""

import json
import subprocess
import sys

from memory import memory
from rds import Sock, connections

DEVICES = ("rdsv0", "rdsv1")
PORT = 5000


def address(end, index):
    return f"10.{200 + end}.{index // 250}.{1 + index % 250}"


def shell(lines):
    subprocess.run(["sh", "-ec", "\n".join(lines)], check=True)


def setup(count):
    lines = []
    macs = [open(f"/sys/class/net/{d}/address").read().strip() for d in DEVICES]
    for end, (dev, other) in enumerate(zip(DEVICES, DEVICES[::-1])):
        for i in range(count):
            mine = address(end, i)
            lines += [f"ip addr add {mine}/32 dev {dev}",
                      f"ip route add {mine}/32 dev {other}",
                      f"ip neigh replace {mine} lladdr {macs[end]} dev {other} nud permanent"]
    shell(lines)


def connect(pairs):
    """Sends a message in each direction over each of the connections."""
    for i, j in pairs:
        with Sock((address(0, i), PORT), timeout=60) as a, Sock((address(1, j), PORT),
                                                                timeout=60) as b:
            a.send(b"x", (address(1, j), PORT))
            b.recv()
            b.send(b"y", (address(0, i), PORT))
            a.recv()


def main():
    warm, count = map(int, sys.argv[1:])
    side = 1
    while side * side < warm + count:
        side += 1
    setup(side)
    pairs = [(i, j) for i in range(side) for j in range(side)]
    connect(pairs[:warm])
    before = memory()
    connect(pairs[warm:warm + count])
    after = memory()
    if (known := connections()) is not None:
        up = sum(1 for c in known if "connected" in c.state and c.local.startswith("10.200"))
        assert up >= warm + count, f"only {up} connections are up"
    print(json.dumps({name: round((after[name] - before[name]) / count, 1) for name in before}))


if __name__ == "__main__":
    main()
