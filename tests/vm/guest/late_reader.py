# SPDX-License-Identifier: GPL-2.0
"""late_reader.py recv HOST PORT COUNT SIZE, late_reader.py send HOST PORT PEER PEERPORT COUNT SIZE,
and late_reader.py some HOST PORT COUNT: a receiver that reads late.

The receiver has room for everything, so that its port is never congested. It reads nothing until a
line arrives on its standard input. The sender blocks whenever it must. Every message has its
number. All must arrive, in order. With "some" the receiver reads COUNT messages at once; the first
may have any number.
"""

import socket
import struct
import sys

from rds import Sock, read_numbered

SO_RCVBUFFORCE = 33


def receive(host, port, count, size):
    with Sock() as s:
        s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 30)
        s.bind(host, port)
        print("ready", flush=True)
        sys.stdin.readline()
        read_numbered(s, count, size)
    print("all", count, flush=True)


def read_some(host, port, count):
    with Sock((host, port)) as s:
        first = struct.unpack_from("=I", s.recv(4)[0])[0]
        for expected in range(first + 1, first + count):
            number = struct.unpack_from("=I", s.recv(4)[0])[0]
            if number != expected:
                sys.exit(f"message {number} comes instead of {expected}")
    print("from", first, flush=True)


def send(host, port, peer, peer_port, count, size):
    with Sock((host, port)) as s:
        for i in range(count):
            s.send(struct.pack("=I", i).ljust(size, b"x"), (peer, peer_port))
        print("sent", count, flush=True)
        # Closing the socket would cancel messages that are not delivered yet.
        sys.stdin.readline()


if __name__ == "__main__":
    role, host, port, *rest = sys.argv[1:]
    if role == "recv":
        receive(host, int(port), *map(int, rest))
    elif role == "some":
        read_some(host, int(port), int(rest[0]))
    else:
        send(host, int(port), rest[0], *map(int, rest[1:]))
