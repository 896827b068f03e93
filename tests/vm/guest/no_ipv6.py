# SPDX-License-Identifier: GPL-2.0
"""no_ipv6.py: binds to addresses and sends a message on a kernel without IPv6.

IPv6 is disabled on the kernel's command line. Prints JSON.
"""

import json

from cases import CALL_TIMEOUT, LOOP, outcome
from rds import Sock

told = {}
for host, scope in (("::1", 0), ("::2", 0), ("fe80::1", 1), ("::ffff:1.2.3.4", 0), ("::ffff:127.0.0.1", 0), (LOOP, 0)):
    with Sock() as s:
        told[host] = outcome(s.bind, host, 0, scope)
with Sock((LOOP, 4001), CALL_TIMEOUT) as r, Sock((LOOP, 4002)) as s:
    s.send(b"abc", (LOOP, 4001))
    told["message"] = r.recv()[0].decode()
print(json.dumps(told))
