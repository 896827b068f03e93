# SPDX-License-Identifier: GPL-2.0
"""come_and_go.py DEVICE TYPE NETDEV HOST PEER PORT TIMES: replaces a device while connections over
it are made.

The device of one side is deleted and added again TIMES times. The connections have many types of
service. Each message arrives once, and in order.

Packets must be delayed; otherwise no connection is seen while it is being made. On a busy machine a
state may still pass unseen, and the round is repeated.
"""

import itertools
import select
import struct
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack

from cases import CALL_TIMEOUT, need
from rds import Sock

CONNECTIONS = "/sys/kernel/debug/rds/connections"
TOS = range(0, 64, 4)
# States that some connection must have when the device is deleted. None: it is deleted at once, and
# most connections resolve.
PHASES = (None, "connecting", "accepting", "up")
# A state that passes unseen so often does not occur.
MOST_ROUNDS = 10


def states(*ends):
    """Returns the number of connections between these two addresses in each state."""
    with open(CONNECTIONS, encoding="ascii") as f:
        lines = [x for x in f if x.startswith((f"{ends[0]} -> {ends[1]}", f"{ends[1]} -> {ends[0]}"))]
    return Counter(word.partition("=")[2] for x in lines for word in x.split() if word.startswith("state="))


def caught(phase, *ends):
    """Waits until a connection has this state. Returns False if all connections came up first."""
    deadline = time.monotonic() + CALL_TIMEOUT
    while not (now := states(*ends))[phase]:
        if now and now["up"] == now.total():
            return False
        need(time.monotonic() < deadline, f"waited in vain for a connection that is {phase}: {dict(now)}")
        time.sleep(0.01)
    return True


def replace(device, kind, netdev):
    subprocess.run(["rdma", "link", "del", device], check=True)
    subprocess.run(["rdma", "link", "add", device, "type", kind, "netdev", netdev], check=True)


def main(device, kind, netdev, host, peer, port, times):
    seen = Counter()
    with ExitStack() as stack:
        reader = stack.enter_context(Sock((peer, int(port)), 120))
        senders = [(tos, stack.enter_context(Sock((host, 0), 120))) for tos in TOS]
        for tos, sender in senders:
            sender.set_tos(tos)
        number = 0
        for phase in itertools.islice(itertools.cycle(PHASES), int(times)):
            for _ in range(MOST_ROUNDS):
                for tos, sender in senders:
                    sender.send(struct.pack("=BI", tos, number), reader.name())
                number += 1
                over = not phase or caught(phase, host, peer)
                seen += states(host, peer)
                replace(device, kind, netdev)
                if over:
                    break
            else:
                need(False, f"no connection was seen while it was {phase}")
        due = dict.fromkeys(TOS, 0)
        for _ in range(len(TOS) * number):
            tos, number = struct.unpack("=BI", reader.recv(16)[0])
            need(number == due[tos], f"with {tos}, {number} comes instead of {due[tos]}")
            due[tos] += 1
        reader.send(b"back", senders[0][1].name())
        need(senders[0][1].recv(16)[0] == b"back", "the way back")
        need(not select.select([reader], [], [], 0)[0], "more messages than were sent")
    print(dict(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
