# SPDX-License-Identifier: GPL-2.0
"""away.py address|device NEAR FAR NETDEV DEVICE KIND: sends the first messages to a peer while the
local address, or its device, is absent.

Receives them when it is back. NEAR and FAR are addresses of this node that have no connection yet.
NEAR belongs to this network device, on which there is an RDMA device of this kind.
"""

import subprocess
import sys

from cases import need, outcome
from rds import Sock

PORT = 4005
# The last one has several fragments.
SIZES = (0, 100, 100000)


def main():
    what, near, far, netdev, device, kind = sys.argv[1:]
    address = "address", f"{near}/32", "dev", netdev
    go, come = {
        "address": (("ip", *address[:1], "del", *address[1:]), ("ip", *address[:1], "add", *address[1:])),
        "device": (("rdma", "link", "del", device), ("rdma", "link", "add", device, "type", kind, "netdev", netdev)),
    }[what]
    messages = [bytes([number]) * size for number, size in enumerate(SIZES)]
    with Sock((near, 0), 60) as s, Sock((far, PORT), 120) as r:
        subprocess.run(go, check=True)
        try:
            told = [outcome(s.send, data, (far, PORT)) for data in messages]
        finally:
            subprocess.run(come, check=True)
        need(told == list(SIZES), f"the sends return {told}")
        for data in messages:
            need(r.recv(len(data) + 1)[0] == data, "another message has come")


main()
