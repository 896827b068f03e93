# SPDX-License-Identifier: GPL-2.0
"""to_one.py HOST PEER PORT: sends a message to a port of PEER, and keeps the socket open until
standard input ends."""

import sys

from rds import Sock

host, peer, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Sock((host, 0)) as s:
    s.send(b"x", (peer, port))
    print("sent", flush=True)
    sys.stdin.read()
