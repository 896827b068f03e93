# SPDX-License-Identifier: GPL-2.0
"""fill_pool.py HOST PEER [SIZE]: queues messages, short ones if nothing is said, for a peer that is not there until no
memory is left for another one, and keeps them until a line comes on its input."""

import errno
import socket
import sys

from rds import Sock

host, peer, *size = sys.argv[1:]
payload = bytes(int(*size) or 100)
socks = []
full = False
while not full:
    socks.append(Sock((host, 0)))
    try:
        while True:
            socks[-1].send(payload, (peer, 4000), socket.MSG_DONTWAIT)
    except OSError as e:
        if e.errno not in (errno.EAGAIN, errno.ENOMEM):
            raise
        full = e.errno == errno.ENOMEM
print("full with", len(socks), "sockets", flush=True)
sys.stdin.readline()
