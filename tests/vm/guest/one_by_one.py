# SPDX-License-Identifier: GPL-2.0
"""one_by_one.py HOST PEER COUNT SIZE: sends messages one at a time, and waits for each.

Prints how many messages of this node have asked for an acknowledgement meanwhile.
"""

import sys

from rds import Sock, counters

host, peer, *numbers = sys.argv[1:]
count, size = map(int, numbers)
with Sock((peer, 0), 60) as r, Sock((host, 0)) as s:
    before = counters()["send_ack_required"]
    for _ in range(count):
        s.send(bytes(size), r.name())
        r.recv()
    print(counters()["send_ack_required"] - before)
