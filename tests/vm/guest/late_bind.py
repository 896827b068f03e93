# SPDX-License-Identifier: GPL-2.0
"""late_bind.py ADDRESS: has a socket, binds it when a line comes, says what came of that, and stays until another line
comes."""

import sys

from cases import outcome
from rds import Sock

with Sock() as s:
    print("ready", flush=True)
    sys.stdin.readline()
    print(outcome(s.bind, sys.argv[1], 4000), flush=True)
    sys.stdin.readline()
