# SPDX-License-Identifier: GPL-2.0
"""Takes all ports of an address, and checks the next bind, here and in another network namespace.

Prints how many ports there were.
"""

import errno
import os
import resource
import sys

from cases import need, outcome
from info import elsewhere
from rds import Sock

HERE, THERE = "127.0.0.1", "127.0.0.2"


def first_come():
    with Sock((HERE, 4000)) as s:
        return s.name()


def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (70000, 70000))
    taken = {}
    while True:
        s = Sock()
        try:
            s.bind(HERE, 0)
        except OSError as e:
            need(e.errno == errno.EADDRINUSE, f"port number {len(taken) + 1}: {os.strerror(e.errno)}")
            break
        taken[s.name()[1]] = s
    need(outcome(s.bind, HERE, 4000) == "EADDRINUSE", "a port that is taken can be had")
    # The refused bind has left nothing: the socket has no name, and cannot send.
    need(s.name() == "unspec", f"a socket that no port was found for is {s.name()}")
    need(outcome(s.send, b"x", (HERE, 4000)) == "ENOTCONN", "it can send")
    s.bind(THERE, 4000)
    need(s.name() == (THERE, 4000), f"bound at last, it is {s.name()}")
    s.send(b"x", (HERE, 4000))
    need(taken[4000].recv(10) == (b"x", (THERE, 4000)), "another sender")
    theirs = elsewhere(first_come)
    need(theirs == [HERE, 4000], f"in another namespace: {theirs}")
    with Sock() as late:
        free, freed = taken.popitem()
        freed.sock.close()
        late.bind(HERE, 0)
        need(late.name()[1] == free, f"port {free} is free, and {late.name()[1]} was given")
    print(len(taken) + 1, flush=True)
    # Closing the sockets one by one would take long.
    os._exit(0)


sys.exit(main())
