# SPDX-License-Identifier: GPL-2.0
"""tcp_strangers.py HOST PEER PORT: connects to an RDS node without speaking RDS. Prints "ready" when
the node knows all connections; a line on the input ends them."""

import socket
import sys

host, peer, port = *sys.argv[1:3], int(sys.argv[3])
# More than the node lets wait.
COUNT = 80


def connect():
    s = socket.create_connection((peer, port), source_address=(host, 0))
    s.settimeout(30)
    return s


bad = connect()
# A header for a message that is too long.
bad.sendall(bytes(16) + b"\xff" * 4 + bytes(28))
try:
    assert bad.recv(1) == b"", "the node has answered"
except ConnectionResetError:
    pass
silent = [connect() for _ in range(COUNT)]
print("ready", flush=True)
sys.stdin.readline()
for s in silent:
    s.close()
