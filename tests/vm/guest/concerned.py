# SPDX-License-Identifier: GPL-2.0
"""concerned.py connect|close|congest COUNT: makes an event at one of three local addresses with
connections to COUNT peers.

Each local address has a connection to each peer. The addresses are those of Machine.add_peers().

connect makes the connections. close closes a socket with messages in flight to each peer. congest
keeps a message unread that is too long for its socket, then reads it.
"""

import socket
import sys

from cases import eventually
from rds import Sock, counters

PORT = 4000
TOO_LONG = 8000


def near(index):
    return f"10.9.{index}.1"


def main():
    what, count = sys.argv[1], int(sys.argv[2])
    peers = [Sock((f"10.9.{k}.2", PORT), timeout=60) for k in range(1, count + 1)]
    if what == "connect":
        for index in (1, 2, 3):
            with Sock((near(index), PORT)) as sock:
                send_to_all(sock, peers)
    elif what == "close":
        with Sock((near(2), PORT)) as sock:
            send_to_all(sock, peers)
    else:
        with Sock((near(2), PORT), timeout=60) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, TOO_LONG // 4)
            before = counters()["cong_update_queued"]
            peers[0].send(bytes(TOO_LONG), (near(2), PORT))
            # Otherwise one map could serve for both changes.
            eventually("a map for each peer", lambda: counters()["cong_update_queued"] >= before + count)
            sock.recv()


def send_to_all(sock, peers):
    """Returns when all messages have arrived. So few are not acknowledged yet."""
    for peer in peers:
        sock.send(b"x", peer.name())
        peer.recv()


main()
