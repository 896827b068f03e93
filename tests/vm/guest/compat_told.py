# SPDX-License-Identifier: GPL-2.0
"""compat_told.py HOST PEER PORT: control messages of operations and of congestion in a 32-bit
program."""

import socket
import struct
import sys

import compat
import rdma
from cases import need, outcome
from cong_monitor import RDS_CONG_MONITOR, drain, events, fill
from rds import SOL_RDS, Sock

HEADER = 12
DEST, STATUS, CONG_UPDATE = 2, 4, 5


def told(s, room, flags=socket.MSG_DONTWAIT):
    """Returns (data, control messages, whether one was cut)."""
    data, control, flags, _ = compat.recvmsg(s.fileno(), 100, room, flags)
    return data, control, bool(flags & socket.MSG_CTRUNC)


def ended(token):
    return SOL_RDS, STATUS, struct.pack("=Qii", token, rdma.SUCCESS, 0)


def operations():
    with rdma.Pair(4) as p:
        cookie = p.theirs.register(0, 8192)
        for token in (1, 2, 3):
            p.write(b"", cookie, [(0, 100)], token)
        one = HEADER + 16
        need(told(p.a, one, socket.MSG_PEEK) == (b"", [ended(1)], False), "a look at the first end")
        need(told(p.a, one, 0) == (b"", [ended(1)], False), "the first end")
        need(told(p.a, one - 1, 0) == (b"", [], True), "no room for the second")
        # The second is lost: otherwise a receiver that never has room would never block.
        need(told(p.a, one, 0) == (b"", [ended(3)], False), "the third end")


def cookies():
    with rdma.Pair(4) as p:
        cookie = p.ours.register(0, 100)
        for room in (HEADER + 8, 0):
            rdma.send(p.a, b"here", (SOL_RDS, DEST, struct.pack("=Q", cookie)))
            wanted = [(SOL_RDS, DEST, struct.pack("=Q", cookie))] if room else []
            seen = told(p.b, room, 0)
            need(seen == (b"here", wanted, not room), f"a cookie with room for {room} bytes: {seen}")


def congestion(host, to):
    with Sock((host, 0)) as s, Sock(to, 60) as r:
        s.setsockopt(SOL_RDS, RDS_CONG_MONITOR, 1)
        r.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        drain(r, fill(s, to), lambda: events(s))
        mask = struct.pack("=Q", 1 << to[1] % 64)
        need(told(s, HEADER + 7) == (b"", [], True), "no room for it")
        need(told(s, HEADER + 8) == (b"", [(SOL_RDS, CONG_UPDATE, mask)], False), "the port")
        need(outcome(told, s, 100) == "EAGAIN", "it is told twice")


def main():
    host, peer, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    operations()
    cookies()
    congestion(host, (peer, port))
    print("all")


main()
