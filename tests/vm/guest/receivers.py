# SPDX-License-Identifier: GPL-2.0
"""receivers.py: a sender outlives receivers that were congested.

Prints how many more sockets the kernel has at the end.
"""

import socket
import sys

from cases import LOOP, outcome
from rds import Sock

COUNT = 1000


def sockets():
    with open("/proc/slabinfo", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.split()[0] == "RDS")


def meet(s):
    """Sends to a receiver until it is full."""
    with Sock((LOOP, 0)) as r:
        r.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        while (told := outcome(s.send, b"", r.name(), socket.MSG_DONTWAIT)) == 0:
            pass
        if told != "ENOBUFS":
            sys.exit(f"{told} before the receiver was full")


with Sock((LOOP, 0)) as sender:
    for _ in range(COUNT):
        meet(sender)
    before = sockets()
    for _ in range(COUNT):
        meet(sender)
    print(sockets() - before)
