# SPDX-License-Identifier: GPL-2.0
"""One user cannot stop others: an ordinary user who does one bad thing again and again (guest/hogs.py), beside another's
messages between the same addresses. All of these arrive, and each ping is answered; how soon is not judged."""

import pytest
from bystander import Bystander
from rdsvm.cluster import PAIR, peer_address
from traffic import counters, ping, setting, unchanged

pytestmark = [pytest.mark.impls("rust")]

# Rounds of the verified messages, and pings, for each look at the hog.
ROUNDS, PINGS, LOOKS, MOST_LOOKS = 20, 5, 2, 20
# The network of add_peers() that nobody else has.
NETWORK = 214
# In units of 4 KiB.
SMALL_LIMIT = 4096
KINDS = ("unread_port", "unread_memory", "unread_short", "dead_peers", "send_buffers", "wrong_keys", "tiny_buffers", "pins", "ports",
         "broadcast", "tables", "large_messages", "taken_back", "types")
# Take a few seconds on the release kernel.
SHORT = ("ports", "broadcast", "types")


class Hog:
    """It has done it so often when a call returns, and more often each time."""

    def __init__(self, node, guest, kind):
        self.process = node.start(["python3", guest / "hogs.py", kind, *PAIR])
        self.counts = []
        self.look()

    def look(self):
        told = self.process.expect(r"\A(?:\d+\n){" + str(len(self.counts)) + r"}(\d+)\n")
        self.counts.append(int(told[1]))

    def go_on(self):
        self.process.write("\n")
        self.look()

    def finish(self):
        self.process.write("", close=True)
        self.process.wait(check=True)


@pytest.mark.parametrize("kind", (
    pytest.param(x, marks=pytest.mark.long(*("release",) * (x not in SHORT), "debug")) for x in KINDS))
def test_bystander(kind, node, tools, guest):
    beside = Bystander(node, guest, *PAIR, 0)
    hog = Hog(node, guest, kind)
    for _ in range(LOOKS):
        for _ in range(ROUNDS):
            beside.go_on()
        ping(tools, node, PAIR[1], PAIR[0], count=PINGS)
        hog.go_on()
    # It is over before it ends: nothing of this is the end's doing.
    ping(tools, node, PAIR[1], PAIR[0], count=PINGS)
    beside.finish()
    hog.finish()
    # Connections to nobody, and others.
    node.forget()


def test_unread_port(node, guest):
    """The port that takes no more pays for it, and never the connection: what there is no room for is dropped, and its
    reader is told."""
    node.add_peers(1, NETWORK)
    near, far = (peer_address(NETWORK, i) for i in (0, 1))
    for host in (near, far):
        node.run(["python3", guest / "laddr.py", "bound", host])
    out = node.run(["python3", guest / "unread_port.py", near, far, "rdsv0"], timeout=300).out
    assert out == "all\n"


@pytest.fixture
def small_pools(node):
    """Pools of 16 MiB at the most: enough for the rings of a few connections, and not for what the hog sends."""
    with setting("ib/max_recv_allocation", SMALL_LIMIT, node):
        yield


# On the debug kernel senders are so slow that maps hold them back before anything has to be dropped.
@pytest.mark.flavors("release")
def test_unread_memory(node, tools, guest, small_pools):
    """What one user does not read takes a share of the memory to receive with, and the rest is there for others."""
    beside = Bystander(node, guest, *PAIR, 0)
    before = counters(node, guest)
    hog = Hog(node, guest, "unread_memory")
    for _ in range(MOST_LOOKS):
        beside.go_on()
        ping(tools, node, PAIR[1], PAIR[0], count=PINGS)
        hog.go_on()
        now = counters(node, guest)
        if now["recv_drop_share"] > before["recv_drop_share"]:
            break
    assert now["recv_copied_out"] > before["recv_copied_out"]
    assert now["recv_drop_share"] > before["recv_drop_share"]
    unchanged(before, now, "conn_reset", "recv_drop_overrun")
    beside.go_on()
    hog.finish()
    before = counters(node, guest)
    # Nothing is charged any more: who reads is as free as before.
    reads = Hog(node, guest, "taken_back")
    beside.go_on()
    reads.finish()
    unchanged(before, counters(node, guest), "recv_copied_out", "recv_drop_share", "conn_reset")
    beside.finish()


@pytest.mark.flavors("release")
def test_unread_short(node, guest, small_pools):
    """The same of short messages, which are in no buffers."""
    beside = Bystander(node, guest, *PAIR, 0)
    before = counters(node, guest)
    hog = Hog(node, guest, "unread_short")
    for _ in range(MOST_LOOKS):
        beside.go_on()
        now = counters(node, guest)
        if now["recv_drop_share"] > before["recv_drop_share"]:
            break
        hog.go_on()
    assert now["recv_drop_share"] > before["recv_drop_share"]
    unchanged(before, now, "conn_reset", "recv_drop_overrun", "recv_copied_out")
    hog.finish()
    before = counters(node, guest)
    reads = Hog(node, guest, "taken_back")
    beside.go_on()
    reads.finish()
    unchanged(before, counters(node, guest), "recv_drop_share", "conn_reset")
    beside.finish()
