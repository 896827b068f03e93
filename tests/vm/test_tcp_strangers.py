# SPDX-License-Identifier: GPL-2.0
"""Hosts that connect over TCP without need, beside peers with messages."""

import pytest
from traffic import RDS_TCP_PORT, TCP_WIRE as WIRE, counters, lose_filtered, ping, wait_for

pytestmark = [pytest.mark.kinds("rxe"), pytest.mark.pairs("rust-rust")]

# Address of the node, and addresses of others, which are higher. So the node connects to them.
NODE = "10.60.0.1"


def with_strangers(pair, count):
    """Gives the second machine addresses of this many hosts, and returns them."""
    a, b = pair
    a.run(f"ip addr add {NODE}/24 dev {a.netdevs[WIRE]}")
    hosts = [f"10.60.0.{x}" for x in range(50, 50 + count)]
    for host in hosts:
        b.run(f"ip addr add {host}/24 dev {b.netdevs[WIRE]}")
    return hosts


def near_limit(pair, tcp, idle_secs):
    """Returns as many hosts as there may be connections of node a. They have no RDS."""
    tcp(0)
    a, b = pair
    a.forget("tcp=1", "max_conns=16", f"idle_secs={idle_secs}")
    several = with_strangers(pair, 16)
    b.forget()
    return several


@pytest.mark.long("release", "debug")
def test_silent_strangers_leave_room(pair, tools, guest, tcp):
    """Hosts that accept a connection and send nothing take half of the room at most."""
    hosts = tcp(0)
    a, b = pair
    a.forget("tcp=1", "max_conns=64")
    several = with_strangers(pair, 70)
    # Their own listener takes the place of RDS.
    b.forget()
    before = counters(a, guest)
    silent = b.start(["python3", guest / "tcp_silent.py", NODE, RDS_TCP_PORT, 32, *several])
    silent.expect("^up$", timeout=60)
    now = wait_for(a, guest, lambda now: now["tcp_listen_woken"] == before["tcp_listen_woken"] + len(several))
    assert now["conn_refused_limit"] == before["conn_refused_limit"] + len(several) - 32
    silent.finish(timeout=60)
    b.forget("tcp=1")
    ping(tools, a, hosts[1], hosts[0])


@pytest.mark.long("release", "debug")
def test_strangers_do_not_delay_a_peer(pair, guest, tcp):
    """Hosts that ask for connections and never answer have all places for attempts. A peer that has
    sent a message before is found again all the same, though it does not ask."""
    hosts = tcp(0)
    a, b = pair
    several = with_strangers(pair, 150)
    # The peer is a program, and so is each host.
    b.forget()
    before = counters(a, guest)
    lose_filtered(b, b.netdevs[WIRE], f"u32 match ip src 10.60.0.0/24 match ip sport {RDS_TCP_PORT} 0xffff"
                  " flowid 1:3")
    try:
        poking = b.start(["python3", guest / "tcp_poke.py", NODE, RDS_TCP_PORT, *several])
        # Each attempt lasts for 5 s.
        wait_for(a, guest, lambda now: now["conn_attempt_failed"] >= before["conn_attempt_failed"] + 130)
        known = b.start(["python3", guest / "tcp_known.py", hosts[1], hosts[0], RDS_TCP_PORT])
        known.expect("^gone$", timeout=60)
        now = counters(a, guest)
        wait_for(a, guest, lambda later: later["conn_attempt_failed"] >= now["conn_attempt_failed"] + 130)
        known.write("\n")
        known.expect("^back$", timeout=30)
        known.wait(60, check=True)
        poking.finish(timeout=60)
    finally:
        b.run(f"tc qdisc del dev {b.netdevs[WIRE]} root")


@pytest.mark.long("release", "debug")
def test_a_silent_stranger_is_given_up(pair, guest, tcp):
    """A host accepts a connection and sends nothing. The node ends it, but not before a minute has
    gone."""
    tcp(0)
    a, b = pair
    several = with_strangers(pair, 1)
    b.forget()
    before = counters(a, guest)["conn_keepalive_timeout"]
    silent = b.start(["python3", guest / "tcp_silent.py", NODE, RDS_TCP_PORT, 1, *several])
    silent.expect("^up$", timeout=60)
    silent.write("\n")
    # The guest's own clock: load makes the time only longer.
    assert float(silent.expect(r"^ended (\S+)\n", timeout=120)[1]) >= 60
    assert counters(a, guest)["conn_keepalive_timeout"] > before
    silent.finish(timeout=60)


@pytest.mark.long("release", "debug")
def test_silent_strangers_are_forgotten(pair, guest, tcp):
    """A limit is near, so hosts that send nothing are forgotten, though each accepts a connection a
    minute."""
    a, b = pair
    several = near_limit(pair, tcp, idle_secs=70)
    before = counters(a, guest)
    silent = b.start(["python3", guest / "tcp_silent.py", NODE, RDS_TCP_PORT, 14, *several])
    silent.expect("^up$", timeout=60)
    now = wait_for(a, guest, lambda now: now["conn_gc"] > before["conn_gc"])
    assert now["conn_keepalive_timeout"] > before["conn_keepalive_timeout"]
    # All hosts could be reached.
    assert now["conn_attempt_failed"] == before["conn_attempt_failed"]
    silent.finish()


@pytest.mark.long("release", "debug")
def test_a_forgotten_request_is_counted(pair, guest, tcp):
    """A limit is near, so hosts that asked for a connection and cannot be reached are forgotten."""
    a, b = pair
    # Nobody listens there.
    several = near_limit(pair, tcp, idle_secs=2)
    before = counters(a, guest)
    b.run(["python3", guest / "tcp_parked.py", NODE, RDS_TCP_PORT, 0, *several])
    now = wait_for(a, guest, lambda now: now["tcp_listen_lost"] >= before["tcp_listen_lost"] + 2)
    assert now["conn_gc"] > before["conn_gc"]
