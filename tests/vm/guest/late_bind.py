# SPDX-License-Identifier: GPL-2.0
"""late_bind.py ADDRESS: opens a socket and binds it when a line arrives on standard input.

Prints the outcome, and stays until another line arrives.
"""

import sys

from cases import outcome
from rds import Sock

with Sock() as s:
    print("ready", flush=True)
    sys.stdin.readline()
    print(outcome(s.bind, sys.argv[1], 4000), flush=True)
    sys.stdin.readline()
