# SPDX-License-Identifier: GPL-2.0
"""attempts.py HOST: sends as an ordinary user from an address of this node to 20 peers that cannot
exist.

The kernel logs only ten of the failed attempts, because their rate is limited.
"""

import os
import sys

from rds import Sock

PORT, USER = 4006, 1001


def main():
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    with Sock((sys.argv[1], 0), 60) as s:
        for last in range(2, 22):
            s.send(b"", (f"127.0.0.{last}", PORT))


main()
