# SPDX-License-Identifier: GPL-2.0
"""first_message.py FROM TO [FROM TO]...: pings the second address from the first one, one pair of
addresses after the other.

Prints how long each answer took, in seconds, as JSON.
"""

import json
import sys
import time

from rds import Sock

PATIENCE = 60


def seconds(source, target):
    with Sock((source, 0), PATIENCE) as s:
        start = time.monotonic()
        s.send(b"", (target, 0))
        s.recv()
        return time.monotonic() - start


ends = sys.argv[1:]
print(json.dumps([seconds(*pair) for pair in zip(ends[::2], ends[1::2])]))
