# SPDX-License-Identifier: GPL-2.0
"""tcp_wake.py HOST PEER PORT: asks a node with a lower address once to connect, like C RDS. It
listens only after the node has found no listener. The node must connect all the same."""

import socket
import sys

from tcp_peer import ask

host, peer, port = *sys.argv[1:3], int(sys.argv[3])
ask(host, peer, port)
print("asked", flush=True)
sys.stdin.readline()
with socket.create_server((host, port)) as listener:
    listener.settimeout(30)
    listener.accept()[0].close()
