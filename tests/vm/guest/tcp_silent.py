# SPDX-License-Identifier: GPL-2.0
"""tcp_silent.py PEER TCP_PORT COUNT HOST...: each host asks a node with a lower address to connect,
like C RDS. Accepts its connections, and sends nothing on them. Prints "up" when there are COUNT,
and goes on to accept. After a line on standard input prints "ended" when the node has ended those
COUNT, and the seconds since the first one was asked for. Ends with its input."""

import socket
import sys
import threading
import time

from tcp_peer import ask, ended

later = []


def go_on(listener):
    while True:
        later.append(listener.accept()[0])


peer, tcp_port, count, hosts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
with socket.create_server(("", tcp_port), backlog=len(hosts)) as listener:
    listener.settimeout(60)
    begun = time.monotonic()
    for host in hosts:
        ask(host, peer, tcp_port)
    links = [listener.accept()[0] for _ in range(count)]
    listener.settimeout(None)
    threading.Thread(target=go_on, args=(listener,), daemon=True).start()
    print("up", flush=True)
    if not sys.stdin.readline():
        sys.exit()
    for link in links:
        link.settimeout(120)
        ended(link)
    print(f"ended {time.monotonic() - begun:.1f}", flush=True)
    sys.stdin.read()
