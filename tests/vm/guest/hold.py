# SPDX-License-Identifier: GPL-2.0
"""hold.py [ADDRESS]: holds a socket open, bound if there is an address, until its input ends."""

import sys

from rds import Sock

with Sock((sys.argv[1], 0) if len(sys.argv) > 1 else None):
    print("open", flush=True)
    sys.stdin.read()
