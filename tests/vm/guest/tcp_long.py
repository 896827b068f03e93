# SPDX-License-Identifier: GPL-2.0
"""Long messages over TCP that are unread for some time.

tcp_long.py send HOST PEER TCP_PORT RDS_PORT COUNT SIZE SEGMENT: connects to a node like C RDS.
Sends messages in segments of at most this size, or as TCP likes (0). Ends after a line on standard
input.

tcp_long.py read HOST RDS_PORT COUNT SIZE: prints "ready", and after a line the bytes of memory that
the messages take. Then it reads each of them three times.
"""

import socket
import sys

from rds import Sock, counters
from tcp_peer import connect, header

TAKEN, HERE = "recv_bytes_added_to_sock", socket.MSG_PEEK | socket.MSG_TRUNC


def payload(number, size):
    """Returns the payload of a message. No two of its pieces are the same."""
    return b"".join((number << 32 | x).to_bytes(8, "big") for x in range(-(-size // 8)))[:size]


def send(host, peer, tcp_port, port, count, size, segment):
    with connect(host, peer, tcp_port) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(1, count + 1):
            s.sendall(header(number, size, dport=port))
            data = payload(number, size)
            step = segment or size
            for at in range(0, size, step):
                s.sendall(data[at:at + step])
        print("sent", flush=True)
        sys.stdin.readline()


def read(host, port, count, size):
    with Sock((host, port), timeout=150) as s:
        before = counters()[TAKEN]
        print("ready", flush=True)
        sys.stdin.readline()
        print(counters()[TAKEN] - before, flush=True)
        for number in range(1, count + 1):
            expected = payload(number, size)
            # The whole, a part that ends within a piece, and the message itself.
            for flags, most in ((HERE, size), (HERE, size * 2 // 3 + 1), (0, size)):
                found, _ = s.recv(most, flags)
                assert found == expected[:most], (number, flags, most, len(found))


arguments = [x if "." in x else int(x) for x in sys.argv[2:]]
{"send": send, "read": read}[sys.argv[1]](*arguments)
