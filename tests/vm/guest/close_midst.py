# SPDX-License-Identifier: GPL-2.0
"""close_midst.py HOST: cancels messages in the midst of a send queue.

Many sockets at HOST have messages for a peer that does not exist, mixed in one queue. A socket that
is closed, or cancels what it has sent to a port, loses its messages. Those of other sockets stay.
One of the sockets also has an unread message to itself.

Prints as JSON the numbers of messages that two counters have counted as dropped, and the right
numbers.
"""

import json
import random
import socket
import struct
import sys

from cases import eventually
from rds import Sock, counters, info

# No host has this address.
NOWHERE = "10.9.0.200"
PORTS = (4000, 4001)
# More sockets than a connection distinguishes, and more messages than one walk looks at.
SOCKETS, ROUNDS = 100, 3
RDS_INFO_SEND_MESSAGES = 10003
COUNTERS = ("send_drop_closed", "send_drop_cancelled")


def queued(host):
    """Returns (port, peer's port, length) of the messages that wait to be sent."""
    found = []
    for raw in info(RDS_INFO_SEND_MESSAGES):
        _, size, near, far, port, to, _, _ = struct.unpack("=QI4s4s2s2sBB", raw)
        if (near, far) == (socket.inet_aton(host), socket.inet_aton(NOWHERE)):
            found.append((*struct.unpack("!HH", port + to), size))
    return found


def main():
    host, order = sys.argv[1], random.Random(1)
    sockets = [Sock((host, 0)) for _ in range(SOCKETS)]
    itself = sockets[SOCKETS // 2]
    itself.send(b"unread", itself.name())
    wanted, size = [], 0
    for _ in range(ROUNDS):
        for s in sockets:
            for port in PORTS:
                size += 1
                s.send(bytes(size), (NOWHERE, port), socket.MSG_DONTWAIT)
                wanted.append((s.name()[1], port, size))
    before, dropped = counters(), [0, 0]

    def expect(left, counter):
        nonlocal wanted
        dropped[counter] += len(wanted) - len(left)
        wanted = left
        # Messages far back in the queue are removed soon after their socket is closed.
        eventually(f"{len(left)} messages left, and the right ones", lambda: queued(host) == left)

    expect(wanted, 0)
    order.shuffle(sockets)
    while sockets:
        s = sockets.pop()
        mine = s.name()[1]
        if order.random() < 0.5:
            port = order.choice(PORTS)
            s.cancel(NOWHERE, port)
            expect([x for x in wanted if x[:2] != (mine, port)], 1)
        s.sock.close()
        expect([x for x in wanted if x[0] != mine], 0)

    def risen():
        after = counters()
        return [after[x] - before[x] for x in COUNTERS]

    # A sweep counts messages after it has removed them.
    eventually(f"{dropped} dropped messages to be counted, {risen()} are", lambda: risen() == dropped)
    print(json.dumps([risen(), dropped]))


main()
