# SPDX-License-Identifier: GPL-2.0
"""many.py NETWORKS TYPES COUNT: COUNT messages in each direction on NETWORKS times TYPES
connections at once.

The addresses are those of Machine.add_peers(). Both ends of each connection request it at the same
time. Every message must arrive once, in order, and unchanged. Prints as JSON how many ends are
still up.
"""

import errno
import hashlib
import json
import resource
import select
import socket
import sys

from rds import Sock, connections

PORT = 4000
LONGEST = 3000


class End:
    """A socket that sends messages to its peer and expects as many from it."""

    def __init__(self, mine, peer, tos, count):
        self.mine, self.peer, self.tos, self.count = (mine, PORT + tos), (peer, PORT + tos), tos, count
        self.sent = self.received = 0
        self.sock = Sock(self.mine)
        self.sock.set_tos(tos)

    def send(self):
        """Sends what there is room for. Returns true if everything is sent."""
        try:
            while self.sent < self.count:
                self.sock.send(message(self.mine, self.sent), self.peer, socket.MSG_DONTWAIT)
                self.sent += 1
        except OSError as e:
            # The local send buffer is full, or the peer's socket.
            if e.errno not in (errno.EAGAIN, errno.ENOBUFS):
                raise
        return self.sent == self.count

    def receive(self):
        """Receives what has arrived. Returns true if everything has arrived."""
        try:
            while self.received < self.count:
                data, source = self.sock.recv(LONGEST + 1, socket.MSG_DONTWAIT)
                if source != self.peer or data != message(self.peer, self.received):
                    sys.exit(f"{self.mine}: {len(data)} bytes from {source}, which are not message "
                             f"{self.received} of {self.peer}")
                self.received += 1
        except OSError as e:
            if e.errno != errno.EAGAIN:
                raise
        return self.received == self.count


def message(source, number):
    """Returns a message of a socket, which depends only on its address and the number."""
    name = f"{source} {number}".encode()
    size = int.from_bytes(hashlib.sha256(name).digest()[:2], "big") % LONGEST
    return hashlib.shake_128(name).digest(16 + size)[:LONGEST]


def main():
    networks, types, count = map(int, sys.argv[1:])
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    ends = []
    for k in range(1, networks + 1):
        near, far = f"10.9.{k}.1", f"10.9.{k}.2"
        for tos in range(types):
            ends += [End(near, far, tos, count), End(far, near, tos, count)]
    poll = select.poll()
    events = {x.sock.fileno(): [x, select.POLLIN | select.POLLOUT] for x in ends}
    for number, (_, wanted) in events.items():
        poll.register(number, wanted)
    while events:
        for number, ready in poll.poll():
            end, wanted = events[number]
            if ready & select.POLLOUT and end.send():
                wanted &= ~select.POLLOUT
            if ready & select.POLLIN and end.receive():
                wanted &= ~select.POLLIN
            if not wanted:
                poll.unregister(number)
                del events[number]
            elif wanted != events[number][1]:
                events[number][1] = wanted
                poll.modify(number, wanted)
    # On a busy machine a connection may have been lost since. It has nothing to send, so it does
    # not come back.
    print(json.dumps({"up": len([c for c in connections() if c.state == "connected"])}))


main()
