# SPDX-License-Identifier: GPL-2.0
"""memcg.py: what messages take is charged to the memory control group of the program that sends them.

Prints as JSON, for each kind of messages: bytes of payload, and bytes that the group is charged with more while
they wait, and after they are gone.
"""

import json
import os
import socket
import sys
import time

from cases import IB, LOOP
from rds import Sock

ROOT = "/run/cgroup"
GROUP = f"{ROOT}/rds"
COUNT, SIZE = 400, 16000
NOWHERE = "10.9.0.200"
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33


def charged():
    with open(f"{GROUP}/memory.stat", encoding="ascii") as f:
        stat = dict(line.split() for line in f)
    return int(stat["kernel"])


def settled(least, most):
    """What is charged, once it is between the two, or after a while: the kernel charges and frees in batches."""
    for _ in range(600):
        now = charged()
        if least <= now <= most:
            break
        time.sleep(0.1)
    return now


def unread():
    with Sock((LOOP, 0)) as reader, Sock((LOOP, 0)) as sender:
        reader.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 64 << 20)
        for _ in range(COUNT):
            sender.send(bytes(SIZE), reader.name())
        yield
        for _ in range(COUNT):
            reader.recv()


def unsent():
    with Sock((IB[0], 0)) as sender:
        sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 64 << 20)
        for _ in range(COUNT):
            sender.send(bytes(SIZE), (NOWHERE, 4000), socket.MSG_DONTWAIT)
        yield


def main():
    os.makedirs(ROOT, exist_ok=True)
    if os.system(f"mount -t cgroup2 none {ROOT}"):
        sys.exit(1)
    try:
        with open(f"{ROOT}/cgroup.subtree_control", "w", encoding="ascii") as f:
            f.write("+memory")
        os.mkdir(GROUP)
        with open(f"{GROUP}/cgroup.procs", "w", encoding="ascii") as f:
            f.write(str(os.getpid()))
        seen = {}
        for kind in (unread, unsent):
            before = charged()
            steps = kind()
            next(steps)
            during = settled(before + COUNT * SIZE, sys.maxsize) - before
            next(steps, None)
            after = settled(0, before + COUNT * SIZE // 4) - before
            seen[kind.__name__] = [COUNT * SIZE, during, after]
        print(json.dumps(seen))
    finally:
        with open(f"{ROOT}/cgroup.procs", "w", encoding="ascii") as f:
            f.write(str(os.getpid()))
        os.rmdir(GROUP)
        os.system(f"umount {ROOT}")


main()
