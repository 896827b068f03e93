# SPDX-License-Identifier: GPL-2.0
"""known_numbers.py WHOSE: a soft-RoCE device disappears without notice to its peer, and comes back.

It numbers its queue pairs from the beginning again, and the CM of this node knows a number from the
peer's end. WHOSE is `asking` if the active queue pair of the device's connection with itself gets
that number, and `answering` if the passive one does. The devices have to be new.
"""

import subprocess
import sys

import rdma
from cases import IB, eventually, need
from rdma import Memory
from regions import devices
from rds import Sock
from reset import exchange, reset

TYPES = (0, 4)
NETDEVS = ("rdsv0", "rdsv1")


def numbers(device, kind):
    """Returns the numbers of the connected queue pairs of a device."""
    return [x[kind] for x in devices("res", "show", "qp") if (x["ifname"], x["type"]) == (device, "RC")]


def run(*words):
    subprocess.run(words, check=True)


def main(whose):
    used = []
    for tos in TYPES[:1 + (whose == "answering")]:
        exchange(*IB, 0, tos)
        used += set(numbers("rdsx0", "lqpn")) - set(used)
    if whose == "answering":
        need(used[1] == used[0] + 1, f"the numbers are {used}")
        reset(*IB, TYPES[0])
        eventually("the end of the first", lambda: used[0] not in numbers("rdsx1", "rqpn"))
    for netdev in NETDEVS:
        run("tc", "qdisc", "add", "dev", netdev, "root", "netem", "loss", "100%")
    try:
        run("rdma", "link", "del", "rdsx0")
    finally:
        for netdev in NETDEVS:
            run("tc", "qdisc", "del", "dev", netdev, "root")
    run("rdma", "link", "add", "rdsx0", "type", "rxe", "netdev", NETDEVS[0])
    need(used[-1] in numbers("rdsx1", "rqpn"), "the peer has heard of it")
    run("python3", sys.path[0] + "/laddr.py", "bound", IB[0])
    with Sock((IB[0], 0)) as s:
        memory = Memory(s, 1)
        memory.free(memory.register(0, 4096), rdma.INVALIDATE)


if __name__ == "__main__":
    main(*sys.argv[1:])
