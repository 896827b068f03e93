# SPDX-License-Identifier: GPL-2.0
"""cancel_sent_to.py HOST PEER PORT COUNT: sends long messages to PORT of PEER and cancels them at
once, COUNT times.

PEER is an address of this node, too. Messages to the next port, sent in between, all have to
arrive. Prints how much the counters have risen, and how often the connection came up again.
"""

import socket
import sys

from rds import MAX_MESSAGE, Sock, counters, times_up

COUNTERS = ("send_drop_cancelled", "recv_drop_bad_fragment", "recv_drop_bad_header")


def roomy(address):
    s = Sock(address, timeout=60)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        s.sock.setsockopt(socket.SOL_SOCKET, option + 25, 64 << 20)  # SO_SNDBUFFORCE and so on
    return s


def drain(s, flags):
    try:
        while (data := s.recv(MAX_MESSAGE, flags)[0]) != b"last":
            if data != data[:1] * MAX_MESSAGE:
                sys.exit(f"a message of {len(data)} bytes is not what was sent")
    except BlockingIOError:
        pass


def main():
    host, peer, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    with roomy((host, 0)) as s, roomy((peer, port)) as cancelled, roomy((peer, port + 1)) as kept:
        s.send(b"first", (peer, port))
        cancelled.recv()
        before, ups = counters(), times_up(host, peer)
        for i in range(count):
            for _ in range(3):
                s.send(bytes([i & 0xff]) * MAX_MESSAGE, (peer, port))
            s.send(b"%d" % i, (peer, port + 1))
            s.cancel(peer, port)
            if int(kept.recv()[0]) != i:
                sys.exit(f"message {i} did not come")
            drain(cancelled, socket.MSG_DONTWAIT)
        s.send(b"last", (peer, port))
        drain(cancelled, 0)
        after = counters()
        print(*(after[x] - before[x] for x in COUNTERS), sum(times_up(host, peer)) - sum(ups))


main()
