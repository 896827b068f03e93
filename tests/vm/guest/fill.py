# SPDX-License-Identifier: GPL-2.0
"""fill.py HOST PEER PORT BYTES COUNT: sends COUNT messages of BYTES without waiting, as far as
there is room. It keeps the socket open until standard input ends."""

import socket
import sys

from rds import Sock

host, peer = sys.argv[1:3]
port, length, count = map(int, sys.argv[3:])
with Sock((host, 0)) as s:
    s.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF + 25, 2 * length * count)  # SO_SNDBUFFORCE
    for _ in range(count):
        try:
            s.send(bytes(length), (peer, port), socket.MSG_DONTWAIT)
        except BlockingIOError:
            break
    sys.stdin.read()
