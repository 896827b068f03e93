# SPDX-License-Identifier: GPL-2.0
"""Takes all ports of an address, and sees what happens to the next who wants one. Prints how many there were."""

import errno
import os
import resource
import sys

from cases import need, outcome
from rds import Sock

HERE, THERE = "127.0.0.1", "127.0.0.2"


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
    s.bind(THERE, 0)
    with Sock() as late:
        free, freed = taken.popitem()
        freed.sock.close()
        late.bind(HERE, 0)
        need(late.name()[1] == free, f"port {free} is free, and {late.name()[1]} was given")
    print(len(taken) + 1, flush=True)
    # Nobody needs to wait for their end one by one.
    os._exit(0)


sys.exit(main())
