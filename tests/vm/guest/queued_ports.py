# SPDX-License-Identifier: GPL-2.0
"""queued_ports.py send HOST PEER PORT SOCKETS COUNT: sends COUNT numbered messages from each of
SOCKETS ports to the same port of the peer. Sends one more when that has answered.

queued_ports.py receive HOST PEER PORT SOCKETS COUNT: expects these messages, once and in order."""

import sys

from rds import Sock

task, host, peer = sys.argv[1:4]
port, sockets, count = map(int, sys.argv[4:])
ends = [Sock((host, x), timeout=60) for x in range(port, port + sockets)]
if task == "send":
    for number in range(count):
        for index, end in enumerate(ends):
            end.send(str(number).encode(), (peer, port + index))
    print("sent", flush=True)
    for index, end in enumerate(ends):
        end.recv()
        end.send(str(count).encode(), (peer, port + index))
    # Closing a socket cancels what is not acknowledged.
    sys.stdin.read()
else:
    print("bound", flush=True)
    for index, end in enumerate(ends):
        got = [end.recv()[0] for _ in range(count)]
        end.send(b"all", (peer, port + index))
        # One that comes twice would come before the last one.
        got.append(end.recv()[0])
        assert got == [str(x).encode() for x in range(count + 1)], got
