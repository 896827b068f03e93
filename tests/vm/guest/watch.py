# SPDX-License-Identifier: GPL-2.0
"""watch.py: prints the counters of RDS_INFO_COUNTERS as a line of JSON, and then the changed ones,
line by line.

It runs until standard input ends. If no counter changes, it prints an empty object twice a second.
"""

import json
import select
import sys
import time

from rds import counters

LOOKS, LINES = 0.1, 0.5

seen, told = {}, 0
while True:
    now = counters()
    changed = {name: value for name, value in now.items() if seen.get(name) != value}
    if changed or time.monotonic() >= told + LINES:
        print(json.dumps(changed), flush=True)
        told = time.monotonic()
    seen = now
    if select.select([sys.stdin], [], [], LOOKS)[0]:
        break
