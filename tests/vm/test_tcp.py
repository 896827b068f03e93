# SPDX-License-Identifier: GPL-2.0
"""RDS over TCP between two nodes, with itself and with C RDS.

The addresses are on a wire without RDMA devices, so that both implementations choose TCP for them.
"""

import json
from contextlib import contextmanager

import pytest
from rdsvm.cluster import wire_address
from tracing import parse, traced, ways
from traffic import (RDS_TCP_PORT, TCP_WIRE as WIRE, counters, exchange, lose_filtered, messages, ping, ports,
                     silence_limit, unchanged, under_load, wait_for, wait_for_state, wait_until)

pytestmark = pytest.mark.kinds("rxe")

# The node with the lower address connects.
LOWER = pytest.mark.parametrize("lower", (pytest.param(0, id="a-connects"),
                                         pytest.param(1, id="b-connects", marks=pytest.mark.long("debug"))))


def of_tcp(node, group, name):
    """Returns a counter of the network stack."""
    lines = [node.read_file(f"/proc/net/{x}").splitlines() for x in ("snmp", "netstat")]
    names, values = [x.split() for x in sum(lines, []) if x.startswith(f"{group}:")]
    return int(dict(zip(names, values))[name])


@LOWER
def test_ping_both_ways(pair, tools, tcp, lower):
    """Either node sends first: the one that connects, and the one that wakes it up."""
    hosts = tcp(lower)
    ends = list(zip(pair, hosts))
    for (m, own), (_, peer) in (ends, ends[::-1]):
        ping(tools, m, peer, own)


@LOWER
def test_the_node_that_does_not_connect_sends_first(pair, tools, tcp, lower):
    """Its connection only wakes the other node up, which then connects."""
    hosts = tcp(lower)
    ends = list(zip(pair, hosts))
    first, second = ends[1 - lower], ends[lower]
    ping(tools, first[0], second[1], first[1])


@LOWER
@pytest.mark.parametrize("sizes", ("mixed", pytest.param("boundary", marks=pytest.mark.long("release", "debug")),
                                   pytest.param("1..64", marks=pytest.mark.long("debug"))))
def test_streams(pair, tools, guest, flavor, tcp, lower, sizes):
    """Messages of 1 byte to 1 MiB in both directions at once arrive once and in order."""
    hosts = tcp(lower)
    before = [counters(m, guest) for m in pair]
    exchange(tools, *zip(pair, hosts), count=messages(flavor, 400), sizes=sizes, sockets=4)
    for m, old in zip(pair, before):
        now = counters(m, guest)
        rose = {x for x in now if now[x] > old[x]}
        # Short messages find room at once.
        waits = {"tcp_write_space_calls"} if sizes != "1..64" else set()
        assert {"tcp_data_ready_calls"} | waits <= rose
        if m.impl == "rust":
            unchanged(old, now, "ib_tx_packed", "ib_ack_sent", "ib_ack_send_piggybacked", "ib_ack_received")
            # No RDMA device has a connection, so all pools with memory are those of TCP.
            assert now["ib_pool_bytes"] > 0
            assert now["ib_rx_total_frags"] == -(-now["ib_pool_bytes"] // 16384)


@pytest.mark.pairs("rust-rust")
def test_traces(pair, tools, tcp):
    """Messages over TCP have the same tracepoints as over RDMA. Completions are of frames."""
    here, there = tcp(0)
    count, events = 4, ("queued", "posted", "acked", "received", "delivered", "read")
    with traced(pair[0], *(f"rds_msg_{x}" for x in events), "rds_send_completed", "rds_recv_completed") as trace:
        ping(tools, pair[0], there, here, count=count)
        lines = trace()
    near, far = f"::ffff:{here}", f"::ffff:{there}"
    found = ways(lines)
    assert {x.transport for x in found} == {"tcp"}, found
    sent = {x: steps for x, steps in found.items() if (x.source, x.destination) == (near, far) and x.dport == 0}
    answers = {x: steps for x, steps in found.items() if (x.source, x.destination) == (far, near)}
    # What TCP has acknowledged is only looked for with the next message.
    acked = [x for x in sent.values() if "acked" in x]
    assert len(sent) == count and acked, found
    assert all(sorted(x) == sorted(events[:3 if x in acked else 2]) for x in sent.values()), found
    assert len(answers) == count and all(sorted(x) == sorted(events[3:]) for x in answers.values()), found
    for event in ("send_completed", "recv_completed"):
        completed = [int(numbers[0]) for x in lines if
                     (numbers := parse(x, event, rf"<{near},{far},0> tcp completed (\d+) left \d+"))]
        # At least the map of congestion and the pings, or their answers.
        assert sum(completed) > count and 0 not in completed, (event, lines)


@pytest.mark.long
@pytest.mark.parametrize("victim", (0, pytest.param(1, marks=pytest.mark.long("release", "debug"))))
@LOWER
def test_resets_under_traffic(pair, tools, guest, flavor, tcp, lower, victim):
    """Connections that a node of ours resets lose and repeat nothing."""
    if pair[victim].impl == "c":
        victim = 1 - victim
    hosts = tcp(lower)
    before = counters(pair[victim], guest)["conn_reset"]
    streams = under_load(tools, guest, *zip(pair, hosts), node=pair[0], netdev=pair[0].netdevs[WIRE],
                         count=messages(flavor, 2000), sockets=4)
    pair[victim].run(["python3", guest / "reset_tcp.py", hosts[victim], hosts[1 - victim], 20, 0.1], timeout=120)
    streams.finish()
    assert counters(pair[victim], guest)["conn_reset"] > before


@pytest.mark.long("release", "debug")
@LOWER
def test_a_wire_that_is_cut(pair, tools, guest, tcp, lower):
    """One end of the wire is down for moments. TCP sends again."""
    hosts = tcp(lower)
    streams = under_load(tools, guest, *zip(pair, hosts), node=pair[0], netdev=pair[0].netdevs[WIRE], count=2000,
                         sockets=4)
    for _ in range(3):
        pair[1].run(f"ip link set {pair[1].netdevs[WIRE]} down; ip link set {pair[1].netdevs[WIRE]} up")
    streams.finish()


@pytest.mark.long
@pytest.mark.pairs("rust-rust")
def test_ports_are_shared(pair, tools, tcp):
    """Connections to two peers have the same local port, because there is only one."""
    hosts = tcp(0)
    (a, b), second = pair, f"{hosts[1].rpartition('.')[0]}.3"
    b.run(f"ip addr add {second}/24 dev {b.netdevs[WIRE]}")
    setting = "/proc/sys/net/ipv4/ip_local_port_range"
    usual = a.run(["cat", setting]).out
    a.write_file(setting, "33000 33007")
    try:
        for peer in (hosts[1], second):
            ping(tools, a, peer, hosts[0])
    finally:
        a.write_file(setting, usual)


IPV6 = {
    "global": ("2001:db8:70::1", "2001:db8:70::2"),
    "link-local": ("fe80::7:1", "fe80::7:2"),
    "link-local-of-one": ("2001:db8:70::1", "fe80::7:2"),
}


@pytest.mark.long
@pytest.mark.pairs("rust-rust")
@pytest.mark.parametrize("kind", IPV6)
def test_ipv6(pair, tools, tcp, kind):
    """Global and link-local addresses, also of the two ends of one connection."""
    tcp(0)
    (a, b), hosts = pair, IPV6[kind]
    for m, own, peer in zip(pair, hosts, hosts[::-1]):
        netdev = m.netdevs[WIRE]
        m.run(f"ip -6 addr replace {own}/64 dev {netdev} nodad; ip -6 route replace {peer}/128 dev {netdev}")
    for m, own, peer in ((a, *hosts), (b, *hosts[::-1])):
        own, peer = (f"{x}%{m.netdevs[WIRE]}" if x.startswith("fe80") else x for x in (own, peer))
        ping(tools, m, peer, own)


@contextmanager
def with_netem(pair, options):
    """Treats packets on the wire, both ways, with these options of netem."""
    for m in pair:
        m.run(f"tc qdisc replace dev {m.netdevs[WIRE]} root netem {options} limit 10000")
    try:
        yield
    finally:
        for m in pair:
            m.run(f"tc qdisc del dev {m.netdevs[WIRE]} root")


@pytest.mark.long("release", "debug")
@LOWER
def test_loss(pair, tools, tcp, lower):
    """The wire loses packets."""
    hosts = tcp(lower)
    with with_netem(pair, "loss 3% reorder 5% duplicate 1% delay 2ms"):
        exchange(tools, *zip(pair, hosts), count=200, sockets=2)


@pytest.mark.long("debug")
@pytest.mark.pairs("rust-rust")
def test_sizes_of_buffers(pair, tools, guest, tcp):
    """net.rds.tcp has the settings of C. TCP takes more of what a node sends while the wire is cut,
    and tells the peer of less room."""
    hosts = tcp(0)
    (a, own), (b, peer) = zip(pair, hosts)

    @contextmanager
    def sending(length):
        """Sends four messages of this length to nobody."""
        program = a.start(["python3", guest / "fill.py", own, peer, ports(), length, 4])
        yield
        program.finish(timeout=60)

    def taken(bound):
        """Returns how many bytes TCP takes while the wire is cut, once it has more than the
        bound."""
        ping(tools, a, peer, own)
        b.run(f"ip link set {b.netdevs[WIRE]} down")
        try:
            with sending(1 << 20):
                return wait_until(lambda: (found := queued(a)) > bound and found, lambda: queued(a))
        finally:
            b.run(f"ip link set {b.netdevs[WIRE]} up")

    def window():
        """Returns how many bytes the first node has room for, as it tells a listener in place of
        RDS."""
        b.forget()
        listener = b.start(["python3", guest / "tcp_window.py", peer, RDS_TCP_PORT])
        listener.expect("^ready$")
        with sending(1):
            return int(listener.expect(r"^window (\d+)$", timeout=60)[1])

    def measure(bound, **sizes):
        for m in pair:
            m.forget("tcp=1")
        for name, size in sizes.items():
            path = f"/proc/sys/net/rds/tcp/{name}"
            assert a.read_file(path).strip() == "0"
            a.write_file(path, str(size))
        return taken(bound), window()

    # Without acknowledgements TCP takes some 50 KiB with the buffer of its choice.
    usual = measure(1 << 15)
    other = measure(1 << 17, rds_tcp_sndbuf=1 << 20, rds_tcp_rcvbuf=4608)
    assert usual[0] < 1 << 17 and other[1] <= 4608 < usual[1], (usual, other)


def queued(node):
    """Returns the bytes of RDS that TCP has and the peer has not acknowledged, by /proc/net/tcp."""
    rows = [x.split() for x in node.run("cat /proc/net/tcp /proc/net/tcp6").out.splitlines() if ":" in x]
    return sum(int(x[4].partition(":")[0], 16) for x in rows
               if f"{RDS_TCP_PORT:04X}" in (x[1][-4:], x[2][-4:]) and x[3] == "01")


@LOWER
def test_sockets_table(pair, tools, tcp, lower):
    """RDS_INFO_TCP_SOCKETS, as on C: each end has the ports of the other one. When all is
    acknowledged nothing is left of the last message."""
    hosts = tcp(lower)
    size, ends = 5000, list(zip(pair, hosts))
    exchange(tools, *ends, count=20, sizes=f"{size}..{size}")

    def distance(end, begin):
        return (end - begin) % (1 << 32)

    def row(m, own):
        rows = json.loads(m.run([tools / "rds-info", "--json", "-T"]).out)["tcp"]
        return next((x for x in rows if x["local"] == own), None)

    def rest(m, own, peer):
        """Returns the row of a connection once it rests."""
        def rests(seen):
            return seen and not 0 < distance(seen["expected_una"], seen["seen_una"]) < 1 << 31

        seen = wait_until(lambda: rests(now := row(m, own)) and now, lambda: row(m, own))
        assert seen["peer"] == peer and seen["tos"] == 0
        assert (seen["header_remaining"], seen["data_remaining"]) == (48, 0)
        return seen

    first, second = (rest(m, own, peer) for (m, own), peer in zip(ends, hosts[::-1]))
    assert first["local_port"] == second["peer_port"] and first["peer_port"] == second["local_port"]
    assert RDS_TCP_PORT == (second if lower == 0 else first)["local_port"]
    for (m, _), seen in zip(ends, (first, second)):
        if m.impl == "rust":
            assert distance(seen["expected_una"], seen["sent_next"]) >= 48


@pytest.mark.long("debug")
@pytest.mark.parametrize("lower", (0, pytest.param(1, marks=pytest.mark.long("release", "debug"))))
def test_a_slow_wire(pair, tools, guest, tcp, lower):
    """TCP has no room for most of the messages. The work of the endpoint runs only for an event of
    its socket, and each run without room counts."""
    hosts = tcp(lower)
    before = [counters(m, guest) for m in pair]
    with with_netem(pair, "rate 20mbit delay 2ms"):
        # One message alone would fit into the stage of the endpoint.
        exchange(tools, *zip(pair, hosts), count=3, sizes="1048576..1048576", sockets=4)
    for m, old in zip(pair, before):
        now = counters(m, guest)
        assert now["tcp_sndbuf_full"] > old["tcp_sndbuf_full"]
        risen = {x: now[x] - old[x] for x in ("tcp_sndbuf_full", "tcp_data_ready_calls", "tcp_write_space_calls")}
        if m.impl == "rust":
            # Messages and acknowledgements cause a few runs, too.
            events = risen["tcp_data_ready_calls"] + risen["tcp_write_space_calls"]
            assert risen["tcp_sndbuf_full"] < 2 * events + 1000, risen


@pytest.mark.long
@pytest.mark.pairs("rust-rust")
def test_the_peer_connects_meanwhile(pair, tools, guest, tcp):
    """The connection that wakes a peer up does not get through, and the peer connects by itself."""
    hosts = tcp(0)
    a, b = pair
    before = counters(b, guest)["tcp_connect_raced"]
    lost = lose_filtered(b, b.netdevs[WIRE], f"u32 match ip dport {RDS_TCP_PORT} 0xffff flowid 1:3")
    try:
        waking = b.start([tools / "rds-ping", "-c", 1, "-W", "60", "-I", hosts[1], hosts[0]])
        wait_until(lost)
        ping(tools, a, hosts[1], hosts[0])
        waking.wait(60, check=True)
    finally:
        b.run(f"tc qdisc del dev {b.netdevs[WIRE]} root")
    assert counters(b, guest)["tcp_connect_raced"] > before


@pytest.mark.long("release", "debug")
@pytest.mark.pairs("rust-rust")
@LOWER
def test_one_side_restarts(pair, tools, tcp, lower):
    """A module that is loaded again begins anew, and its peer notices."""
    hosts = tcp(lower)
    ends = list(zip(pair, hosts))
    for restarted in range(2):
        exchange(tools, *ends, count=50)
        pair[restarted].forget("tcp=1")
        exchange(tools, *ends, count=50)


@pytest.mark.long("release", "debug")
@pytest.mark.pairs("rust-rust")
@LOWER
def test_unload_under_traffic(pair, tools, guest, flavor, tcp, lower):
    """A module is unloaded while messages are under way both ways."""
    hosts = tcp(lower)
    ends = list(zip(pair, hosts))
    for unloaded in range(2):
        under_load(tools, guest, *ends, node=pair[0], netdev=pair[0].netdevs[WIRE], count=messages(flavor, 2000),
                   sockets=4)
        # The module of a program cannot be unloaded. The peer goes on sending.
        pair[unloaded].stop_all()
        pair[unloaded].forget("tcp=1")
        pair[1 - unloaded].stop_all()
        exchange(tools, *ends, count=50)


@pytest.mark.long
@pytest.mark.pairs("rust-rust")
def test_selection(pair, guest, tcp):
    """The selection of a transport, and which one an address has."""
    host, peer = tcp(0)
    pair[0].run(["python3", guest / "transport.py", host, wire_address(0, 1), peer])


@pytest.mark.long
@pytest.mark.pairs("rust-rust")
def test_off_by_default(pair, guest):
    """Without the parameter nobody listens, and no program can select TCP."""
    assert f":{RDS_TCP_PORT:04X} " not in pair[0].run("cat /proc/net/tcp /proc/net/tcp6; true").out
    result = pair[0].run(["python3", "-c", "import sys; sys.path.insert(0, sys.argv[1])\n"
                          "from rds import *\nSock().setsockopt(SOL_RDS, SO_RDS_TRANSPORT, 2)", guest], check=False)
    assert "Errno 92" in result.err, str(result)


@pytest.mark.long
@pytest.mark.pairs("rust-rust")
def test_strangers(pair, tools, guest, tcp):
    """Connections without a header, with a bad one, and more of them than may wait, of one peer and
    of all. A peer connects meanwhile."""
    hosts = tcp(1)
    a, b = pair
    a.run(f"ip addr add 10.60.0.99/24 dev {a.netdevs[WIRE]}")
    several = [f"10.60.0.{x}" for x in range(1, 11)]
    for host in several:
        b.run(f"ip addr add {host}/24 dev {b.netdevs[WIRE]}")
    before = counters(a, guest)
    strangers = b.start(["python3", guest / "tcp_strangers.py", "10.60.0.99", RDS_TCP_PORT, *several])
    strangers.expect("^ready$")
    # One with a bad header, 4 of one host, and 7 of all.
    wait_for(a, guest, lambda now: now["tcp_listen_refused"] >= before["tcp_listen_refused"] + 12)
    ping(tools, b, hosts[0], hosts[1])
    strangers.write("\n")
    strangers.wait(60, check=True)
    wait_for(a, guest, lambda now: now["tcp_listen_closed_stale"] > before["tcp_listen_closed_stale"])


@pytest.mark.long("release", "debug")
@pytest.mark.pairs("rust-rust")
def test_messages_of_a_peer_without_room(pair, guest, tcp):
    """A node with as many connections as allowed refuses those that hold no message. What the TCP
    of a peer like C RDS has sent counts as delivered there, so it waits for room."""
    hosts = tcp(1)
    a, b = pair
    a.forget("tcp=1", "max_conns=1", "idle_secs=2")
    port = ports()
    nobody = f"{hosts[0].rpartition('.')[0]}.99"
    filling = a.start(["python3", guest / "to_one.py", hosts[0], nobody, port])
    filling.expect("^sent$")
    receiving = a.start(["python3", guest / "receive.py", hosts[0], port, "hello 1", "hello 2"])
    receiving.expect("^ready$")
    before = counters(a, guest)
    full = b.start(["python3", guest / "tcp_full.py", hosts[1], hosts[0], RDS_TCP_PORT, port])
    full.expect("^refused$", timeout=60)
    seen = counters(a, guest)
    assert seen["tcp_listen_refused"] == before["tcp_listen_refused"] + 3
    wait_for(a, guest, lambda now: now["conn_refused_limit"] >= before["conn_refused_limit"] + 3)
    filling.finish(timeout=60)
    receiving.wait(60, check=True)
    now = counters(a, guest)
    # The one that waits for room is refused once, and not each time that it is looked at.
    assert now["conn_refused_limit"] == before["conn_refused_limit"] + 3
    unchanged(before, now, "tcp_listen_lost")
    full.finish(timeout=60)


@pytest.mark.long("debug")
@pytest.mark.pairs("rust-rust")
def test_a_peer_that_has_room_does_not_wait(pair, tools, guest, tcp):
    """More sockets with messages wait for room than may wait for a header. A peer with a connection
    makes it again meanwhile. What one peer has too many of is lost, and counted."""
    hosts = tcp(1)
    a, b = pair
    a.forget("tcp=1", "max_conns=1")
    ping(tools, b, hosts[0], hosts[1])
    a.run(f"ip addr add 10.60.0.99/24 dev {a.netdevs[WIRE]}")
    several = [f"10.60.0.{x}" for x in range(1, 11)]
    for host in several:
        b.run(f"ip addr add {host}/24 dev {b.netdevs[WIRE]}")
    before = counters(a, guest)
    each, most = 9, 8
    waiting = b.start(["python3", guest / "tcp_parked.py", "10.60.0.99", RDS_TCP_PORT, each, *several])
    waiting.expect("^sent$")
    # The message of a socket may arrive only after that is refused.
    ended, too_many = ("tcp_listen_lost", "tcp_listen_refused"), len(several) * (each - most)
    wait_for(a, guest, lambda now: sum(now[x] - before[x] for x in ended) >= too_many)
    wait_for(a, guest, lambda now: now["conn_refused_limit"] >= before["conn_refused_limit"] + len(several))
    resets = counters(a, guest)["conn_reset"]
    b.run(["python3", guest / "reset_tcp.py", hosts[1], hosts[0], 1, 0])
    wait_for(a, guest, lambda now: now["conn_reset"] > resets)
    ping(tools, b, hosts[0], hosts[1])
    waiting.finish(timeout=60)
    now = counters(a, guest)
    assert sum(now[x] - before[x] for x in ended) == too_many


@pytest.mark.long("release", "debug")
@pytest.mark.pairs("rust-rust")
def test_strangers_leave_room(pair, tools, guest, tcp):
    """Hosts that only ask for a connection take half of the room at most."""
    hosts = tcp(0)
    a, b = pair
    a.forget("tcp=1", "max_conns=64")
    a.run(f"ip addr add 10.60.0.1/24 dev {a.netdevs[WIRE]}")
    several = [f"10.60.0.{x}" for x in range(100, 170)]
    for host in several:
        b.run(f"ip addr add {host}/24 dev {b.netdevs[WIRE]}")
    # Without RDS there, no attempt to connect succeeds.
    b.forget()
    before = counters(a, guest)
    b.run(["python3", guest / "tcp_parked.py", "10.60.0.1", RDS_TCP_PORT, 0, *several])
    wait_for(a, guest, lambda now: now["tcp_listen_woken"] == before["tcp_listen_woken"] + len(several))
    # 32 connections leave as many places.
    refused = len(several) - 32
    wait_for(a, guest, lambda now: now["conn_refused_limit"] == before["conn_refused_limit"] + refused)
    b.forget("tcp=1")
    ping(tools, a, hosts[1], hosts[0])


@pytest.mark.long("release", "debug")
@pytest.mark.pairs("rust-rust")
@pytest.mark.parametrize("count", (100, 20000))
def test_a_message_that_does_not_end(pair, guest, tcp, count):
    """A peer whose TCP answers stops within the first frame of a message, or a later one. It is
    given up, but not before a minute has gone."""
    hosts = tcp(1)
    a, b = pair
    b.forget()
    before = counters(a, guest)["conn_keepalive_timeout"]
    peer = b.start(["python3", guest / "tcp_half.py", hosts[1], hosts[0], RDS_TCP_PORT, count])
    # The guest's own clock: load makes the time only longer.
    assert float(peer.expect(r"^ended (\S+)\n", timeout=120)[1]) >= 60
    peer.wait(60, check=True)
    assert counters(a, guest)["conn_keepalive_timeout"] > before


@pytest.mark.long("release", "debug")
@pytest.mark.pairs("rust-rust")
def test_a_peer_without_room_is_not_given_up(pair, guest, tcp):
    """A peer that reads nothing for longer than `keepalive_secs`, but whose TCP answers."""
    hosts = tcp(0)
    a, b = pair
    b.forget()
    port = ports()
    before = counters(a, guest)
    peer = b.start(["python3", guest / "tcp_closed_window.py", hosts[1], RDS_TCP_PORT])
    peer.expect("^ready$")
    sending = a.start(["python3", guest / "fill.py", hosts[0], hosts[1], port, 1 << 20, 8])
    peer.expect("^connected$", timeout=60)
    wait_for(a, guest, lambda now: now["tcp_sndbuf_full"] > before["tcp_sndbuf_full"])
    with silence_limit(8, a):
        # TCP asks for room after 0.2 s, and each time after twice as long: for over 16 s.
        asked = of_tcp(a, "TcpExt", "TCPWinProbe")
        wait_until(lambda: of_tcp(a, "TcpExt", "TCPWinProbe") >= asked + 7, timeout=120)
        unchanged(before, counters(a, guest), "conn_reset", "conn_keepalive_timeout")
    peer.finish(timeout=60)
    sending.finish(timeout=60)


@pytest.mark.long("release", "debug")
@pytest.mark.pairs("rust-c", "rust-rust")
def test_a_message_that_waited_while_the_wire_was_cut(pair, guest, tcp):
    """Both nodes give the connection up. The one with the lower address has nothing to send, and
    the other one may not ask again. Its message arrives once the wire is whole."""
    lower = next(index for index, m in enumerate(pair) if m.impl == "rust")
    hosts = tcp(lower)
    ours, other = pair[lower], pair[1 - lower]
    own, peer = hosts[lower], hosts[1 - lower]
    port = ports()
    receiving = ours.start(["python3", guest / "receive.py", own, port, "x", "x"])
    receiving.expect("^ready$")
    sent = [other.start(["python3", guest / "to_one.py", peer, own, port])]
    wait_for_state(ours, own, peer, "up")
    before = counters(ours, guest)["conn_reset"]
    # What comes from the other end is lost, too: nothing answers.
    ours.run(f"ip link set {ours.netdevs[WIRE]} down")
    wait_for(ours, guest, lambda now: now["conn_reset"] > before)
    failed = of_tcp(other, "Tcp", "AttemptFails")
    sent += [other.start(["python3", guest / "to_one.py", peer, own, port])]
    sent[-1].expect("^sent$")
    # C gives its own attempt up meanwhile, and makes no other one.
    wait_until(lambda: of_tcp(other, "Tcp", "AttemptFails") > failed, timeout=120)
    ours.run(f"ip link set {ours.netdevs[WIRE]} up")
    receiving.wait(60, check=True)
    for program in sent:
        program.finish(timeout=60)


@pytest.mark.long
@pytest.mark.pairs("rust-rust")
def test_a_link_local_address_of_another_link(pair, guest, tcp):
    """An address of this node on one link is that of a peer on another one."""
    tcp(0)
    a, b = pair
    wire = a.netdevs[WIRE]
    a.run("ip link add other type dummy && ip link set other up && ip addr add fe80::77/64 dev other nodad"
          f" && ip addr add fd77::1/64 dev {wire} nodad")
    b.run(f"ip addr add fe80::77/64 dev {b.netdevs[WIRE]} nodad")
    try:
        before = counters(a, guest)
        a.run(["python3", guest / "send_scoped.py", "fd77::1", "fe80::77", wire, ports()])
        now = wait_for(a, guest, lambda now: now["conn_attempt_failed"] > before["conn_attempt_failed"]
                       or now["tcp_data_ready_calls"] > before["tcp_data_ready_calls"])
        unchanged(before, now, "recv_drop_no_sock")
    finally:
        a.run("ip link del other")


@pytest.mark.long("debug")
@pytest.mark.pairs("rust-rust")
def test_a_peer_that_asks_once(pair, guest, tcp):
    """A peer like C RDS asks for a connection once, and the first attempts to reach it fail."""
    hosts = tcp(0)
    a, b = pair
    b.forget()
    before = counters(a, guest)
    asking = b.start(["python3", guest / "tcp_wake.py", hosts[1], hosts[0], RDS_TCP_PORT])
    asking.expect("^asked$")
    now = wait_for(a, guest, lambda now: now["conn_attempt_failed"] > before["conn_attempt_failed"] + 1)
    assert now["tcp_listen_woken"] == before["tcp_listen_woken"] + 1
    asking.write("\n")
    asking.wait(60, check=True)


@pytest.mark.long("debug")
@pytest.mark.pairs("rust-rust")
def test_peers_that_offer_several_paths(pair, guest, tcp):
    """The answer to a probe of a multipath peer has the number of paths, which is one. From then on
    no connection of another path is taken for the first one."""
    hosts = tcp(1)
    a, b = pair
    before = counters(a, guest)
    probing = b.run(["python3", guest / "tcp_probe.py", hosts[1], hosts[0], RDS_TCP_PORT])
    probes, resets = map(int, probing.out.split())
    # A reset is counted after the peer may have noticed it.
    seen = wait_for(a, guest, lambda now: now["tcp_listen_no_path"] >= before["tcp_listen_no_path"] + resets)
    assert seen["tcp_listen_no_path"] == before["tcp_listen_no_path"] + resets
    unchanged(before, seen, "tcp_listen_lost")
    for name in "recv_ping", "send_pong":
        assert seen[name] == before[name] + probes
