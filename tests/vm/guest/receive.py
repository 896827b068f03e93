# SPDX-License-Identifier: GPL-2.0
"""receive.py HOST PORT MESSAGE...: prints "ready", and receives exactly these messages in this
order."""

import sys

from rds import Sock

host, port = sys.argv[1], int(sys.argv[2])
with Sock((host, port), timeout=150) as s:
    print("ready", flush=True)
    expected = [x.encode() for x in sys.argv[3:]]
    found = [s.recv()[0] for _ in expected]
assert found == expected, found
