# SPDX-License-Identifier: GPL-2.0
"""The settings in /proc/sys/net/rds: their ranges and their effects."""

import json
import re

import pytest
from probes import Probes
from rdsvm.cluster import PAIR
from test_debugfs import view
from traffic import counters, exchange, new_type, ping, wait_for

pytestmark = [pytest.mark.impls("rust"), pytest.mark.long]

A, B = PAIR
LOOP = "127.0.0.1"
HOUR_MS = 3_600_000
# Each setting's default, minimum and maximum. None: the default depends on the memory of the
# machine.
SETTINGS = {
    "reconnect_min_delay_ms": (1, 1, 1000), "reconnect_max_delay_ms": (1000, 1, HOUR_MS),
    "max_unacked_packets": (32, 0, 4096), "max_unacked_bytes": (16 << 20, 0, 0x7fffffff),
    "ping_enable": (1, 0, 1), "keepalive_secs": (30, 0, 3600),
    "ib.max_send_wr": (126, 16, 4096), "ib.max_recv_wr": (382, 16, 4096), "ib.min_recv_wr": (0, 0, 4096),
    "ib.max_unsignaled_wr": (16, 1, 64), "ib.max_recv_allocation": (None, 512, 0x7fffffff),
    "ib.flow_control": (0, 0, 1), "ib.completion_timeout_secs": (120, 0, 3600),
}


class Sysctl:
    def __init__(self, node, guest):
        self.node, self.guest, self.before = node, guest, {}

    def ask(self, *what):
        """Returns the answers of guest/settings.py."""
        result = self.node.run(["python3", self.guest / "settings.py", *what], check=True)
        return json.loads(result.out)

    def set(self, **values):
        for name, value in values.items():
            name = name.replace("ib_", "ib.", 1)
            before, taken, now = self.ask(name, f"{name}={value}", name)
            self.before.setdefault(name, before)
            assert (taken, now) == (True, value), name


@pytest.fixture
def sysctl(node, guest):
    settings = Sysctl(node, guest)
    yield settings
    # The order is reversed, because a setting may limit an earlier one.
    settings.ask(*(f"{name}={value}" for name, value in reversed(settings.before.items())))


def since(node, guest, before):
    return {name: value - before[name] for name, value in counters(node, guest).items()}


@pytest.mark.short
def test_ranges(node, sysctl):
    tries = {name: (low - 1, low, high, high + 1) for name, (_, low, high) in SETTINGS.items()}
    first = sysctl.ask(*SETTINGS)
    taken = [sysctl.ask(*(f"{name}={x}" for x in (*tries[name], usual)), name)
             for name, usual in zip(SETTINGS, first)]
    # A quarter of the memory, in units of 4 KiB.
    quarter = int(node.run("awk '/^MemTotal:/ {print int($2 / 16)}' /proc/meminfo").out)
    usual = {name: quarter if x is None else x for name, (x, _, _) in SETTINGS.items()}
    assert dict(zip(SETTINGS, first)) == usual
    assert dict(zip(SETTINGS, taken)) == {name: [False, True, True, False, True, x] for name, x in usual.items()}


def test_delays_limit_each_other(sysctl):
    sysctl.set(reconnect_max_delay_ms=500, reconnect_min_delay_ms=400)
    assert sysctl.ask("reconnect_min_delay_ms=501", "reconnect_max_delay_ms=399") == [False, False]


def test_settings_of_other_namespaces(node):
    """A namespace has those of connections, not those of devices or of TCP."""
    node.run("ip netns add other")
    try:
        found = set(node.run("ip netns exec other ls /proc/sys/net/rds").out.split())
        assert found == {x for x in SETTINGS if "." not in x}
    finally:
        node.run("ip netns del other")


def test_ping_enable(node, tools, guest, sysctl):
    # Grown rings of earlier connections would send probes, which are pings, too.
    node.forget()
    ends = ((LOOP, LOOP), (A, B))
    for source, target in ends:
        ping(tools, node, target, source)
    sysctl.set(ping_enable=0)
    before = counters(node, guest)
    for source, target in ends:
        result = node.run([tools / "rds-ping", "-I", source, "-c", 2, "-i", "10ms", "-W", 1, target],
                          check=False, timeout=60)
        assert "2 sent, 0 received" in result.out, str(result)
    seen = since(node, guest, before)
    assert (seen["recv_ping"], seen["send_pong"], seen["recv_drop_no_sock"]) == (0, 0, 4), seen
    sysctl.set(ping_enable=1)
    for source, target in ends:
        ping(tools, node, target, source)


def test_unacked(node, guest, sysctl):
    """A setting takes effect after the next message that requests an acknowledgement."""
    node.forget()

    def asked(count, size=100):
        """Returns how many of `count` messages requested an acknowledgement."""
        return int(node.run(["python3", guest / "one_by_one.py", A, B, count, size]).out)

    # The 33rd message requests one, after 32 without.
    assert asked(33) == 1
    sysctl.set(max_unacked_packets=0)
    assert (asked(33), asked(10)) == (1, 10)
    sysctl.set(max_unacked_packets=4)
    assert (asked(1), asked(10)) == (1, 2)
    sysctl.set(max_unacked_packets=32, max_unacked_bytes=99)
    assert (asked(5), asked(10), asked(30, 10)) == (1, 10, 3)


def test_reconnect_delays(node, guest, sysctl):
    """The peer's address does not exist. After each attempt the timer is set to at least half of
    the delay, and at most all of it."""
    hz = int(re.search(r"^CONFIG_HZ=(\d+)$", (node.kernel / ".config").read_text(), re.M)[1])

    def check(milliseconds, attempts):
        sysctl.set(reconnect_max_delay_ms=HOUR_MS)
        sysctl.set(reconnect_min_delay_ms=milliseconds)
        sysctl.set(reconnect_max_delay_ms=milliseconds)
        with Probes(node, "rds_rust_arm_delayed_work jiffies=%dx:u64") as probes:
            def backoffs():
                timers = [int(told.partition("=")[2]) * 1000 / hz for _, told in probes.calls()]
                # A tick may be added.
                return [x for x in timers if milliseconds / 2 <= x <= milliseconds + 1000 / hz]

            before = counters(node, guest)["conn_attempt_failed"]
            program = node.start(["python3", guest / "limits.py", "strangers", A, 1])
            program.expect('^{"ok": 1}$')
            wait_for(node, guest, lambda now: len(backoffs()) >= attempts
                     and now["conn_attempt_failed"] >= before + attempts)
        program.finish()

    check(600, 3)
    check(60_000, 1)


def depths(node, guest, tos):
    """Returns (sends, receives) for which the connections with a type of service have room."""
    program = ("import info; print(__import__('json').dumps([row[4:6] for row in "
               f"info.rows(info.RDMA, False) if row[9] == {tos}]))")
    found = json.loads(node.run(["env", f"PYTHONPATH={guest}", "python3", "-c", program]).out)
    assert len(found) == 2
    return {tuple(x) for x in found}


def test_limit_of_pools(node, tools, guest, sysctl):
    """A change of the limit applies at once to existing pools, when it is lowered and when it is
    raised."""
    sysctl.set(ib_max_recv_allocation=512)
    filler = node.start(["python3", guest / "fill_pool.py", A, "10.9.0.77"])
    filler.expect("^full")
    pools = view(node, "pools")
    assert {x["limit"] for x in pools.values()} == {str(2 << 20)}
    assert (2 << 20) - (64 << 10) < int(pools["rdsx0 send-208"]["bytes"]) <= 2 << 20, pools
    # The ping below needs some of these buffers.
    sysctl.set(ib_max_recv_allocation=1024)
    ping(tools, node, B, A)
    filler.write("enough\n")
    filler.wait(check=True)


@pytest.mark.short
def test_work_requests(node, tools, guest, sysctl):
    """New connections use the latest value, within the limits of the device."""
    usual, small, large = new_type(), new_type(), new_type()
    ping(tools, node, B, A, tos=usual)
    sysctl.set(ib_max_send_wr=40, ib_max_recv_wr=100)
    ping(tools, node, B, A, tos=small)
    exchange(tools, (node, A), (node, B), count=300, tos=small)
    assert depths(node, guest, small) == {(40, 100)}
    sysctl.set(ib_max_send_wr=4096, ib_max_recv_wr=4096)
    ping(tools, node, B, A, tos=large)
    (sends, receives), = depths(node, guest, large)
    assert 126 < sends <= 4096 and 382 < receives <= 4096
    assert depths(node, guest, usual) == {(126, 382)}, "a connection that was there has changed"


def test_unsignaled(node, tools, guest, sysctl):
    def reports():
        before, tos = counters(node, guest), new_type()
        exchange(tools, (node, A), (node, B), count=300, sizes="4000", tos=tos)
        seen = since(node, guest, before)
        return seen["ib_tx_cq_event"] / seen["ib_rx_cq_event"]

    # Frames of other connections may be included. On iWARP every send is signalled, because TCP may
    # still use the pages of an unsignalled one.
    seen = reports()
    assert seen > 0.6 if node.kind == "siw" else seen < 0.3
    sysctl.set(ib_max_unsignaled_wr=1)
    assert reports() > 0.6
