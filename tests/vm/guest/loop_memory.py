# SPDX-License-Identifier: GPL-2.0
"""loop_memory.py LIMIT SIZE...: how many unread messages of each size a send buffer of LIMIT bytes has room for, on
loopback. Prints them as JSON."""

import json
import socket
import sys

from cases import LOOP
from rds import Sock

SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33


def fill(limit, size):
    count = 0
    with Sock((LOOP, 0)) as reader, Sock((LOOP, 0)) as sender:
        reader.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 * limit)
        sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, limit)
        try:
            while True:
                sender.send(bytes(size), reader.name(), socket.MSG_DONTWAIT)
                count += 1
        except BlockingIOError:
            return count


limit, *sizes = map(int, sys.argv[1:])
print(json.dumps([fill(limit, size) for size in sizes]))
