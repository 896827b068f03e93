# SPDX-License-Identifier: GPL-2.0
"""fill_pool.py HOST PEER [SIZE]: queues messages for a peer that does not exist until the
pool has no room for another one.

Messages are short by default. They stay queued until a line arrives on standard input.
"""

import socket
import sys

from rds import Sock

host, peer, *size = sys.argv[1:]
payload = bytes(int(*size) or 100)
socks = []
full = False
while not full:
    socks.append(Sock((host, 0)))
    sent = 0
    try:
        while True:
            socks[-1].send(payload, (peer, 4000), socket.MSG_DONTWAIT)
            sent += 1
    except BlockingIOError:
        # The buffer of the socket is full, or the pool is.
        full = sent == 0
print("full with", len(socks), "sockets", flush=True)
sys.stdin.readline()
