# SPDX-License-Identifier: GPL-2.0
"""Two nodes over soft-RoCE and soft-iWARP: rds_rust with itself and with C RDS, in both roles."""

import errno
import json
import time
from contextlib import contextmanager

import pytest
from rdsvm.cluster import must, wire_address, wire_address6
from slow_reader import run_slow_reader
from tracing import traced
from traffic import (connection, counters, exchange, first_log, forget_each_other,
                     let_packets_pass, losing, messages, new_addresses, ping, ports, read_late,
                     silence_limit, slow_down, there_and_back, unchanged, under_load, wait_for,
                     wait_for_state, with_addresses)

A, B = wire_address(0, 1), wire_address(0, 2)
A6, B6 = wire_address6(0, 1), wire_address6(0, 2)


def lost_by_either(pair, marks):
    """Waits until the connection is lost. Who has nothing on its way does not notice that."""
    # The words of both implementations.
    first_log(pair, r": disconnected|disconnecting and reconnecting", marks, timeout=120)


@pytest.mark.on_siw
@pytest.mark.parametrize("version", (4, 6))
def test_ping_both_ways(pair, tools, version):
    a, b = pair
    ping(tools, a, B if version == 4 else B6)
    ping(tools, b, A if version == 4 else A6)


@pytest.mark.on_siw
@pytest.mark.pairs("rust-rust")
def test_link_local(pair, guest):
    """From and to link-local addresses, and between those and others."""
    netdevs = [m.netdevs[0] for m in pair]
    addresses = ("fe80::771", "fe80::772")
    with with_addresses(*zip(pair, netdevs, addresses)):
        for ends in (addresses, (A6, addresses[1]), (addresses[0], B6)):
            there_and_back(guest, *zip(pair, netdevs, ends))


@pytest.mark.parametrize("first", (*(pytest.param(x, marks=pytest.mark.long) for x in "ab"), "both"))
def test_first_to_connect(pair, tools, guest, first):
    """A connection that there was not yet: whoever asks for it, all pings are answered."""
    ends = list(zip(pair, new_addresses(guest, pair)))
    ways = [way for name, way in (("a", ends), ("b", ends[::-1])) if first in (name, "both")]
    pings = [m.start([tools / "rds-ping", "-c", 3, "-i", "10ms", "-W", "60", "-I", own, peer])
             for (m, own), (_, peer) in ways]
    for p in pings:
        result = p.wait(240)
        assert result.status == 0, str(result)
    for (m, own), (_, peer) in (ends, ends[::-1]):
        ping(tools, m, peer, own)


# Two of C's that cross reject each other, and try again. The debug kernel may not ask within a second.
@pytest.mark.race
@pytest.mark.on_siw
@pytest.mark.flavors("release")
@pytest.mark.pairs("rust-rust")
def test_requests_cross(pair, tools, guest):
    """Both ask for a connection before either has heard of the other: one of the two comes up, and stays."""
    a, b = pair
    forget_each_other(tools, pair, B)
    ends = (a, A, B), (b, B, A)
    slow_down(*((m, m.netdevs[0]) for m in pair), delay="1s")
    try:
        pings = [m.start([tools / "rds-ping", "-c", "1", "-W", "60", "-I", own, peer]) for m, own, peer in ends]
        states = [wait_for_state(*end, "connecting", "accepting", "up") for end in ends]
    finally:
        # What is on its way still takes its time, and what follows does not.
        for m in pair:
            m.set_loss(0)
    assert states == ["connecting"] * 2, "the requests were to cross"
    for p in pings:
        p.wait(check=True)
    # What the counters say of it depends on whose message is first: `crossings` of test_rogue.py has each order.
    # A request that comes a second behind its withdrawal, which is not slow any more, is taken for that of a peer that
    # has restarted: the connection comes up twice then.
    deadline = time.monotonic() + 60
    while True:
        seen = [connection(*end) for end in ends]
        if [x["state"] for x in seen] == ["up"] * 2 and seen[0]["ups"] == seen[1]["ups"] in ("1", "2"):
            break
        assert time.monotonic() < deadline, seen
        time.sleep(0.01)


@contextmanager
def losing_confirmations(node, netdev):
    """RTUs that go out over RoCE v2 and IPv4 get lost for a while. Gives a function that says how many were."""
    # Offsets from the IP header: the BTH has a UD SEND, the MAD's class is that of the CM, its attribute is RTU.
    rtu = "match u8 0x64 0xff at 28 match u8 0x07 0xff at 49 match u16 0x0014 0xffff at 64"
    node.run(f"tc qdisc replace dev {netdev} root handle 1: prio bands 3 priomap {'0 ' * 16}"
             f"&& tc qdisc add dev {netdev} parent 1:3 handle 3: netem loss 100%"
             f"&& tc filter add dev {netdev} parent 1: protocol ip u32 match ip dport 4791 0xffff {rtu} flowid 1:3")

    def lost():
        found = json.loads(node.run(f"tc -s -j qdisc show dev {netdev}").out)
        return next(x["drops"] for x in found if x["kind"] == "netem")

    try:
        yield lost
    finally:
        node.run(f"tc qdisc del dev {netdev} root")


# iWARP has no confirmation but the first frame.
@pytest.mark.kinds("rxe")
@pytest.mark.pairs("rust-rust")
def test_unconfirmed(pair, tools):
    """The side that accepts takes the first frame for the confirmation that is lost. It stays up when that comes."""
    a, b = pair

    def until(condition):
        deadline = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.1)

    def confirmations():
        """How many came in."""
        return sum(map(int, b.run("cat /sys/class/infiniband/*/ports/1/cm_rx_msgs/rtu").out.split()))

    forget_each_other(tools, pair, B)
    before = confirmations()
    with losing_confirmations(a, a.netdevs[0]) as lost:
        ping(tools, a, B)
        ping(tools, b, A)
        assert connection(b, B, A)["state"] == "up" and confirmations() == before
        # The CM has asked again.
        until(lambda: lost() >= 2)
    until(lambda: confirmations() > before)
    ping(tools, b, A)
    ping(tools, a, B)
    seen = [connection(a, A, B), connection(b, B, A)]
    assert [(x["state"], x["ups"]) for x in seen] == [("up", "1")] * 2, seen


@pytest.mark.on_siw
def test_traffic(pair, tools, flavor):
    a, b = pair
    exchange(tools, (a, A), (b, B), count=messages(flavor, 1000))


@pytest.mark.pairs("rust-c")
def test_traffic_when_c_is_lower(pair, tools, guest):
    """Who is the lower node may ask for a connection at once."""
    a, b = pair
    for first, second in ((0, 1), (1, 0)):
        hosts = new_addresses(guest, pair, lower=1)
        ping(tools, pair[first], hosts[second], hosts[first])
        exchange(tools, *zip(pair, hosts), count=1000)


@pytest.mark.long
def test_traffic_v6(pair, tools, flavor):
    a, b = pair
    exchange(tools, (a, A6), (b, B6), count=messages(flavor, 200))


@pytest.mark.long
def test_fragment_boundaries(pair, tools, flavor):
    a, b = pair
    exchange(tools, (a, A), (b, B), count=messages(flavor, 128), sizes="boundary")


@pytest.mark.kept
def test_many_sockets(pair, tools, flavor):
    a, b = pair
    exchange(tools, (a, A), (b, B), count=messages(flavor, 100), sockets=8, sizes="0..20000")


@pytest.mark.parametrize("congested", ("a", pytest.param("b", marks=pytest.mark.long)))
def test_slow_reader(pair, guest, congested):
    ends = [(pair[0], A), (pair[1], B)]
    if congested == "a":
        ends.reverse()
    run_slow_reader(guest, *ends)


def test_loss(pair, tools, flavor):
    """One packet of a hundred is lost on each way, of some messages of 1 MiB and of thousands of small ones."""
    a, b = pair
    before = [m.lost() for m in pair]
    with losing(pair, 1):
        exchange(tools, (a, A), (b, B), count=messages(flavor, 300))
        exchange(tools, (a, A), (b, B), count=messages(flavor, 1000), sizes="0..5000")
    after = [m.lost() for m in pair]
    assert all(x < y for x, y in zip(before, after)), f"packets were to be lost: {before}, {after}"


@pytest.mark.kept
# On iWARP a cut wire ends no connection: TCP goes on trying for a quarter of an hour.
@pytest.mark.kinds("rxe")
@pytest.mark.parametrize("long", (False, pytest.param(True, marks=pytest.mark.long)), ids=("short", "long"))
def test_wire_cut(pair, tools, guest, flavor, long):
    """All packets get lost under load and neither node sees its carrier go: for a moment, and until
    a connection is given up."""
    a, b = pair
    before, count = sum(m.lost() for m in pair), messages(flavor, 1500)
    # All may have arrived before the wire is cut, and then the scenario is still to come.
    while sum(m.lost() for m in pair) == before:
        streams = under_load(tools, guest, (a, A), (b, B), a, count=count, sizes="1..8192")
        marks = [m.mark("the wire is cut") for m in pair]
        with losing(pair, 100):
            if long:
                lost_by_either(pair, marks)
            else:
                # That it is short is the scenario: nothing is waited for.
                a.run(["sleep", 0.3])
        streams.finish()
        count *= 2


# Soft-RoCE fails the queue pair of the CM for good when it has to send without a way out. C RDS sends while
# there is no carrier; this module tries not to, but on the debug kernel, which takes its time to notice, it
# was seen to happen, too. test_wire_cut is for all of them. The longer one ends before the CM repeats a request
# that it has sent before the driver noticed, which takes 4.8 s after the queue pairs gave up.
@pytest.mark.flavors("release")
@pytest.mark.pairs("rust-rust")
@pytest.mark.parametrize("side, seconds", (
    pytest.param("a", 0.3, id="a-short"), pytest.param("b", 2.5, id="b-long"),
    pytest.param("a", 2.5, id="a-long", marks=pytest.mark.long("release")),
    pytest.param("b", 0.3, id="b-short", marks=pytest.mark.long("release"))))
def test_link_down_and_up(pair, tools, guest, flavor, side, seconds):
    """The cable is pulled under load and put back: before the queue pairs give up, and after."""
    a, b = pair
    victim = pair["ab".index(side)]
    streams = under_load(tools, guest, (a, A), (b, B), victim, count=messages(flavor, 1500),
                         sizes="1..8192", timeout=100)
    marks = [m.mark("the cable is pulled") for m in pair]
    victim.set_link(False)
    # How long the cable is out is the scenario: nothing is waited for.
    victim.run(["sleep", seconds])
    victim.set_link(True)
    streams.finish()
    given_up = any(": disconnected" in x for m, mark in zip(pair, marks) for x in m.log(mark))
    # TCP does not give up so soon.
    assert given_up or seconds < 1 or a.kind == "siw", "the queue pairs were to give up"


# C RDS takes a new boot for that: test_peer_crashes.
@pytest.mark.on_c
@pytest.mark.pairs("rust-rust", "c-rust")
def test_peer_reloads_module(pair, tools, guest, flavor):
    """b starts anew under load: a's old connection to it gives way, and all goes well again."""
    a, b = pair
    streams = under_load(tools, guest, (a, A), (b, B), a, count=100000, sizes="1..8192")
    streams.ends[1].stop()
    b.forget()
    streams.ends[0].stop()
    with losing(pair, 1):  # so that b, whose sequence numbers are new, has to retransmit
        exchange(tools, (a, A), (b, B), count=messages(flavor, 300), sizes="1..8192")


@pytest.mark.on_c
def test_messages_go_on_when_a_peer_reloads(pair, guest, flavor):
    """a does not stop sending while b starts anew: whoever then has b's port gets all from the first
    message that comes, in order."""
    a, b = pair
    program, port, endless = guest / "late_reader.py", ports(), 1 << 30
    former = b.start(["python3", program, "some", B, port, endless])
    send = a.start(["python3", program, "send", A, port + 1, B, port, endless, 3000])
    let_packets_pass(guest, b, b.netdevs[0], 300)
    assert send.running() and former.running(), "the module was to go under load"
    former.stop()
    b.forget()
    assert send.running(), "the messages were to go on"
    present = b.start(["python3", program, "some", B, port, messages(flavor, 5000)])
    assert int(present.expect(r"^from (\d+)$", timeout=600)[1]) > 0
    present.wait(check=True)
    send.stop()


def test_a_question_needs_no_reader(pair, tools, guest):
    """What nobody reads is acknowledged when the sender asks for that, by C RDS as well, and nobody is given up."""
    a, b = pair
    if a.impl == "c":
        (a, there), (b, here) = (b, A), (a, B)
    else:
        here, there = A, B
    # What comes with a new connection would acknowledge them, and more would ask for that by themselves.
    ping(tools, a, there)
    count, size = 3, 100
    before, ups = counters(a, guest), connection(a, here, there)["ups"]
    program, port = guest / "late_reader.py", ports()
    recv = b.start(["python3", program, "recv", there, port, count, size])
    recv.expect("ready")
    with silence_limit(8, a):
        send = a.start(["python3", program, "send", here, port, there, port, count, size])
        send.expect(f"^sent {count}$")
        wait_for(a, guest, lambda now: now["conn_keepalive_sent"] > before["conn_keepalive_sent"])
        # Its answer covers the question.
        wait_for(a, guest, lambda _: connection(a, here, there)["unacked"] == "0")
        unchanged(before, counters(a, guest), "conn_keepalive_timeout")
        # Those of other tests may end meanwhile.
        assert connection(a, here, there)["ups"] == ups
    read_late(send, recv, count)


# On soft-RoCE the device gives up a peer that is not there.
@pytest.mark.kinds("siw")
@pytest.mark.on_siw("release")
def test_a_host_that_is_gone_is_given_up(pair, tools, guest):
    """TCP goes on trying for a quarter of an hour. What was sent arrives once when the host is back."""
    a, b = pair
    ping(tools, a, B)
    before, (count, size) = counters(a, guest), (10, 8000)
    program, port = guest / "late_reader.py", ports()
    recv = b.start(["python3", program, "recv", B, port, count, size])
    recv.expect("ready")
    with traced(a) as trace, silence_limit(8, a), losing(pair, 100):
        send = a.start(["python3", program, "send", A, port, B, port, count, size])
        send.expect(f"^sent {count}$")
        wait_for(a, guest, lambda now: now["conn_keepalive_timeout"] > before["conn_keepalive_timeout"]
                 and now["conn_reset"] > before["conn_reset"])
        assert f"error: <::ffff:{A},::ffff:{B},0> silence: {-errno.ETIMEDOUT}" in trace()
    read_late(send, recv, count)
    seen = counters(a, guest)
    assert (seen["conn_keepalive_sent"], seen["conn_keepalive_timeout"]) == (before["conn_keepalive_sent"] + 1, before["conn_keepalive_timeout"] + 1)


# C drops and acknowledges what comes for a socket that is not there yet, and takes a new boot.
@pytest.mark.on_siw
@pytest.mark.pairs("rust-rust")
def test_what_is_queued_survives_a_reload(pair, tools, guest):
    """What a sends while b has no RDS, and while no packet passes, arrives once and in order."""
    a, b = pair
    ping(tools, a, B)
    must(b.unload())
    # Less than a send buffer takes.
    count, size = 10, 8000
    program, port = guest / "late_reader.py", ports()
    with losing(pair, 100):
        send = a.start(["python3", program, "send", A, port, B, port, count, size])
        send.expect(f"^sent {count}$")
        must(b.load())
        recv = b.start(["python3", program, "recv", B, port, count, size])
        recv.expect("ready")
    read_late(send, recv, count)


def test_peer_crashes(pair, tools, guest, flavor):
    """b loses its power under load and comes back."""
    a, b = pair
    streams = under_load(tools, guest, (a, A), (b, B), a, count=100000, sizes="1..8192")
    b.restart()
    must(b.load())
    streams.ends[0].stop()
    exchange(tools, (a, A), (b, B), count=messages(flavor, 300), sizes="1..8192")


# The node that goes on is ours, as C drops and acknowledges what a rebooted peer retransmits. A cut wire
# ends no connection of iWARP.
@pytest.mark.kinds("rxe")
@pytest.mark.long
def test_crashed_peer_retransmits(pair, tools, guest, flavor):
    """A node loses its power under load and comes back, and its first connection after that breaks, too: nothing is
    lost or doubled. Messages that it has to send twice before one has arrived: test_restarts of test_rogue.py."""
    ends = [(pair[0], A), (pair[1], B)]
    if pair[0].impl == "rust":
        ends.reverse()
    (victim, _), (survivor, _) = ends
    streams = under_load(tools, guest, *ends, survivor, count=100000, sizes="1..8192")
    victim.restart()
    must(victim.load())
    streams.ends[1].stop()
    streams = under_load(tools, guest, *ends, survivor, count=messages(flavor, 2000),
                         sizes="1..8192")
    marks = [m.mark("the wire is cut") for m in pair]
    with losing(pair, 100):
        lost_by_either(pair, marks)
    streams.finish()


def conversation(a, b, guest):
    """Two programs that stay and send to each other when they are asked to, each with a port of this test."""
    port = ports()
    ends = [(a, A, port, B, port + 1), (b, B, port + 1, A, port)]
    both = [m.start(["python3", guest / "limits.py", "end", *rest, 0]) for m, *rest in ends]
    for process in both:
        process.expect("^ready$")
    return both


# Both start anew now and then. In test_limits the peer is this module.
@pytest.mark.pairs("rust-c")
@pytest.mark.parametrize("broken", (pytest.param(False, marks=pytest.mark.long("release")), True), ids=("calm", "broken"))
def test_idle_connections_of_c(pair, guest, broken):
    """A node that has as many connections as it may closes and forgets what it has with C RDS, which connects again at
    once. The sockets go on, and get each message once, also what a broken connection brings for the second time."""
    a, b = pair
    # Its other connections would take the room.
    b.forget()
    a.forget("max_conns=1", "idle_secs=2")
    a.write_file("/proc/sys/net/rds/keepalive_secs", "4")
    try:
        both, count = conversation(a, b, guest), 10
        for rounds in range(1, 5):
            before = counters(a, guest)
            marks = [m.mark("messages") for m in pair]
            cut = broken and rounds > 1
            if cut:
                wait_for_state(a, A, B, "up")
            with losing(pair, 100 if cut else 0):
                for process in both:
                    process.write(f"{count}\n")
                if cut:
                    lost_by_either(pair, marks)
            for process in both:
                process.expect(f"^all {count * rounds}$", timeout=300)
            seen = wait_for(a, guest, lambda now: now["conn_gc"] > before["conn_gc"])
            assert seen["conn_idle_closed"] > before["conn_idle_closed"]
        for process in both:
            process.write("", close=True)
            process.wait(check=True)
    finally:
        a.stop_all()
        a.forget()
