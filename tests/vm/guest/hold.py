# SPDX-License-Identifier: GPL-2.0
"""hold.py [ADDRESS [COUNT]]: holds one socket or COUNT sockets open, bound if there is an address,
until standard input ends."""

import sys

from rds import Sock

address = (sys.argv[1], 0) if len(sys.argv) > 1 else None
held = [Sock(address) for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 1)]
print("open", flush=True)
sys.stdin.read()
