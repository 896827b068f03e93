# SPDX-License-Identifier: GPL-2.0
"""tcp_half.py HOST PEER TCP_PORT BYTES: connects to a node like C RDS, sends the first BYTES of a
message of 1 MiB, and prints "sent". Ends when the node ends the connection."""

import sys

from tcp_peer import connect, ended, header

host, peer, tcp_port, count = *sys.argv[1:3], *map(int, sys.argv[3:])
with connect(host, peer, tcp_port, timeout=110) as s:
    s.sendall(header(1, 1 << 20) + bytes(count))
    print("sent", flush=True)
    ended(s)
