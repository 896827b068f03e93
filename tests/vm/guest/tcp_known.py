# SPDX-License-Identifier: GPL-2.0
"""tcp_known.py HOST PEER TCP_PORT: a peer like C RDS asks a node with a lower address to connect,
sends a message and ends the connection. It prints "gone", and nobody listens there then. After a
line on standard input it listens again, prints "back" when the node has connected, and ends."""

import socket
import sys

from tcp_peer import HEADER, MAP_BYTES, ask, header, take

host, peer, tcp_port = sys.argv[1], sys.argv[2], int(sys.argv[3])
with socket.create_server((host, tcp_port)) as listener:
    listener.settimeout(60)
    ask(host, peer, tcp_port)
    link = listener.accept()[0]
    link.settimeout(60)
    # The congestion map comes once the connection is up.
    take(link, HEADER.size + MAP_BYTES)
    link.sendall(header(1, 1) + b"x")
link.close()
print("gone", flush=True)
sys.stdin.readline()
with socket.create_server((host, tcp_port)) as listener:
    listener.settimeout(20)
    listener.accept()[0].close()
    print("back", flush=True)
