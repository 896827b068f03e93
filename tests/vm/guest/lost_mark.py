# SPDX-License-Identifier: GPL-2.0
"""lost_mark.py HOST PEER PORT: a port of HOST becomes full when there is no memory to notify peers.

PEER, another address of this node, is held back nevertheless, once there is memory. HOST had no
full port before. Memory that may not sleep is short for processes that ask for this.
"""

import errno
import select
import socket
import sys

from rds import Sock, counters

SIZE = 100
# Far more than fit into the receive buffer.
MOST = 2000


def run_out(yes):
    with open("/proc/self/make-it-fail", "w", encoding="ascii") as f:
        f.write(str(int(yes)))


def send(s, to):
    """Sends a message. Returns the name of the error, or None."""
    try:
        s.send(bytes(SIZE), to, socket.MSG_DONTWAIT)
    except OSError as e:
        return errno.errorcode[e.errno]
    return None


def failed():
    return counters()["cong_update_failed"]


def main():
    host, peer, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with Sock((host, port)) as r, Sock((host, 0)) as near, Sock((peer, 0)) as far:
        r.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        before = failed()
        # The call delivers a message from an address to itself, so the memory of this call is
        # short.
        while failed() == before:
            run_out(True)
            why = send(near, r.name())
            run_out(False)
            if why:
                sys.exit(f"{why}, and there was memory for the map")
        send(near, r.name())
        for i in range(MOST):
            why = send(far, r.name())
            if why == "ENOBUFS":
                print("held back")
                return
            if why == "EAGAIN":
                select.select([], [far], [])
            elif why:
                sys.exit(f"{why} after {i} messages")
        sys.exit(f"{MOST} messages to a port that is full")


main()
