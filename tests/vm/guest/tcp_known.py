# SPDX-License-Identifier: GPL-2.0
"""tcp_known.py HOST PEER TCP_PORT: a peer like C RDS asks a node with a lower address to connect, sends a
message and ends the connection. It prints "gone", and nobody listens there then. After a line on standard
input it listens again, prints "back" when the node has connected, and ends."""

import socket
import struct
import sys

host, peer, tcp_port = sys.argv[1], sys.argv[2], int(sys.argv[3])
with socket.create_server((host, tcp_port)) as listener:
    listener.settimeout(60)
    try:
        with socket.create_connection((peer, tcp_port), source_address=(host, 0)) as asking:
            assert asking.recv(1) == b"", "the node has answered"
    except ConnectionResetError:
        pass
    link = listener.accept()[0]
    link.settimeout(60)
    # The congestion map comes once the connection is up.
    left = 48 + 8192
    while left > 0:
        left -= len(link.recv(left))
    link.sendall(struct.pack("!QQIHHBx4xH16x", 1, 0, 1, 77, 78, 0, 0) + b"x")
link.close()
print("gone", flush=True)
sys.stdin.readline()
with socket.create_server((host, tcp_port)) as listener:
    listener.settimeout(20)
    listener.accept()[0].close()
    print("back", flush=True)
