# SPDX-License-Identifier: GPL-2.0
"""pongs.py fill HOST PEER PORT SOCKETS: sends to SOCKETS ports of the peer until all are full.
Prints the numbers of messages for them.

pongs.py ping HOST PEER PORT SOCKETS: binds these ports, and pings the peer from each as soon as it
reads a line. It reads the next line, reads as many messages on each port as that line says, and
pings again. Then it waits for the pongs of the second pings only."""

import errno
import select
import socket
import sys

from rds import Sock

task, host, peer = sys.argv[1:4]
port, sockets = map(int, sys.argv[4:])


def fill(end, to):
    """Returns the number of messages that a port takes until it is full."""
    count = 0
    while True:
        try:
            end.send(bytes(20000), to, socket.MSG_DONTWAIT)
            count += 1
        except BlockingIOError:
            select.select([], [end], [])
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            return count


def bound(number):
    """Returns a socket that is full after a message or two."""
    end = Sock(timeout=60)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
    end.bind(host, number)
    return end


def ping(name):
    for end in ends:
        end.send(b"", (peer, 0))
    print(name, flush=True)


if task == "fill":
    with Sock((host, 0)) as end:
        # Few messages are under way when a port is full.
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 40000)
        print(*[fill(end, (peer, x)) for x in range(port, port + sockets)], flush=True)
        # Closing a socket cancels what is not acknowledged.
        sys.stdin.read()
else:
    ends = [bound(x) for x in range(port, port + sockets)]
    print("bound", flush=True)
    sys.stdin.readline()
    ping("pinged while full")
    for end, count in zip(ends, map(int, sys.stdin.readline().split()), strict=True):
        got = [end.recv() for _ in range(count)]
        assert all(len(data) == 20000 for data, _ in got), [len(x) for x, _ in got]
    ping("pinged")
    for end in ends:
        data, sender = end.recv()
        assert (len(data), sender) == (0, (peer, 0)), (len(data), sender)
