# SPDX-License-Identifier: GPL-2.0
"""tcp_urgent.py HOST PEER TCP_PORT RDS_PORT: connects to a node like C RDS. Sends "hello 1", and
then "hello 2" with urgent bytes in its header and in its payload. They are no part of the stream.
Ends after a line on standard input."""

import socket
import sys

from tcp_peer import connect, header

host, peer, tcp_port, port = *sys.argv[1:3], *map(int, sys.argv[3:])
with connect(host, peer, tcp_port) as s:
    first, second = (header(x, 7, dport=port) + f"hello {x}".encode() for x in (1, 2))
    s.sendall(first)
    print("sent", flush=True)
    sys.stdin.readline()
    for part in (second[:20], second[20:50]):
        s.sendall(part)
        s.send(b"!", socket.MSG_OOB)
    s.sendall(second[50:])
    sys.stdin.readline()
