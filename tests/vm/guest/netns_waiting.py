#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""netns_waiting.py COUNT MOST: a user without privileges makes COUNT network namespaces, and one
more with their peers. Each has as many connections over TCP as may wait there, with a message each.
Another connection has the only room for one of RDS.

Prints as JSON how many are open when all but MOST have ended, and how many the namespaces have
counted as refused or lost. Keeps them until the standard input ends.
"""

import json
import select
import sys
import time

from rds import Sock, counters
from tcp_peer import connect, header
from user_namespace import become_root_of_a_namespace, enter, enter_new, hold, ip, present, set_up

TCP_PORT, RDS_PORT = 16385, 4000
# As many of one peer, from each of two, may wait.
EACH, PATIENCE = 8, 60
# The node may reset a connection before the handshake is over here.
RESET = (BrokenPipeError, ConnectionAbortedError, ConnectionResetError)


def make(number):
    """Makes a namespace with a listener. Returns its descriptor, and a socket there."""
    fd = enter_new()
    ip(f"link add far type veth peer name near{number} netns {holder.pid}")
    set_up("far", f"10.82.{number}.9")
    return fd, Sock((f"10.82.{number}.9", RDS_PORT))


def send(number):
    """Sends the messages to a namespace. Returns the sockets."""
    made = []
    for host in (1, 2):
        for sequence in range(1, EACH + 1):
            try:
                s = connect(f"10.82.{number}.{host}", f"10.82.{number}.9", TCP_PORT)
                s.sendall(header(sequence, 1) + b"x")
                made.append(s)
            except RESET:
                pass
    return made


def refused_or_lost():
    """Returns how many connections the namespaces have counted as refused or lost."""
    total = 0
    for space, _ in spaces:
        enter(space)
        now = counters()
        total += now["tcp_listen_refused"] + now["tcp_listen_lost"]
    return total


count, most = (int(x) for x in sys.argv[1:])
become_root_of_a_namespace()
peers, holder = present(), hold()
spaces = [make(x) for x in range(count)]
enter(peers)
for x in range(count):
    set_up(f"near{x}", f"10.82.{x}.1", f"10.82.{x}.2")
ip("address add 10.82.0.3/24 dev near0")
only = connect("10.82.0.3", "10.82.0.9", TCP_PORT)
only.sendall(header(1, 1) + b"x")
enter(spaces[0][0])
while not counters()["recv_drop_no_sock"]:
    time.sleep(0.05)
enter(peers)
sockets = {s.fileno(): s for x in range(count) for s in send(x)}
poll = select.poll()
for s in sockets.values():
    # Nobody answers a message without a connection of RDS.
    poll.register(s, select.POLLIN)
until = time.monotonic() + PATIENCE
while len(sockets) > most and time.monotonic() < until:
    for gone, _ in poll.poll(1000):
        poll.unregister(gone)
        sockets.pop(gone).close()
ended = 2 * EACH * count - len(sockets)
# A namespace counts a connection after it has reset it.
while (counted := refused_or_lost()) != ended and time.monotonic() < until:
    time.sleep(0.05)
print(json.dumps({"open": len(sockets), "counted": counted}), flush=True)
sys.stdin.read()
holder.communicate()
