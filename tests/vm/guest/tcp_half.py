# SPDX-License-Identifier: GPL-2.0
"""tcp_half.py HOST PEER TCP_PORT BYTES: connects to a node like C RDS, sends the first BYTES of a message
of 1 MiB, and prints "sent". Ends when the node ends the connection."""

import socket
import struct
import sys

host, peer, tcp_port, count = *sys.argv[1:3], *map(int, sys.argv[3:])
with socket.create_connection((peer, tcp_port), source_address=(host, 0)) as s:
    s.sendall(struct.pack("!QQIHHBx4xH16x", 1, 0, 1 << 20, 77, 78, 0, 0) + bytes(count))
    print("sent", flush=True)
    s.settimeout(110)
    try:
        # First comes the node's congestion map.
        while s.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
