# SPDX-License-Identifier: GPL-2.0
"""tcp_poke.py PEER TCP_PORT HOST...: each host asks a node with a lower address to connect, every 5
seconds, until standard input ends."""

import select
import socket
import sys

peer, tcp_port, hosts = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
while True:
    asking = []
    for host in hosts:
        s = socket.socket()
        s.setblocking(False)
        s.bind((host, 0))
        s.connect_ex((peer, tcp_port))
        asking.append(s)
    ended = select.select([sys.stdin], [], [], 5)[0]
    for s in asking:
        s.close()
    if ended:
        break
