# SPDX-License-Identifier: GPL-2.0
"""tcp_closed_window.py HOST TCP_PORT: listens in place of RDS, and prints "ready". Prints "connected" when
a node has connected, and reads nothing until standard input ends."""

import socket
import sys

host, port = sys.argv[1], int(sys.argv[2])
with socket.create_server((host, port)) as listener:
    print("ready", flush=True)
    connected = listener.accept()[0]
    print("connected", flush=True)
    sys.stdin.read()
    connected.close()
