# SPDX-License-Identifier: GPL-2.0
"""cancel.py HOST PORT PEER PEERPORT COUNT: sends long messages and closes the socket at once, COUNT
times.

The close cancels what the peer has not acknowledged.
"""

import socket
import sys

from rds import Sock

host, port, peer, peer_port, count = sys.argv[1:]
for i in range(int(count)):
    with Sock((host, int(port))) as s:
        for _ in range(4):
            try:
                s.send(bytes([i & 0xff]) * 30000, (peer, int(peer_port)), socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
