# SPDX-License-Identifier: GPL-2.0
"""tiny_buffer.py NEAR FAR COUNT: a port of NEAR becomes full with each message and empty with each
read, COUNT times. FAR, another address of this node, is the only peer of NEAR.

Prints as JSON how many congestion maps the peer was sent, and in how many milliseconds. After that
the port pings the peer whenever it is empty, and gets each pong.
"""

import json
import socket
import sys
import time

from rds import Sock, counters

# More than the smallest receive buffer has room for.
SIZE = 8000
SENT = "cong_update_queued"
PINGS = 20


def main():
    near, far, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with Sock((near, 0), 60) as r, Sock((near, 0), 60) as s, Sock((far, 0), 60) as peer:
        peer.send(b"", r.name())
        r.recv()
        r.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        start, before = time.monotonic(), counters()[SENT]
        # A message from an address to itself needs no device.
        for _ in range(count):
            s.send(bytes(SIZE), r.name())
            r.recv()
        maps, took = counters()[SENT] - before, time.monotonic() - start
        for _ in range(PINGS):
            s.send(bytes(SIZE), r.name())
            r.recv()
            # The peer's node does not answer a port that it takes for full.
            r.send(b"", (far, 0))
            r.recv()
        # The peer has room, whatever the last of these maps said.
        peer.send(b"", r.name())
        r.recv()
    print(json.dumps([maps, 1000 * took]))


main()
