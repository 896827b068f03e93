# SPDX-License-Identifier: GPL-2.0
"""tcp_parked.py PEER TCP_PORT EACH HOST...: EACH connections of each host, with a message each.
With 0, one connection of each host without a byte, which the node ends. Prints "sent" when all have
been made, and keeps them until standard input ends."""

import sys

from tcp_peer import ask, connect, header

peer, tcp_port, each, hosts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
# The node may reset a connection before the handshake is over here.
RESET = (BrokenPipeError, ConnectionAbortedError, ConnectionResetError)
if each == 0:
    for host in hosts:
        try:
            ask(host, peer, tcp_port)
        except RESET:
            pass
    sys.exit()
waiting = []
for host in hosts:
    for number in range(each):
        try:
            waiting.append(connect(host, peer, tcp_port))
            waiting[-1].sendall(header(number + 1, 1) + b"x")
        except RESET:
            # One too many, of which nothing has arrived.
            pass
print("sent", flush=True)
sys.stdin.read()
