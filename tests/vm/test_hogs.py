# SPDX-License-Identifier: GPL-2.0
"""Isolation between users: a misbehaving program of an ordinary user (guest/hogs.py) runs beside
another user's messages between the same addresses.

All of these messages arrive, and each ping is answered. The time that they take is not checked.
"""

import json
import re
from collections import Counter

import pytest
from bystander import Bystander
from rdsvm.cluster import PAIR, peer_address
from traffic import counters, messages, new_type, ping, setting, times_up, unchanged

pytestmark = [pytest.mark.impls("rust")]

# Rounds of verified messages, pings for each check of the hog, and the number of checks: normal and
# maximum.
ROUNDS, PINGS, LOOKS, MOST_LOOKS = 20, 5, 2, 20
# Networks of add_peers() that no other test uses.
NETWORK, OF_TINY_BUFFERS = 214, 215
# Rounds of congestion maps that an address begins without a pause. After them it begins one per
# millisecond.
BURST = 8
# Connections to dead peers, and how many of one user may be connecting at a time.
DEAD, MOST_ATTEMPTS = 350, 128
# A limit in units of 4 KiB.
SMALL_LIMIT = 4096
KINDS = ("unread_port", "unread_memory", "unread_short", "dead_peers", "send_buffers", "wrong_keys", "tiny_buffers", "pins", "ports",
         "broadcast", "lines", "tables", "large_messages", "taken_back", "types")
# Kinds that take only a few seconds on the release kernel.
SHORT = ("ports", "broadcast", "lines", "types")


class Hog:
    """A program that repeats one misuse. look() waits for its next count, which is larger each
    time."""

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
        self.process.finish()


@pytest.mark.parametrize("kind", (
    pytest.param(x, marks=pytest.mark.long(*("release",) * (x not in SHORT), "debug")) for x in KINDS))
def test_bystander(kind, node, tools, guest):
    beside = Bystander(node, guest, *PAIR, 0)
    ups = times_up(node, *PAIR)
    hog = Hog(node, guest, kind)
    for _ in range(LOOKS):
        first = beside.go_on()
        while beside.go_on() < first + ROUNDS:
            pass
        # The hog has gone on meanwhile, and does so until it gets a line.
        assert hog.process.running()
        ping(tools, node, PAIR[1], PAIR[0], count=PINGS)
        hog.go_on()
    # These pings run while the hog still runs, so its exit does not help them.
    ping(tools, node, PAIR[1], PAIR[0], count=PINGS)
    # A refused operation ends the connection that all users share.
    assert kind == "wrong_keys" or times_up(node, *PAIR) == ups
    beside.finish()
    hog.finish()
    # Removes the connections of the hog, some of which have no peer.
    node.forget()


def test_unread_port(node, guest):
    """A full port pays for its overrun, never the connection: messages without room are dropped,
    and the reader is notified."""
    node.add_peers(1, NETWORK)
    near, far = (peer_address(NETWORK, i) for i in (0, 1))
    for host in (near, far):
        node.run(["python3", guest / "laddr.py", "bound", host])
    out = node.run(["python3", guest / "unread_port.py", near, far, "rdsv0"], timeout=1200).out
    assert out == "all\n"


def test_tiny_buffers(flavor, node, guest):
    """A port that changes with each message and each read does not flood peers with maps. They get
    the last one, and each ping gets its pong while the port is empty."""
    node.add_peers(1, OF_TINY_BUFFERS)
    near, far = (peer_address(OF_TINY_BUFFERS, i) for i in (0, 1))
    for host in (near, far):
        node.run(["python3", guest / "laddr.py", "bound", host])
    maps, took = json.loads(node.run(["python3", guest / "tiny_buffer.py", near, far,
                                  messages(flavor, 2000)], timeout=300).out)
    assert 0 < maps <= took + BURST + 1


def states(node, network):
    """Returns the number of connections to a network in each state."""
    lines = node.run(["cat", "/sys/kernel/debug/rds/connections"]).out.splitlines()
    return Counter(re.search(r" state=(\S+)", x)[1] for x in lines if f" -> {network}" in x)


@pytest.fixture
def no_hosts(node):
    """A network without hosts, on the link of the pair: its neighbours never answer."""
    route = "10.77.0.0/16 dev rdsv0"
    node.run(f"ip route add {route}")
    yield "10.77."
    node.run(f"ip route del {route}")


@pytest.mark.flavors("release")
def test_dead_peers(node, tools, guest, no_hosts):
    """A user has only some attempts to reach dead peers in progress at a time. So the first
    connections of others find the CM and the workers free."""
    hog = Hog(node, guest, "dead_peers")
    while states(node, no_hosts).total() < DEAD:
        hog.go_on()
    seen = []
    for _ in range(5):
        ping(tools, node, PAIR[1], PAIR[0], tos=new_type())
        seen.append(states(node, no_hosts))
    assert all(x["waiting"] > 0 and x["up"] == 0 for x in seen), seen
    # Connections change while they are listed.
    assert 0 < min(x.total() - x["waiting"] - x["down"] for x in seen) <= MOST_ATTEMPTS, seen
    hog.finish()
    node.forget()


@pytest.fixture
def small_pools(node):
    """Pools of at most 16 MiB: enough for the rings of a few connections, but not for what the hog
    sends."""
    with setting("ib/max_recv_allocation", SMALL_LIMIT, node):
        yield


# On the debug kernel senders are slow. Congestion maps hold them back before any message has to be
# dropped.
@pytest.mark.flavors("release")
def test_unread_memory(node, tools, guest, small_pools):
    """Unread messages of one user take at most a share of the receive memory. The rest stays
    available to other users."""
    beside = Bystander(node, guest, *PAIR, 0)
    before, ups = counters(node, guest), times_up(node, *PAIR)
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
    unchanged(before, now, "recv_drop_overrun")
    assert times_up(node, *PAIR) == ups
    beside.go_on()
    hog.finish()
    before = counters(node, guest)
    # Nothing is charged any more, so a program that reads has no limits, as before.
    reads = Hog(node, guest, "taken_back")
    beside.go_on()
    reads.finish()
    unchanged(before, counters(node, guest), "recv_copied_out", "recv_drop_share")
    assert times_up(node, *PAIR) == ups
    beside.finish()


@pytest.mark.flavors("release")
def test_unread_short(node, guest, small_pools):
    """Short unread messages, which are in no buffers, have the same limit."""
    beside = Bystander(node, guest, *PAIR, 0)
    before, ups = counters(node, guest), times_up(node, *PAIR)
    hog = Hog(node, guest, "unread_short")
    for _ in range(MOST_LOOKS):
        beside.go_on()
        now = counters(node, guest)
        if now["recv_drop_share"] > before["recv_drop_share"]:
            break
        hog.go_on()
    assert now["recv_drop_share"] > before["recv_drop_share"]
    unchanged(before, now, "recv_drop_overrun", "recv_copied_out")
    assert times_up(node, *PAIR) == ups
    hog.finish()
    before = counters(node, guest)
    reads = Hog(node, guest, "taken_back")
    beside.go_on()
    reads.finish()
    unchanged(before, counters(node, guest), "recv_drop_share")
    assert times_up(node, *PAIR) == ups
    beside.finish()
