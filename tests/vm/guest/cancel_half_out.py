# SPDX-License-Identifier: GPL-2.0
"""cancel_half_out.py HOST PEER PORT: cancels long messages to PORT of PEER while the first one is
partly sent on a slow link.

PEER is an address of this node, too. The connection is reset before the message is complete. Prints
how many of the messages have arrived before the next message.
"""

import socket
import sys

from rds import MAX_MESSAGE, Sock
from reset import reset

COUNT = 3


def main():
    host, peer, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with Sock((host, 0), timeout=60) as s, Sock((peer, port), timeout=60) as r:
        s.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF + 25, 64 << 20)  # SO_SNDBUFFORCE
        r.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF + 25, 64 << 20)
        s.send(b"first", (peer, port))
        r.recv()
        # On a busy machine the first message may be complete before it is cancelled.
        for _ in range(5):
            for _ in range(COUNT):
                s.send(bytes(MAX_MESSAGE), (peer, port))
            s.cancel(peer, port)
            reset(host, peer)
            s.send(b"last", (peer, port))
            came = 0
            while r.recv()[0] != b"last":
                came += 1
            if not came:
                break
        print(came)


main()
