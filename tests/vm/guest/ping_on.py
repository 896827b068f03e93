# SPDX-License-Identifier: GPL-2.0
"""ping_on.py HOST PEER: pings PEER, one ping after the other, until standard input ends.

Prints "ready" after the first answer, and at the end how many more there were.
"""

import select
import sys

from rds import Sock

PATIENCE = 120


def main(host, peer):
    with Sock((host, 0), PATIENCE) as s:
        def ping():
            s.send(b"", (peer, 0))
            s.recv()

        ping()
        print("ready", flush=True)
        count = 0
        while not select.select([sys.stdin], [], [], 0)[0]:
            ping()
            count += 1
    print(count)


main(*sys.argv[1:])
