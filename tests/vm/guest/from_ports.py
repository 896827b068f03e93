# SPDX-License-Identifier: GPL-2.0
"""from_ports.py HOST PEER PORT COUNT: sends messages from COUNT ports. Each has room for a few, so
they are sent once the peer has acknowledged those before."""

import socket
import sys

from rds import Sock

host, peer = sys.argv[1:3]
port, count = map(int, sys.argv[3:])
for own in range(port, port + count):
    with Sock((host, own), timeout=30) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        for _ in range(20):
            s.send(bytes(2000), (peer, port))
