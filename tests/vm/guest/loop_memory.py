# SPDX-License-Identifier: GPL-2.0
"""loop_memory.py LIMIT SIZE...: prints how many unread messages of each size fit into a send buffer
of LIMIT bytes, on loopback.

The last number is for empty messages with the cookie of a region. The output is JSON.
"""

import json
import socket
import struct
import sys

import rdma
from cases import IB, LOOP
from rds import SOL_RDS, Sock

SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33


def fill(limit, send, host=LOOP):
    """Returns how many times send(sender, name of the reader) succeeds."""
    count = 0
    with Sock((host, 0)) as reader, Sock((host, 0)) as sender:
        reader.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 * limit)
        sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, limit)
        try:
            while True:
                send(sender, reader.name())
                count += 1
        except BlockingIOError:
            return count


def of_size(size):
    return lambda sender, name: sender.send(bytes(size), name, socket.MSG_DONTWAIT)


def of_memory():
    cookie = []

    def send(sender, name):
        if not cookie:
            sender.connect(*name)
            cookie.append(rdma.Memory(sender, 1).register(0, 4096))
        rdma.send(sender, b"", (SOL_RDS, rdma.DEST, struct.pack("=Q", cookie[0])), flags=socket.MSG_DONTWAIT)

    return send


limit, *sizes = map(int, sys.argv[1:])
print(json.dumps([*(fill(limit, of_size(size)) for size in sizes), fill(limit, of_memory(), IB[0])]))
