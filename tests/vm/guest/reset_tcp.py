# SPDX-License-Identifier: GPL-2.0
"""reset_tcp.py HOST PEER COUNT SECONDS: resets the connections between two addresses COUNT times,
with a pause between two resets."""

import socket
import struct
import sys
import time

from rds import Sock

CONN_RESET = 8

host, peer, count, pause = *sys.argv[1:3], int(sys.argv[3]), float(sys.argv[4])
with Sock() as s:
    for _ in range(count):
        s.set_raw(CONN_RESET, struct.pack("=B3x", 0) + socket.inet_aton(host) + socket.inet_aton(peer))
        # The interval is what is tested: a reset falls anywhere into the traffic.
        time.sleep(pause)
