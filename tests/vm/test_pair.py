# SPDX-License-Identifier: GPL-2.0
"""Two nodes over soft-RoCE and soft-iWARP: rds_rust with itself and with C RDS, in both roles."""

import errno
from contextlib import contextmanager

import pytest
from rdsvm.cluster import must, wire_address, wire_address6
from slow_reader import run_slow_reader
from tracing import traced
from traffic import (connection, counters, exchange, first_log, forget_each_other,
                     let_packets_pass, lose_filtered, losing, messages, new_addresses, ping, ports,
                     read_late, silence_limit, slow_down, there_and_back, under_load, wait_for,
                     wait_for_state, wait_until, with_addresses)

A, B = wire_address(0, 1), wire_address(0, 2)
A6, B6 = wire_address6(0, 1), wire_address6(0, 2)


def lost_by_either(pair, marks):
    """Waits until either node has lost the connection. A node with nothing in flight does not
    notice the loss."""
    # The texts of both implementations.
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
    """Messages between link-local addresses, and between these and other addresses."""
    netdevs = [m.netdevs[0] for m in pair]
    addresses = ("fe80::771", "fe80::772")
    with with_addresses(*zip(pair, netdevs, addresses)):
        for ends in (addresses, (A6, addresses[1]), (addresses[0], B6)):
            there_and_back(guest, *zip(pair, netdevs, ends))


@pytest.mark.parametrize("first", (*(pytest.param(x, marks=pytest.mark.long) for x in "ab"), "both"))
def test_first_to_connect(pair, tools, guest, first):
    """A connection is new. All pings are answered, whichever node connects first."""
    ends = list(zip(pair, new_addresses(guest, pair)))
    ways = [way for name, way in (("a", ends), ("b", ends[::-1])) if first in (name, "both")]
    pings = [m.start([tools / "rds-ping", "-c", 3, "-i", "10ms", "-W", "60", "-I", own, peer])
             for (m, own), (_, peer) in ways]
    for p in pings:
        result = p.wait(240)
        assert result.status == 0, str(result)
    for (m, own), (_, peer) in (ends, ends[::-1]):
        ping(tools, m, peer, own)


# Crossing requests of two C nodes reject each other and are repeated. The debug kernel may take
# more than a second for a request.
@pytest.mark.race
@pytest.mark.on_siw
@pytest.mark.flavors("release")
@pytest.mark.pairs("rust-rust")
def test_requests_cross(pair, tools, guest):
    """Both nodes connect before either has the request of the other. One of the two connections
    comes up, and stays."""
    a, b = pair
    ends = (a, A, B), (b, B, A)
    # A node that pauses for a second gets the request of the other one first.
    for _ in range(5):
        forget_each_other(tools, pair, B)
        slow_down(*((m, m.netdevs[0]) for m in pair), delay="1s")
        try:
            pings = [m.start([tools / "rds-ping", "-c", "1", "-W", "60", "-I", own, peer]) for m, own, peer in ends]
            states = [wait_for_state(*end, "connecting", "accepting", "up") for end in ends]
        finally:
            # Packets in flight are still slow, later ones are not.
            for m in pair:
                m.set_loss(0)
        if states == ["connecting"] * 2:
            break
        for p in pings:
            p.wait(check=True)
    assert states == ["connecting"] * 2, "the requests were to cross"
    for p in pings:
        p.wait(check=True)
    # The counters depend on whose message is first: `crossings` of test_rogue.py has each order.
    # The withdrawal of a request is not slow any more, so the request may arrive a second after it.
    # The request is then taken for that of a restarted peer, and the connection comes up twice.
    def seen():
        return [connection(*end) for end in ends]

    def are_up(one, other):
        return one["state"] == other["state"] == "up" and one["ups"] == other["ups"] in ("1", "2")

    wait_until(lambda: are_up(*seen()), seen)


@contextmanager
def losing_confirmations(node, netdev):
    """Loses RTUs that go out over RoCE v2 and IPv4. Yields a function that returns the number of
    lost RTUs."""
    # Offsets from the IP header. The BTH has a UD SEND, the class of the MAD is that of the CM, and
    # its attribute is RTU.
    rtu = "match u8 0x64 0xff at 28 match u8 0x07 0xff at 49 match u16 0x0014 0xffff at 64"
    lost = lose_filtered(node, netdev, f"u32 match ip dport 4791 0xffff {rtu} flowid 1:3")
    try:
        yield lost
    finally:
        node.run(f"tc qdisc del dev {netdev} root")


# The only confirmation of iWARP is the first frame.
@pytest.mark.kinds("rxe")
@pytest.mark.pairs("rust-rust")
def test_unconfirmed(pair, tools):
    """The accepting side takes the first frame as the confirmation, which is lost. It stays up when
    the confirmation arrives."""
    a, b = pair

    def confirmations():
        """Returns the number of received confirmations."""
        return sum(map(int, b.run("cat /sys/class/infiniband/*/ports/1/cm_rx_msgs/rtu").out.split()))

    forget_each_other(tools, pair, B)
    before = confirmations()
    with losing_confirmations(a, a.netdevs[0]) as lost:
        ping(tools, a, B)
        ping(tools, b, A)
        assert connection(b, B, A)["state"] == "up" and confirmations() == before
        # The CM has repeated its reply.
        wait_until(lambda: lost() >= 2, lost, timeout=120)
    wait_until(lambda: confirmations() > before, timeout=120)
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
    """The lower node may connect at once."""
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
    """One packet of a hundred is lost in each direction, from some messages of 1 MiB and from
    thousands of small ones."""
    a, b = pair
    before = [m.lost() for m in pair]
    with losing(pair, 1):
        exchange(tools, (a, A), (b, B), count=messages(flavor, 300))
        exchange(tools, (a, A), (b, B), count=messages(flavor, 1000), sizes="0..5000")
    after = [m.lost() for m in pair]
    assert all(x < y for x, y in zip(before, after)), f"packets were to be lost: {before}, {after}"


# On iWARP a cut wire ends no connection: TCP retries for a quarter of an hour.
@pytest.mark.kinds("rxe")
@pytest.mark.parametrize("long", (False, pytest.param(True, marks=pytest.mark.long)), ids=("short", "long"))
def test_wire_cut(pair, tools, guest, flavor, long):
    """All packets are lost under load while both nodes keep their carriers. The loss is brief, or
    continues until a connection is given up."""
    a, b = pair
    before, count = sum(m.lost() for m in pair), messages(flavor, 1500)
    # All messages may have arrived before the wire is cut. Then the scenario has to be repeated.
    while sum(m.lost() for m in pair) == before:
        streams = under_load(tools, guest, (a, A), (b, B), a, count=count, sizes="1..8192")
        marks = [m.mark("the wire is cut") for m in pair]
        with losing(pair, 100):
            if long:
                lost_by_either(pair, marks)
            else:
                # The scenario is a short cut, so the test sleeps instead of waiting for an event.
                a.run(["sleep", 0.3])
        streams.finish()
        count *= 2


# Soft-RoCE permanently fails the CM's queue pair when it has to send without a route. C RDS sends
# while there is no carrier. This module avoids that, but it has happened on the debug kernel, which
# notices the carrier late. test_wire_cut covers all of them. The CM repeats a request from before
# the driver's notice 4.8 s after the queue pairs gave up. The longer outage ends before that.
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
    # The scenario is the duration, so the test sleeps instead of waiting for an event.
    victim.run(["sleep", seconds])
    victim.set_link(True)
    streams.finish()
    given_up = any(": disconnected" in x for m, mark in zip(pair, marks) for x in m.log(mark))
    # TCP does not give up so soon.
    assert given_up or seconds < 1 or a.kind == "siw", "the queue pairs were to give up"


# C RDS needs a new boot for this: test_peer_crashes.
@pytest.mark.on_c
@pytest.mark.pairs("rust-rust", "c-rust")
def test_peer_reloads_module(pair, tools, guest, flavor):
    """Node b reloads the module under load. The old connection of a gives way, and traffic works
    again."""
    a, b = pair
    streams = under_load(tools, guest, (a, A), (b, B), a, count=100000, sizes="1..8192")
    streams.ends[1].stop()
    b.forget()
    streams.ends[0].stop()
    with losing(pair, 1):  # makes b retransmit with its new sequence numbers
        exchange(tools, (a, A), (b, B), count=messages(flavor, 300), sizes="1..8192")


@pytest.mark.on_c
def test_messages_go_on_when_a_peer_reloads(pair, guest, flavor):
    """Node a keeps sending while b reloads. The next program at the port of b gets all messages
    after the first that arrives, in order."""
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


def test_a_keepalive_needs_no_reader(pair, tools, guest):
    """Unread messages are acknowledged when the sender requests it, by C RDS as well. No connection
    is given up."""
    a, b = pair
    if a.impl == "c":
        (a, there), (b, here) = (b, A), (a, B)
    else:
        here, there = A, B
    # Messages on a new connection would carry an acknowledgement, and more messages would request
    # one themselves.
    ping(tools, a, there)
    count, size = 3, 100
    before, ups = counters(a, guest), connection(a, here, there)["ups"]
    program, port = guest / "late_reader.py", ports()
    recv = b.start(["python3", program, "recv", there, port, count, size])
    recv.expect("ready")
    # A peer that pauses for some seconds is not given up.
    with silence_limit(16, a):
        send = a.start(["python3", program, "send", here, port, there, port, count, size])
        send.expect(f"^sent {count}$")
        wait_for(a, guest, lambda now: now["conn_keepalive_sent"] > before["conn_keepalive_sent"])
        # The peer's answer covers the keepalive.
        wait_for(a, guest, lambda _: connection(a, here, there)["unacked"] == "0")
        # Connections of other tests may end meanwhile, also because their peers are silent.
        seen = connection(a, here, there)
        assert (seen["state"], seen["ups"]) == ("up", ups), seen
    read_late(send, recv, count)


# On soft-RoCE the device gives up a missing peer.
@pytest.mark.kinds("siw")
@pytest.mark.on_siw("release")
def test_a_host_that_is_gone_is_given_up(pair, tools, guest):
    """A keepalive timeout ends a connection to a missing host, as TCP retries for a quarter of an
    hour. The messages arrive once when the host is back."""
    a, b = pair
    # The counters would include connections of earlier tests.
    for m in pair:
        m.forget()
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
        assert f"error: <::ffff:{A},::ffff:{B},0> keepalive timeout: {-errno.ETIMEDOUT}" in trace()
    read_late(send, recv, count)
    seen = counters(a, guest)
    assert (seen["conn_keepalive_sent"], seen["conn_keepalive_timeout"]) == (before["conn_keepalive_sent"] + 1, before["conn_keepalive_timeout"] + 1)


# C RDS drops and acknowledges messages for a socket that does not exist yet, and needs a new boot.
@pytest.mark.on_siw
@pytest.mark.pairs("rust-rust")
def test_queued_messages_survive_a_reload(pair, tools, guest):
    """Messages that a sends while b has no RDS and no packet passes arrive once and in order."""
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
    """Node b loses power under load and comes back."""
    a, b = pair
    streams = under_load(tools, guest, (a, A), (b, B), a, count=100000, sizes="1..8192")
    b.restart()
    must(b.load())
    streams.ends[0].stop()
    exchange(tools, (a, A), (b, B), count=messages(flavor, 300), sizes="1..8192")


# The surviving node runs this module, because C RDS drops and acknowledges retransmissions of a
# rebooted peer. On iWARP a cut wire ends no connection.
@pytest.mark.kinds("rxe")
@pytest.mark.long
def test_crashed_peer_retransmits(pair, tools, guest, flavor):
    """A node loses power under load and comes back, and its first connection after that also
    breaks. No message is lost or doubled. test_restarts of test_rogue.py covers messages that are
    sent twice before one has arrived."""
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
    """Starts two programs that stay and send to each other on request. Each has a port of this
    test."""
    port = ports()
    ends = [(a, A, port, B, port + 1), (b, B, port + 1, A, port)]
    both = [m.start(["python3", guest / "limits.py", "end", *rest, 0]) for m, *rest in ends]
    for process in both:
        process.expect("^ready$")
    return both


# Both ends start their numbers again now and then. In test_limits the peer is this module.
@pytest.mark.pairs("rust-c")
@pytest.mark.parametrize("broken", (pytest.param(False, marks=pytest.mark.long("release")), True), ids=("calm", "broken"))
def test_idle_connections_of_c(pair, guest, broken):
    """A node with as many connections as allowed closes and forgets one to C RDS, which reconnects
    at once. The sockets continue and get each message once. This includes messages that arrive
    twice because a connection broke."""
    a, b = pair
    # The other connections of b would take the room.
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
            process.finish()
    finally:
        a.stop_all()
        a.forget()
