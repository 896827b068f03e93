# SPDX-License-Identifier: GPL-2.0
"""receivers.py: a sender outlives receivers whose congestion it has met. Prints how many sockets more the kernel has
then than before."""

import errno
import socket

from rds import Sock

LOOP = "127.0.0.1"
COUNT = 1000


def sockets():
    with open("/proc/slabinfo", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.split()[0] == "RDS")


def meet(s):
    """A receiver that is full."""
    with Sock((LOOP, 0)) as r:
        r.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        while True:
            try:
                s.send(b"", r.name(), socket.MSG_DONTWAIT)
            except OSError as e:
                if e.errno != errno.ENOBUFS:
                    raise
                return


with Sock((LOOP, 0)) as sender:
    for _ in range(COUNT):
        meet(sender)
    before = sockets()
    for _ in range(COUNT):
        meet(sender)
    print(sockets() - before)
