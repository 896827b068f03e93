# SPDX-License-Identifier: GPL-2.0
"""one_sided.py target HERE THERE SECONDS, or user HERE THERE write|read BYTES: operations in one
direction, without messages.

target: registers memory for the program at THERE, and sends it a message each SECONDS. While these
arrive the other end does not ask for an answer, which would carry the acknowledgement.

user: operates on that memory, BYTES at once and as fast as it can, without a message. It reads what
arrives.

Both run until standard input ends.
"""

import contextlib
import os
import select
import socket
import struct
import sys

import rdma
from rdma import DEST, READWRITE, SILENT, Memory

PORT = 4015
SIZE = 1 << 20


def input_ends(seconds):
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and not os.read(sys.stdin.fileno(), 100)


def target(sock, seconds):
    cookie = Memory(sock, SIZE >> 12).register(0, SIZE)
    rdma.send(sock, b"here", (rdma.SOL_RDS, DEST, struct.pack("=Q", cookie)))
    while not input_ends(seconds):
        rdma.send(sock, b"again")


def user(sock, what, size):
    memory = Memory(sock, SIZE >> 12)
    memory.fill(0, bytes(SIZE))
    print("ready", flush=True)
    _, ((kind, cookie),) = rdma.receive(sock)
    assert kind == DEST
    flags = SILENT | (READWRITE if what == "write" else 0)
    control, _place = rdma.transfer(*struct.unpack("=Q", cookie), (0, size), [(memory.base, size)], flags)
    while not input_ends(0):
        for _ in range(10):
            rdma.send(sock, b"", control)
        with contextlib.suppress(BlockingIOError):
            while True:
                data, controls, *_ = sock.sock.recvmsg(100, 1024, socket.MSG_DONTWAIT)
                # An operation that failed would be reported.
                assert (data, controls) == (b"again", []), f"{data!r} {controls}"
    print("done", flush=True)


if __name__ == "__main__":
    role, here, there, *rest = sys.argv[1:]
    end = rdma.connected((here, PORT), (there, PORT), 120)
    if role == "user":
        user(end, rest[0], int(rest[1]))
    else:
        target(end, float(rest[0]))
