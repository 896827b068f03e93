# SPDX-License-Identifier: GPL-2.0
"""tcp_full.py HOST PEER TCP_PORT PORT: four connections to a node that has no room for them: without a
byte, with the congestion map of C RDS, with its question for the number of paths behind that, with two
messages to PORT.

The first one ends after a time, the next two at once. The last one stays; the program prints "refused"
then, and ends with its input.
"""

import socket
import struct
import sys

host, peer, tcp_port, port = *sys.argv[1:3], *map(int, sys.argv[3:])
MAP_BYTES, CONG_BITMAP = 8192, 1


def header(sequence, length, flags=0):
    return struct.pack("!QQIHHBx4xH16x", sequence, 0, length, 77, port, flags, 0)


def connect(first):
    s = socket.create_connection((peer, tcp_port), source_address=(host, 0))
    s.settimeout(60)
    if first:
        s.sendall(first)
    return s


congestion_map = header(0, MAP_BYTES, CONG_BITMAP) + bytes(MAP_BYTES)
# Source and destination port, and flags.
probe = struct.pack("!QQIHHBx4xH16x", 1, 0, 0, 1, 0, 0, 0)
for prelude in b"", congestion_map, congestion_map + probe:
    with connect(prelude) as s:
        try:
            # The node's own congestion map would be the answer.
            assert s.recv(1) == b"", "the node has answered"
        except ConnectionResetError:
            pass
# One segment, of which the node cannot have a part.
delivered = connect(b"".join(header(n, 7) + f"hello {n}".encode() for n in (1, 2)))
print("refused", flush=True)
sys.stdin.read()
