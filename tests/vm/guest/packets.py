# SPDX-License-Identifier: GPL-2.0
"""packets.py DEVICE COUNT: prints "ready", and after COUNT received packets the length of the
longest.

The length includes the Ethernet header.
"""

import socket
import sys

ETH_P_ALL = 3
# More than any frame of these devices.
LONGEST = 1 << 16

with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as s:
    s.bind((sys.argv[1], ETH_P_ALL))
    print("ready", flush=True)
    left, longest = int(sys.argv[2]), 0
    while left:
        frame, where = s.recvfrom(LONGEST)
        if where[2] != socket.PACKET_OUTGOING:
            left -= 1
            longest = max(longest, len(frame))
print(longest)
