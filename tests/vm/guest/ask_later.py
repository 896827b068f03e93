# SPDX-License-Identifier: GPL-2.0
"""ask_later.py HOST PEER: binds to HOST, pings PEER when a line arrives on standard input, and ends
with the answer."""

import sys

from rds import Sock

with Sock((sys.argv[1], 0)) as s:
    print("bound", flush=True)
    sys.stdin.readline()
    s.send(b"", (sys.argv[2], 0))
    s.recv()
