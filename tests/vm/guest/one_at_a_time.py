# SPDX-License-Identifier: GPL-2.0
"""one_at_a_time.py HOST PEER PORT: requests of several sizes and their answers, one after the
other.

Receive buffers have twice the size of the payload.
"""

import socket
import sys

from rds import Sock

ANSWER = 48


def main():
    host, peer, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    for number, size in enumerate((0, 64, 153, 1024, 2048, 2400, 4096, 8192, 8193, 65536)):
        with Sock((host, port + 2 * number), 60) as s, Sock((peer, port + 2 * number + 1), 60) as r:
            for sock in (s, r):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2 * (size + ANSWER))
            for _ in range(5):
                s.send(bytes(size), r.name())
                data, source = r.recv()
                if len(data) != size:
                    sys.exit(f"{len(data)} bytes for {size}")
                r.send(bytes(ANSWER), source)
                s.recv()
    print("all")


main()
