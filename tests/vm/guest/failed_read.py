# SPDX-License-Identifier: GPL-2.0
"""failed_read.py HOST PEER PORT: a reader at PORT of PEER fails in the middle of a message, and the
port is as full as before.

The congestion map that is sent meanwhile, because the next port becomes full, must be followed by
another one.
"""

import ctypes
import errno
import select
import socket
import sys
import threading
import time

from cases import outcome
from rds import Sock, libc
from uffd import Uffd

# SIZE is more than the receiver may have unread. Half of that is thousands of empty messages.
SIZE, LIMIT = 1 << 20, 300000
# Seconds between messages to a port that becomes full by one other message. The map comes when that
# has arrived.
PAUSE = 0.01


def has_room(s, to):
    """Returns true if a port has room, as far as the sender knows."""
    while (told := outcome(s.send, b"", to, socket.MSG_DONTWAIT)) == "EAGAIN":
        select.select([], [s], [])
    if told not in (0, "ENOBUFS"):
        sys.exit(f"{told} on the way to port {to[1]}")
    return told == 0


def wait_until_full(s, to, most, pause=0):
    """Sends until a port is full. pause: seconds between messages."""
    for _ in range(most):
        if not has_room(s, to):
            return
        time.sleep(pause)
    sys.exit(f"{most} messages later port {to[1]} has still room")


def receiver(name, limit):
    s = Sock(name, 60)
    s.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF + 25, limit)  # SO_RCVBUFFORCE
    return s


def main():
    host, peer, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    first, second = (peer, port), (peer, port + 1)
    with Sock((host, 0), 60) as s, receiver(first, LIMIT) as r, receiver(second, 16384):
        s.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF + 25, SIZE)  # SO_SNDBUFFORCE
        s.send(b"", first)
        r.recv()
        s.send(bytes(SIZE), first)
        wait_until_full(s, first, 1000, PAUSE)
        memory, result = Uffd(), []

        def read():
            count = libc.recv(r.fileno(), ctypes.c_void_p(memory.at), SIZE, 0)
            result.append((count, ctypes.get_errno()))

        reader = threading.Thread(daemon=True, target=read)
        reader.start()
        memory.wait()
        wait_until_full(s, second, 1000, PAUSE)
        while not has_room(s, first):
            select.select([], [], [], 0.01)
        memory.remove()
        reader.join()
        if result != [(-1, errno.EFAULT)]:
            sys.exit(f"the read ended with {result}")
        wait_until_full(s, first, 20000)
    print("all")


main()
