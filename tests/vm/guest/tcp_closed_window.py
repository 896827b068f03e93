# SPDX-License-Identifier: GPL-2.0
"""tcp_closed_window.py HOST TCP_PORT: listens in place of RDS, and prints "ready". Prints
"connected" when a node has connected. Sends a header without a message, and reads nothing until
standard input ends."""

import socket
import sys

from tcp_peer import header

host, port = sys.argv[1], int(sys.argv[2])
with socket.create_server((host, port)) as listener:
    print("ready", flush=True)
    connected = listener.accept()[0]
    # A congestion update without a map. A peer that sends nothing at all is given up.
    connected.sendall(header(0, sport=0, dport=0, flags=1))
    print("connected", flush=True)
    sys.stdin.read()
    connected.close()
