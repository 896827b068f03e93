# SPDX-License-Identifier: GPL-2.0
"""send_memory.py: prints how many bytes of buffers messages to a missing peer take, until the send
buffer is full.

The output is JSON: {payload of each: [messages, bytes]}.
"""

import json
import re
import socket

from cases import IB
from rds import Sock

LIMIT = 1 << 20
NOWHERE = "10.9.0.200"
SIZES = (0, 1, 208, 209, 1040, 1041, 2128, 2129, 4096, 4097, 8192, 8193, 20000, 100000)


def in_use():
    with open("/sys/kernel/debug/rds/pools", encoding="ascii") as f:
        pools = re.findall(r"^rdsx0 send-.*buffer=(\d+) .* in_use=(\d+)", f.read(), re.M)
    return sum(int(size) * int(count) for size, count in pools)


def fill(size):
    """Returns how many messages there is room for, and how many bytes they take."""
    before, count = in_use(), 0
    with Sock((IB[0], 0)) as s:
        s.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF + 25, LIMIT)  # SO_SNDBUFFORCE
        try:
            while True:
                s.send(bytes(size), (NOWHERE, 4000), socket.MSG_DONTWAIT)
                count += 1
        except BlockingIOError:
            pass
        return count, in_use() - before


print(json.dumps({size: fill(size) for size in SIZES}))
