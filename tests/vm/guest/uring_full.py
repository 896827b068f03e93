# SPDX-License-Identifier: GPL-2.0
"""uring_full.py HOST PEER PORT: sends of a blocking socket at HOST through an io_uring, to a full
port of PEER.

PEER is an address of this node. The socket also sends to a port that has room, while its own send
buffer is full.
"""

import ctypes
import errno
import select
import socket
import sys

import uring
from cases import LOOP, need
from cong_monitor import fill, send
from rds import Sock

DATA = ctypes.create_string_buffer(b"abc", 3)


def one_result(ring):
    ring.enter(1)
    results = ring.results()
    need(len(results) == 1, f"results of one send: {results}")
    return next(iter(results.values()))


def read(r, count):
    for _ in range(count):
        data, _ = r.recv()
    return data


def full_port(ring, host, to):
    with Sock((host, 0)) as s, Sock(to, 60) as r:
        r.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        sent = fill(s, to)
        s.connect(*to)
        for how in (0, uring.ASYNC):
            ring.queue(uring.SEND, s.fileno(), DATA, 3, 1, how)
            told = one_result(ring)
            need(told == -errno.ENOBUFS, f"a send to a full port: {told}")
        ring.poll(s.fileno(), select.POLLWRBAND, 1, uring.LINK)
        ring.queue(uring.SEND, s.fileno(), DATA, 3, 2)
        ring.enter(0)
        need(not ring.results(), "there is room in a full port")
        read(r, sent)
        ring.enter(2)
        results = ring.results()
        while results[2] == -errno.ENOBUFS:
            # Messages that were in flight filled the port again.
            ring.poll(s.fileno(), select.POLLWRBAND, 1, uring.LINK)
            ring.queue(uring.SEND, s.fileno(), DATA, 3, 2)
            ring.enter(2)
            results = ring.results()
        need(results[2] == 3, f"a send when there is room again: {results}")
        need(read(r, 1) == b"abc", "another message than was sent")


def full_buffer(ring, to):
    """On loopback a sender is charged until a message is read."""
    with Sock((LOOP, 0)) as s, Sock(to, 60) as r:
        r.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF + 25, 1 << 20)
        s.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
        sent = 0
        while (told := send(s, to)) is None:
            sent += 1
        need(told == "EAGAIN", f"{told} when the send buffer is full")
        s.connect(*to)
        ring.queue(uring.SEND, s.fileno(), DATA, 3, 1)
        ring.enter(0)
        need(not ring.results(), "a send with a full buffer is done")
        read(r, sent)
        told = one_result(ring)
        need(told == 3, f"a send that waited for room: {told}")
        need(read(r, 1) == b"abc", "another message than was sent")


def main():
    host, peer, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with uring.Ring() as ring:
        full_port(ring, host, (peer, port))
        full_buffer(ring, (LOOP, port + 1))
    print("all")


main()
