# SPDX-License-Identifier: GPL-2.0
"""hysteresis.py HOST PEER PORT: finds which empty message from HOST makes PORT of PEER full, and
which read gives it room again.

PEER is another address of this node. The sender and its counters must agree.
"""

import socket
import sys

from cases import eventually, need, outcome
from rds import Sock, counters

# Size of an empty message in a receive buffer, and how many of them this buffer holds.
COST, ROOM = 256, 64


class Maps:
    """Congestion maps that peers get of the ports of an address.

    On the loopback address there are none.
    """

    def __init__(self, host):
        self.used = not host.startswith("127.")
        self.before = counters()

    def risen(self, name):
        return counters()[name] - self.before[name]

    def arrived(self, count):
        if self.used:
            eventually("messages", lambda: self.risen("recv_queued") == count)

    def silent(self, when):
        need(self.risen("cong_update_queued") == 0, f"a map goes out when {when}")

    def told(self, when):
        if self.used:
            eventually(f"a map when {when}", lambda: self.risen("cong_update_queued"))
            eventually("the map", lambda: self.risen("cong_update_received") == self.risen("cong_update_queued"))
        self.before = counters()


def main():
    host, peer, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    to = (peer, port)
    with Sock((host, 0), 60) as s, Sock(to, 60) as r:
        # Each end of a new connection sends a map.
        s.send(b"", to)
        r.send(b"", r.recv()[1])
        s.recv()
        # The kernel doubles the size.
        r.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, COST * ROOM // 2)
        need(r.sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == COST * ROOM, "another buffer than was asked for")

        def send():
            return outcome(s.send, b"", to, socket.MSG_DONTWAIT)

        def read(count):
            for _ in range(count):
                r.recv(0)

        for _ in range(2):
            maps = Maps(host)
            for i in range(ROOM):
                need(send() == 0, f"no room for message {i}")
            maps.arrived(ROOM)
            maps.silent("the buffer is just full")
            need(send() == 0, "no room in a buffer that is just full")
            maps.told("there is one more")
            need(send() == "ENOBUFS", "room above the limit")
            # Half of the buffer is in use after this.
            read(ROOM // 2 + 1)
            maps.silent("half is left")
            need(send() == "ENOBUFS", "room when half is left")
            read(1)
            maps.told("less than half is left")
            need(send() == 0, "no room when less than half is left")
            maps.before = counters()
            read(ROOM // 2)
            need(outcome(r.recv, 0, socket.MSG_DONTWAIT) == "EAGAIN", "more messages than were sent")
    print("all")


main()
