# SPDX-License-Identifier: GPL-2.0
"""tcp_partial.py PEER TCP_PORT HOST...: each host connects to a node like a peer of ours. It
sends a short message, and all of one of 1 MiB but its end. Prints "ended" when the node has ended
all of these connections but two. Ends with its input."""

import queue
import sys
import threading

from tcp_peer import CONG_BITMAP, MAP_BYTES, connect, ended, header

# Generation 1; the peer acknowledges messages that it has delivered, so it sends others again.
INTRODUCTION = bytes([6, 0, 0, 0, 1, 7, 1 << 6, 0, 0, 0])
LENGTH = 1 << 20

peer, tcp_port, hosts = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
gone = queue.Queue()


def begin(host):
    with connect(host, peer, tcp_port, timeout=110) as s:
        try:
            s.sendall(header(0, MAP_BYTES, 0, 0, CONG_BITMAP, INTRODUCTION) + bytes(MAP_BYTES))
            s.sendall(header(1, 1) + b"x" + header(2, LENGTH) + bytes(LENGTH - 1))
            ended(s)
        except (BrokenPipeError, ConnectionResetError):
            pass
    gone.put(host)


for host in hosts:
    threading.Thread(target=begin, args=(host,), daemon=True).start()
for _ in hosts[2:]:
    gone.get(timeout=60)
print("ended", flush=True)
sys.stdin.read()
