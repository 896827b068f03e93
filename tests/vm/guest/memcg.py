# SPDX-License-Identifier: GPL-2.0
"""memcg.py: checks that messages are charged to the memory control group of the program that sends
them.

Prints as JSON, for each kind of messages: bytes of payload, and bytes charged in addition while
they wait, and after they are freed. With "refused" there were many more that did not fit in the
send buffer.
"""

import json
import os
import socket
import sys
import time

from cases import IB, LOOP, need, outcome
from rds import Sock

ROOT = "/run/cgroup"
GROUP = f"{ROOT}/rds"
COUNT, SIZE = 400, 16000
NOWHERE = "10.9.0.200"
LIMIT, TRIES = 4 << 20, 10000
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33


def charged():
    with open(f"{GROUP}/memory.stat", encoding="ascii") as f:
        stat = dict(line.split() for line in f)
    return int(stat["kernel"])


def settled(least, most):
    """Returns the charge when it is between the two limits, or after a minute.

    The kernel charges and frees in batches.
    """
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
        yield COUNT * SIZE
        for _ in range(COUNT):
            reader.recv()


def unsent():
    with Sock((IB[0], 0)) as sender:
        sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 64 << 20)
        for _ in range(COUNT):
            sender.send(bytes(SIZE), (NOWHERE, 4000), socket.MSG_DONTWAIT)
        yield COUNT * SIZE


def send_all(sender, to):
    """Tries to send far more than there is room for. Returns how many bytes were accepted."""
    sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, LIMIT)
    told = [outcome(sender.send, bytes(SIZE), to, socket.MSG_DONTWAIT) for _ in range(TRIES)]
    taken = told.count(SIZE)
    need(told.count("EAGAIN") == TRIES - taken > TRIES // 2, f"{taken} were taken, {set(told)}")
    return taken * SIZE


def unread_refused():
    with Sock((LOOP, 0)) as reader, Sock((LOOP, 0)) as sender:
        reader.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        taken = send_all(sender, reader.name())
        yield taken
        for _ in range(taken // SIZE):
            reader.recv()


def unsent_refused():
    with Sock((IB[0], 0)) as sender:
        yield send_all(sender, (NOWHERE, 4000))


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
        # Measured only once: remains of one kind can be freed during the next.
        before = charged()
        for kind in (unread, unsent, unread_refused, unsent_refused):
            steps = kind()
            payload = next(steps)
            during = settled(before + payload, sys.maxsize) - before
            next(steps, None)
            after = settled(0, before + payload // 4) - before
            seen[kind.__name__] = [payload, during, after]
        print(json.dumps(seen))
    finally:
        with open(f"{ROOT}/cgroup.procs", "w", encoding="ascii") as f:
            f.write(str(os.getpid()))
        os.rmdir(GROUP)
        os.system(f"umount {ROOT}")


main()
