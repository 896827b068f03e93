# SPDX-License-Identifier: GPL-2.0
"""Flow control by credits on devices that do not need it. It is off by default and enabled by a
sysctl.

When it is active, senders wait (ib_tx_throttle). Receivers never report that a sender was too fast
(the device's counter send_rnr_err).
"""

from contextlib import ExitStack

import pytest
from rdsvm.cluster import PAIR, must, wire_address
from slow_reader import run_slow_reader
from traffic import (counters, exchange, late_reader, messages, new_addresses, ping, read_late,
                     setting, unchanged, wait_for)

# On iWARP it is always active: see test_iwarp.py.
pytestmark = [pytest.mark.impls("rust"), pytest.mark.kinds("rxe")]

A, B = wire_address(0, 1), wire_address(0, 2)
FLOW_CONTROL = "/proc/sys/net/rds/ib/flow_control"


def turn_on(node):
    node.run(f"echo 1 >{FLOW_CONTROL}")


def refusals(node):
    """Returns the number of frames for which the devices of this node had no receive."""
    return int(node.run("cat /sys/class/infiniband/*/ports/1/hw_counters/send_rnr_err | "
                        "awk '{n += $1} END {print n}'").out)


class Watch:
    """Changes of counters on a node since a point in time."""

    def __init__(self, node, guest):
        self.node, self.guest = node, guest
        self.counters, self.refusals = counters(node, guest), refusals(node)

    def throttled(self):
        return counters(self.node, self.guest)["ib_tx_throttle"] - self.counters["ib_tx_throttle"]

    def refused(self):
        return refusals(self.node) - self.refusals

    def check(self):
        """Checks that no received frame was wrong."""
        unchanged(self.counters, counters(self.node, self.guest), "recv_drop_bad_header",
                  "recv_drop_bad_fragment", "recv_drop_bad_ack", "ib_rx_starved_drop")


def traffic(ends, tools, guest, flavor, slow):
    """Runs short and long messages both ways. With `slow`, each side also has a receiver that does
    not read at first."""
    exchange(tools, *ends, count=messages(flavor, 400), sockets=8, sizes="1..700")
    exchange(tools, *ends, count=messages(flavor, 80), sizes="1..100000")
    if slow:
        run_slow_reader(guest, *ends)
        run_slow_reader(guest, *reversed(ends))


@pytest.mark.long
def test_values(node):
    """The setting accepts only 0 and 1, starts as 0, and goes with the module."""
    def tried(value):
        # The shell's own echo does not report the error.
        return node.run(f"/bin/echo {value} >{FLOW_CONTROL}", check=False)

    def value():
        return node.run(f"cat {FLOW_CONTROL}").out.strip()

    node.forget()
    assert value() == "0"
    for good in ("1", "0", "1"):
        must(tried(good))
        assert value() == good
    for bad in ("2", "-1", "256", "4294967296", "on"):
        result = tried(bad)
        assert result.status != 0 and "Invalid argument" in result.err, str(result)
        assert value() == "1"
    must(node.unload())
    assert node.run(f"cat {FLOW_CONTROL}", check=False).status != 0
    must(node.load())
    assert value() == "0"


def test_unload_while_it_is_read(node):
    """Programs that read and write the setting do not access an unloaded module."""
    readers = [node.start(f"while :; do cat {FLOW_CONTROL}; echo {i} >{FLOW_CONTROL}; done 2>/dev/null")
               for i in (0, 1)]
    for reader in readers:
        reader.expect("^[01]$")
    for _ in range(5):
        node.forget()
    for reader in readers:
        reader.stop()
    # Other tests must not see the last value.
    node.forget()


@pytest.mark.long
@pytest.mark.pairs("rust-rust")
@pytest.mark.parametrize("on", [
    *(pytest.param(x, marks=[pytest.mark.flavors("release"), pytest.mark.long("release")]) for x in "ab"), "both"])
def test_it_takes_two(pair, tools, guest, flavor, on):
    """Flow control needs both nodes. With both, no sender is too fast; with one, there is no flow
    control."""
    for name, m in zip("ab", pair):
        m.forget()
        if on in (name, "both"):
            turn_on(m)
    watches = [Watch(m, guest) for m in pair]
    ping(tools, pair[0], B)
    traffic(((pair[0], A), (pair[1], B)), tools, guest, flavor, slow=on == "both")
    for watch in watches:
        watch.check()
        if on == "both":
            assert watch.refused() == 0
    if on == "both":
        assert all(watch.throttled() > 0 for watch in watches), "the rings were deep enough"
    else:
        assert all(watch.throttled() == 0 for watch in watches)


@pytest.mark.long
@pytest.mark.pairs("rust-rust")
def test_idle_in_between(pair, tools, guest, flavor):
    """Receive rings that have grown shrink again, and no receive is lost."""
    for m in pair:
        m.forget()
        turn_on(m)
    watches = [Watch(m, guest) for m in pair]
    ends = (pair[0], A), (pair[1], B)
    for _ in range(2):
        exchange(tools, *ends, count=messages(flavor, 60), sockets=8, sizes="1..30000")
        for watch in watches:
            grown = counters(watch.node, guest)["ib_rx_ring_grown"]
            if grown > watch.counters["ib_rx_ring_grown"]:
                wait_for(watch.node, guest, lambda now, before=watch.counters:
                         now["ib_rx_ring_shrunk"] > before["ib_rx_ring_shrunk"])
    for watch in watches:
        watch.check()
        assert watch.refused() == 0


@pytest.mark.long
@pytest.mark.pairs("rust-c")
@pytest.mark.parametrize("rust, c, first", [
    (1, 1, "rust"), *(pytest.param(*x, marks=pytest.mark.long("release", "debug"))
                      for x in ((1, 0, "rust"), (0, 1, "c")))])
def test_c(pair, tools, guest, flavor, rust, c, first):
    """C RDS offers no credits, whichever side connects. If C RDS accepts with its own flow control
    on, it still obeys the credits that this module offers. It would wait forever if this module
    sent no more."""
    a, b = pair
    ends = list(zip(pair, new_addresses(guest, pair)))
    (_, here), (_, there) = ends
    with ExitStack() as settings:
        for m, on in zip(pair, (rust, c)):
            settings.enter_context(setting("ib/flow_control", on, m))
        mark = b.mark("connecting")
        watch = Watch(a, guest)
        ping(tools, *((a, there, here) if first == "rust" else (b, here, there)))
        traffic(ends, tools, guest, flavor, slow=rust and c)
    watch.check()
    assert watch.throttled() == 0
    # On a busy machine the connection may have come up again, from the side that had to send.
    connected = [x for x in b.log(mark) if "conn connected" in x and here in x]
    assert ("flow control" in connected[0]) == bool(rust and c and first == "rust"), connected


def test_without_memory(node, tools, guest, load):
    """Unread messages take all memory. Senders wait because they have no credits, no frame is
    refused, and all continues when the receiver reads."""
    load("pool_limit_mib=2")
    turn_on(node)
    # A connection may come up only when there is memory. Its first message is not delivered to
    # receivers that start late.
    ping(tools, node, PAIR[1], source=PAIR[0])
    watch, count = Watch(node, guest), 300
    send, recv = late_reader(guest, node, count, 8000, PAIR)
    wait_for(node, guest, lambda now: now["ib_rx_ring_empty"] > watch.counters["ib_rx_ring_empty"])
    assert "sent" not in send.out, "the sender was to wait"
    read_late(send, recv, count)
    watch.check()
    assert watch.throttled() > 0
    assert watch.refused() == 0
    exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=100, sizes="1..100")
