# SPDX-License-Identifier: GPL-2.0
"""packets.py DEVICE COUNT: says "ready", and ends when that many packets have come in."""

import socket
import sys

ETH_P_ALL = 3

with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as s:
    s.bind((sys.argv[1], ETH_P_ALL))
    print("ready", flush=True)
    left = int(sys.argv[2])
    while left:
        if s.recvfrom(64)[1][2] != socket.PACKET_OUTGOING:
            left -= 1
