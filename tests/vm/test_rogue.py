# SPDX-License-Identifier: GPL-2.0
"""A misbehaving peer: a program that plays the other end with RDMA verbs, in its own network
namespace on the same machine.

All that it sends is refused or dropped as Documentation/protocol.md says, counted, and named in the
log. Meanwhile two other addresses of the node exchange verified streams, and so do the attacked
address and an honest peer. The streams are not affected.
"""

import random
import re
from contextlib import contextmanager, nullcontext

import pytest
from bystander import Bystander
from holdings import held, wait_until_back
from rdsvm.cluster import MTU, PAIR
from tracing import traced
from traffic import connection, counters, exchange, flow_control, ping, silence_limit

# The rogue uses memory of a program, which the kernel refuses if it had to bounce.
pytestmark = [pytest.mark.impls("rust"), pytest.mark.dma("translated", "strict")]

# The rogue's addresses. All except the last are below the node's, so the rogue prevails when both
# connect at the same time.
ROGUE, ROGUE6 = (1, 2, 3, 4, 5, 6, 7, 8, 200), (1, 2)
NETWORK = """set -e
ip netns add rogue
ip link add rog0 mtu {mtu} type veth peer name rog1 mtu {mtu} netns rogue
ip addr add 10.8.0.100/24 dev rog0
ip -6 addr add fd08::100/64 dev rog0 nodad
ip link set rog0 up
ip -n rogue link set lo up
for i in {four}; do ip -n rogue addr add 10.8.0.$i/24 dev rog1; done
for i in {six}; do ip -n rogue -6 addr add fd08::$i/64 dev rog1 nodad; done
ip -n rogue link set rog1 up
rdma link add rogx0 type {kind} netdev rog0
ip netns exec rogue rdma link add rogx1 type {kind} netdev rog1
"""

# An honest peer of the attacked device, with an address of the rogue's network. It is on the same
# kernel, as the ends of the pair are. The route to it leads through the rogue's namespace.
HONEST = """set -e
ip link add hon0 mtu {mtu} type veth peer name hon1 mtu {mtu} netns rogue
ip netns exec rogue sysctl -q net.ipv4.ip_forward=1
for dev in rog0 hon0; do sysctl -q net.ipv4.conf.$dev.accept_local=1 net.ipv4.conf.$dev.rp_filter=0; done
ip -n rogue link set hon1 up
ip -n rogue route add {peer}/32 dev hon1
ip addr add {peer}/32 dev hon0
ip link set hon0 up
ip route add {node}/32 dev hon0
ip route add {peer}/32 dev rog0
ip neigh replace {node} lladdr $(ip netns exec rogue cat /sys/class/net/hon1/address) dev hon0 nud permanent
ip neigh replace {peer} lladdr $(ip netns exec rogue cat /sys/class/net/rog1/address) dev rog0 nud permanent
ip -n rogue neigh replace {peer} lladdr $(cat /sys/class/net/hon0/address) dev hon1 nud permanent
ip -n rogue neigh replace {node} lladdr $(cat /sys/class/net/rog0/address) dev rog1 nud permanent
rdma link add honx0 type {kind} netdev hon0
"""
ATTACKED = ("10.8.0.100", "10.8.0.50")
ROGUES = [*(f"10.8.0.{i}" for i in ROGUE), *(f"fd08::{i}" for i in ROGUE6)]
DEVICES = ("rogx0", "honx0")
# Reasons of rejections that end an attempt. A rejection for a timeout (4) must have data about the
# node that the rogue does not know.
EACH_REASON = {"every": {*range(65)} - {4}, "late": set()}


def bystanders(node):
    """Returns the number of times that each connection of the bystanders has come up. Connections
    of other types of service, from other tests, may go meanwhile and are not included."""
    return [connection(node, *x)["ups"] for pair in (PAIR, ATTACKED) for x in (pair, pair[::-1])]


def add_rogue(node, guest):
    """Creates the rogue's network, if the node has none yet."""
    if "rogue" in node.run("ip netns list").out:
        return
    four, six = (" ".join(map(str, x)) for x in (ROGUE, ROGUE6))
    node.run(NETWORK.format(kind=node.kind, four=four, six=six, mtu=MTU))
    node.run(HONEST.format(kind=node.kind, mtu=MTU, node=ATTACKED[0], peer=ATTACKED[1]))
    if node.kind == "siw":
        # The listener's sockets for a new device are created in the namespace where the device was
        # added, and would conflict with the rogue.
        node.forget()
    # The RDMA core notices an address after a short delay. A connection from before that may have
    # to move.
    for address in (*ATTACKED, "fd08::100"):
        node.run(["python3", guest / "laddr.py", "bound", address])


@pytest.fixture
def rogue(node, tools, guest):
    """Runs one attack beside streams that must not be affected, some of them on the attacked
    device. At the end the node holds no more than before."""
    add_rogue(node, guest)
    ends = [(node, x) for x in PAIR]
    exchange(tools, *ends, count=20)
    ping(tools, node, ATTACKED[1], ATTACKED[0])
    # One attack needs a region. The device then has a queue pair for it.
    node.run(["python3", guest / "region.py", ATTACKED[0]])
    assert [connection(node, *x)["device"] for x in (ATTACKED, ATTACKED[::-1])] == list(DEVICES)

    def attack(name, *number, program="rogue.py"):
        holdings = held(node, DEVICES, ROGUES)
        beside = Bystander(node, guest, *ATTACKED, 0)
        before = bystanders(node)
        process = node.start(["python3", guest / program, tools.parent / "verbs.so", name, *number])
        while process.running():
            exchange(tools, *ends, count=20)
            beside.go_on()
        result = process.wait()
        assert result.status == 0, str(result)
        beside.finish()
        ping(tools, node, PAIR[1], PAIR[0])
        assert bystanders(node) == before, "another connection was lost"
        wait_until_back(node, holdings, DEVICES, ROGUES)

    return attack


@contextmanager
def told_of(node, guest, counter):
    """Checks that each event of a counter is traced once, with the attacked address."""
    before = counters(node, guest)[counter]
    with traced(node) as trace:
        yield
        told = [x for x in trace() if x.endswith(f" {counter} 1")]
    assert len(told) == counters(node, guest)[counter] - before > 0, told
    wrong = [x for x in told if not re.match(rf"drop: <(::ffff:{ATTACKED[0]}|fd08::100),", x)]
    assert not wrong, wrong


# The node answers each frame alike on both kernels; the debug kernel detects wrong accesses to
# memory.
@pytest.mark.parametrize("attack", [
    *(pytest.param(x, marks=pytest.mark.long("release")) for x in ("frames", "harmless")),
    *(pytest.param(x, marks=pytest.mark.long) for x in ("operations", "packed", "maps"))])
def test_frames(rogue, attack):
    rogue(attack)


@pytest.mark.flavors("release")
def test_lines(rogue):
    """The rate limit is that of the kernel, with one limit for each kind of line."""
    rogue("lines", 40)


@pytest.mark.race
def test_cancelled(rogue, flavor):
    rogue("cancelled", 20 if flavor == "debug" else 100)


# Soft-iWARP calls the module's handler in another way.
@pytest.mark.on_siw("debug")
@pytest.mark.parametrize("attack", [
    pytest.param("few-requests", marks=pytest.mark.long("release")),
    pytest.param("requests", marks=pytest.mark.long("release", "debug")),
    pytest.param("requests6", marks=pytest.mark.long("release", "debug"))])
def test_requests(rogue, node, guest, attack):
    """Requests without a version, without private data, or with a foreign address are refused: a
    peer can only use its own address."""
    with told_of(node, guest, "conn_reject_bad_request"):
        rogue(attack)


# On iWARP, TCP identifies the sender.
@pytest.mark.kinds("rxe")
@pytest.mark.parametrize("attack", ["claims", pytest.param("timewait", marks=pytest.mark.long),
                                    pytest.param("claims6", marks=pytest.mark.long("release", "debug"))])
def test_forged(rogue, node, guest, attack):
    """A program with a UDP socket can send what a kernel's RDMA CM would send. Contradictory
    requests are refused."""
    forged = told_of(node, guest, "conn_reject_forged") if attack.startswith("claims") else nullcontext()
    with forged:
        rogue(attack, program="forge.py")


@pytest.mark.kinds("rxe")
@pytest.mark.long("release", "debug")
@pytest.mark.parametrize("attack", ["every", "late"])
def test_rejections(rogue, node, attack):
    """Rejections with any reason, of a request, of a reply, and of nothing. Messages wait, and
    arrive."""
    with traced(node) as trace:
        rogue(attack, program="rejects.py")
        told = {int(x.rpartition(" ")[2]) for x in trace() if re.match("error: .* (rejected|refused): ", x)}
    missing = EACH_REASON[attack] - told
    assert not missing, f"not traced: {missing}"


@pytest.mark.parametrize("count", (pytest.param(8, marks=pytest.mark.long("release")), pytest.param(80, marks=pytest.mark.long("release", "debug"))))
def test_many_requests(rogue, count):
    rogue("many-requests", count)


@pytest.mark.long
def test_replies(rogue):
    """The node is the side that connects."""
    rogue("replies")


def test_restarts(rogue):
    """Retransmissions of a restarted peer arrive, and no message arrives twice."""
    rogue("restarts", program="rogue_connect.py")


@pytest.mark.long
@pytest.mark.parametrize("attack", ["hangs", "amid-a-message", "lives"])
def test_silence(rogue, node, flavor, attack):
    """The peer's queue pair is alive, but no program serves it."""
    # Answers take longer on the debug kernel.
    seconds = 16 if flavor == "debug" else 4
    with silence_limit(seconds, node):
        rogue(attack, seconds, program="silent.py")


# Soft-iWARP keeps requests that are not answered, and its CM knows no queue pairs.
@pytest.mark.race
@pytest.mark.kinds("rxe")
@pytest.mark.parametrize("attack", [pytest.param("crossings", marks=pytest.mark.long), "forgets", "timewait"])
def test_meetings(rogue, attack):
    rogue(attack, program="rogue_connect.py")


@pytest.mark.long
@pytest.mark.parametrize("attack, count", (
    ("unread", 0), ("in-part", 2),
    pytest.param("in-part", 8, marks=pytest.mark.long("release", "debug")),
    pytest.param("flood", 300, marks=pytest.mark.long("release", "debug"))))
def test_flood(rogue, attack, count):
    rogue(attack, count)


@pytest.mark.long
@pytest.mark.parametrize("attack, count", (
    ("one", 4200), pytest.param("flood", 10000, marks=pytest.mark.long("release", "debug"))))
def test_pings(rogue, attack, count):
    """A peer that acknowledges nothing sends more pings than it gets answers to."""
    rogue(attack, count, program="pings.py")


@pytest.mark.long
def test_deaf(rogue):
    """A peer takes no messages, so senders to it wait."""
    rogue("deaf")


@pytest.mark.on_siw("release")
def test_credits(rogue, node):
    """The peer advertises receives that it does not have, or has receives that it does not
    advertise. On iWARP credits always count."""
    with flow_control(node):
        rogue("credits", program="rogue_credits.py")


@pytest.mark.race
@pytest.mark.long("release", "debug")
def test_random(rogue):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rogue("random", seed)


@pytest.mark.long
def test_nothing_grows(rogue, flavor):
    """Each connection of the rogue goes in the end, and the next one needs no additional memory."""
    rogue("resources", 10 if flavor == "debug" else 20)
