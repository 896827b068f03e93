# SPDX-License-Identifier: GPL-2.0
"""knock.py OWN PEER PORT: opens as many silent TCP connections to a port as there is time for,
until one is refused."""

import errno
import select
import socket
import sys

AT_ONCE = 64


def knock(own, peer, port):
    """Yields the results of AT_ONCE simultaneous connects."""
    socks = []
    for _ in range(AT_ONCE):
        s = socket.socket()
        s.bind((own, 0))
        s.setblocking(False)
        s.connect_ex((peer, port))
        socks.append(s)
    for s in socks:
        # The answer to one of them may be lost.
        select.select([], [s], [], 1)
        yield s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        s.close()


where = sys.argv[1], sys.argv[2], int(sys.argv[3])
ends = list(knock(*where))
print("ready", flush=True)
while errno.ECONNREFUSED not in ends:
    ends = list(knock(*where))
