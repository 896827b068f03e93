# SPDX-License-Identifier: GPL-2.0
"""tcp_half.py HOST PEER TCP_PORT BYTES: connects to a node like C RDS, sends the first BYTES of a
message of 1 MiB, and prints "sent". When the node has ended the connection, prints "ended" and the
seconds since the first byte."""

import sys
import time

from tcp_peer import connect, ended, header

host, peer, tcp_port, count = *sys.argv[1:3], *map(int, sys.argv[3:])
with connect(host, peer, tcp_port, timeout=110) as s:
    begun = time.monotonic()
    s.sendall(header(1, 1 << 20) + bytes(count))
    print("sent", flush=True)
    ended(s)
    print(f"ended {time.monotonic() - begun:.1f}", flush=True)
