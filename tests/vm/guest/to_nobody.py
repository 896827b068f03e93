# SPDX-License-Identifier: GPL-2.0
"""to_nobody.py HOST PEER PORT: sends a message to a port of PEER that has no socket.

Waits until it has arrived there: the ping behind it is answered.
"""

import sys

from rds import Sock

host, peer, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Sock((host, 0), timeout=60) as s:
    s.send(b"hello", (peer, port))
    s.send(b"", (peer, 0))
    s.recv()
