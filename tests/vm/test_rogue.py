# SPDX-License-Identifier: GPL-2.0
"""A peer that keeps to no rule: a program that plays the other end with RDMA verbs, from a network
namespace of its own on the same machine.

Whatever it sends, it is refused or dropped as Documentation/protocol.md has it, counted, and named in the
log. Meanwhile two other addresses of the node exchange verified streams, and do not notice."""

import json
import random

import pytest
from rdsvm.cluster import PAIR
from traffic import connection, exchange, flow_control, ping, silence_limit

pytestmark = pytest.mark.impls("rust")

# The rogue's addresses are below the node's, so it prevails when both connect at the same time; but for the last.
NETWORK = """set -e
ip netns add rogue
ip link add rog0 type veth peer name rog1 netns rogue
ip addr add 10.8.0.100/24 dev rog0
ip -6 addr add fd08::100/64 dev rog0 nodad
ip link set rog0 up
ip -n rogue link set lo up
for i in 1 2 3 4 5 6 7 8 200; do ip -n rogue addr add 10.8.0.$i/24 dev rog1; done
for i in 1 2; do ip -n rogue -6 addr add fd08::$i/64 dev rog1 nodad; done
ip -n rogue link set rog1 up
rdma link add rogx0 type {kind} netdev rog0
ip netns exec rogue rdma link add rogx1 type {kind} netdev rog1
"""


def connections(node, device):
    """The addresses and the numbers of the CM ids of a device that have a peer: a connection that is made
    anew has another number."""
    found = json.loads(node.run(["rdma", "-j", "resource", "show", "cm_id", "link", f"{device}/1"]).out)
    return sorted((sorted(x[end].rsplit(":", 1)[0] for end in ("src-addr", "dst-addr")), x["cm-idn"])
                  for x in found if "dst-addr" in x)


def bystanders(node):
    """How often the connections of the two that must not notice came up. Those of another type of service, which other
    tests have left, may go meanwhile."""
    return [connection(node, *x)["ups"] for x in (PAIR, PAIR[::-1])]


def add_rogue(node, guest):
    """The rogue's network, if the node has none yet."""
    if "rogue" in node.run("ip netns list").out:
        return
    node.run(NETWORK.format(kind=node.kind))
    if node.kind == "siw":
        # A listener's sockets for a new device are made where that was added, and would be in the rogue's way.
        node.forget()
    # The RDMA core is a moment behind. A connection that is made before it knows which device has the
    # address may have to move.
    for address in ("10.8.0.100", "fd08::100"):
        node.run(["python3", guest / "laddr.py", "bound", address])


@pytest.fixture
def rogue(node, tools, guest):
    """Runs one attack beside a stream that must not notice."""
    add_rogue(node, guest)
    ends = [(node, x) for x in PAIR]
    exchange(tools, *ends, count=20)

    def attack(name, *number, program="rogue.py"):
        before = bystanders(node)
        process = node.start(["python3", guest / program, tools.parent / "verbs.so", name, *number])
        while process.running():
            exchange(tools, *ends, count=20)
        result = process.wait()
        assert result.status == 0, str(result)
        ping(tools, node, PAIR[1], PAIR[0])
        assert bystanders(node) == before, "another connection was lost"

    return attack


@pytest.mark.parametrize("attack", ["frames", "operations",
                                    *(pytest.param(x, marks=pytest.mark.long) for x in ("harmless", "packed", "maps"))])
def test_frames(rogue, attack):
    rogue(attack)


@pytest.mark.long
def test_cancelled(rogue):
    rogue("cancelled", 100)


@pytest.mark.parametrize("attack", [
    pytest.param("requests", marks=pytest.mark.long),
    pytest.param("requests6", marks=pytest.mark.long("release", "debug"))])
def test_requests(rogue, attack):
    """No version, no private data, no address of one's own: a peer speaks for itself alone."""
    rogue(attack)


# On iWARP TCP says who asks.
@pytest.mark.kinds("rxe")
@pytest.mark.parametrize("attack", ["claims", pytest.param("timewait", marks=pytest.mark.long),
                                    pytest.param("claims6", marks=pytest.mark.long("release", "debug"))])
def test_forged(rogue, attack):
    """A program with a UDP socket can write what the RDMA CM of a kernel would: what contradicts itself is refused."""
    rogue(attack, program="forge.py")


@pytest.mark.kinds("rxe")
@pytest.mark.parametrize("attack", ["every", pytest.param("late", marks=pytest.mark.long)])
def test_rejections(rogue, attack):
    """With any reason, of what it was asked or has answered, and of what it was not: messages wait, and arrive."""
    rogue(attack, program="rejects.py")


@pytest.mark.long("release", "debug")
def test_many_requests(rogue, flavor):
    rogue("many-requests", 24 if flavor == "debug" else 80)


@pytest.mark.long
def test_replies(rogue):
    """The node asks for the connection."""
    rogue("replies")


@pytest.mark.on_siw("release")
def test_restarts(rogue):
    """What a peer sends again after it has started anew arrives, and nothing arrives twice."""
    rogue("restarts", program="rogue_connect.py")


@pytest.mark.long
@pytest.mark.parametrize("attack", ["hangs", "amid-a-message", "lives"])
def test_silence(rogue, node, flavor, attack):
    """The peer's queue pair lives, and nobody is behind it."""
    # The debug kernel takes its time to answer.
    seconds = 16 if flavor == "debug" else 4
    with silence_limit(seconds, node):
        rogue(attack, seconds, program="silent.py")


# Soft-iWARP does not let go of a request that nobody answers, and its CM knows no queue pairs.
@pytest.mark.kinds("rxe")
@pytest.mark.parametrize("attack", [pytest.param("crossings", marks=pytest.mark.long), "forgets", "timewait"])
def test_meetings(rogue, attack):
    rogue(attack, program="rogue_connect.py")


@pytest.mark.long("release", "debug")
def test_flood(rogue):
    rogue("flood", 300)


@pytest.mark.long("release", "debug")
def test_pings(rogue):
    """More than a peer gets answers to, if it acknowledges none."""
    rogue("flood", 10000, program="pings.py")


@pytest.mark.long
def test_deaf(rogue):
    """A peer that takes nothing: its senders wait."""
    rogue("deaf")


@pytest.mark.long
@pytest.mark.on_siw("release")
def test_credits(rogue, node):
    """Receives that the peer has not, or does not tell of. On iWARP they count in any case."""
    with flow_control(node):
        rogue("credits", program="rogue_credits.py")


@pytest.mark.long("release", "debug")
def test_random(rogue):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rogue("random", seed)


@pytest.mark.long
def test_nothing_grows(node, rogue, flavor):
    """Each connection of the rogue's is gone in the end, and the next one does with its memory."""
    rogue("resources", 10 if flavor == "debug" else 20)
    for _ in range(900):
        if not (left := connections(node, "rogx0")):
            return
        node.run(["sleep", "0.2"])
    raise AssertionError(f"left over: {left}")
