# SPDX-License-Identifier: GPL-2.0
"""destinations.py HOST ADDRESS...: tries each address as a destination of connect() and sendto()
from HOST.

Prints as JSON the outcomes, and the number of connections.
"""

import json
import sys

from cases import outcome
from rds import RDS6_INFO_CONNECTIONS, Sock, info


def connect(address):
    with Sock() as s:
        s.connect(address, 4000)


def send(host, address):
    with Sock((host, 0)) as s:
        return s.send(b"x", (address, 4000))


host, *addresses = sys.argv[1:]
answers = {x: [outcome(connect, x), outcome(send, host, x)] for x in addresses}
# Local addresses and peers.
print(json.dumps([answers, [row[16:48].hex() for row in info(RDS6_INFO_CONNECTIONS)]]))
