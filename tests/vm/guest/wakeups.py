# SPDX-License-Identifier: GPL-2.0
"""wakeups.py HOST PEER PORT: 200 sockets at HOST are held back by one port of PEER, 40 by the next
one, and 300 by none.

When a line arrives, the first port is read until all sockets that it held back may send again.
"""

import select
import socket
import sys

from cases import need, outcome
from rds import Sock
from cong_monitor import drain, fill

BY_FIRST, BY_SECOND, BY_NONE = 200, 40, 300
SIZE = 1000


def held_back(host, to, count):
    """Returns sockets that a full port holds back, and how many messages filled it."""
    sockets = [Sock((host, 0), 60) for _ in range(count)]
    sent = fill(sockets[0], to)
    for s in sockets[1:]:
        seen = outcome(s.send, bytes(SIZE), to, socket.MSG_DONTWAIT)
        need(seen == "ENOBUFS", f"a send to a full port: {seen}")
    return sockets, sent


def events(s):
    poll = select.poll()
    poll.register(s, select.POLLIN | select.POLLWRBAND)
    return poll.poll(0)


def main():
    host, peer, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    readers = [Sock((peer, port + i), 60) for i in range(3)]
    for r in readers[:2]:
        r.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
    others = [Sock((host, 0), 60) for _ in range(BY_NONE)]
    for s in others:
        s.send(b"", (peer, port + 2))
        readers[2].recv()
    first, sent = held_back(host, (peer, port), BY_FIRST)
    second, _ = held_back(host, (peer, port + 1), BY_SECOND)
    print("ready", flush=True)
    sys.stdin.readline()
    drain(readers[0], sent, lambda: all(events(s) for s in first))
    need(not any(events(s) for s in second + others), "others are told, too")
    print("all", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
