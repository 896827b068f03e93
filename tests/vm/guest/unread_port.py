# SPDX-License-Identifier: GPL-2.0
"""unread_port.py NEAR FAR NETDEV: hundreds of sockets fill their send buffers for a port that is
not read.

The local address is absent meanwhile, so no congestion map can hold them back. When it is back all
of these messages arrive, far more than the port takes.

NEAR and FAR are addresses of this node that have no connection yet. NEAR belongs to this network
device.
"""

import re
import select
import socket
import subprocess
import sys

from cases import ERRORS, eventually, need, outcome
from rds import Sock, counters, times_up

NOW = socket.MSG_DONTWAIT
SIZE, PATIENCE = 100000, 600
DROPPED = "recv_drop_overrun"


def most_unread():
    """Returns what a port takes in any case, in bytes: see Documentation/architecture.md."""
    with open("/proc/meminfo", encoding="ascii") as f:
        return max(32 << 20, (int(re.search(r"MemTotal: +(\d+)", f.read())[1]) << 10) // 32)


def fill(senders, port):
    """Sends as much as there is room for. Returns the number of messages."""
    count = 0
    for s in senders:
        while outcome(s.send, bytes(SIZE), port, NOW) == SIZE:
            count += 1
    return count


def error_of(r):
    return ERRORS.get(r.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), "ok")


def read(r):
    """Reads all that is there. Returns the outcome of each call."""
    said = []
    while (told := outcome(lambda: len(r.recv(SIZE, NOW)[0]))) != "EAGAIN":
        said.append(told)
    return said


def main():
    near, far, netdev = sys.argv[1:]
    before, ups = counters(), times_up(near, far)

    def rise(name):
        return counters()[name] - before[name]

    with Sock((far, 0)) as full, Sock((far, 0), PATIENCE) as r, Sock((near, 0), PATIENCE) as s:
        # Each sender has room for two messages.
        senders = [Sock((near, 0)) for _ in range(most_unread() * 3 // 4 // SIZE)]
        for x in senders:
            x.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 150000)
        address = f"{near}/32", "dev", netdev
        subprocess.run(("ip", "address", "del", *address), check=True)
        try:
            sent = fill(senders, full.name())
            s.send(b"behind", r.name())
        finally:
            subprocess.run(("ip", "address", "add", *address), check=True)
        need(sent * SIZE > 1.2 * most_unread(), f"{sent} messages are too few")

        # Only the port is affected.
        need(r.recv(10)[0] == b"behind", "another message")
        s.send(b"later", r.name())
        need(r.recv(10)[0] == b"later", "another later message")
        need(outcome(s.send, b"x", full.name(), NOW) == "ENOBUFS", "the port is said to have room")
        lost = rise(DROPPED)
        need(0 < lost < sent, f"{lost} messages of {sent} were dropped")
        # Both ends came up once after the address was back.
        need((now := times_up(near, far)) == [x + 1 for x in ups or (0, 0)], f"the connection was lost: {ups}, {now}")

        # Its reader is notified, once, before anything else.
        need(full in select.select([full], [], [], 0)[0], "it cannot be read")
        poll = select.poll()
        poll.register(full, 0)
        need([x[1] for x in poll.poll(0)] == [select.POLLERR], "poll() tells of no error")
        said = read(full)
        need(said == ["ENOBUFS"] + [SIZE] * (sent - lost),
             f"{said[:3]}... of {len(said)}, with {sent} sent and {lost} dropped")
        need((poll.poll(0), error_of(full)) == ([], "ok"), "the error is still there")

        # With room the port works as any other.
        eventually("room for more", lambda: outcome(s.send, b"again", full.name(), NOW) == 5)
        select.select([full], [], [], PATIENCE)
        need(full.recv(10)[0] == b"again", "a message after that")
    print("all")


main()
