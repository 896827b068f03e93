# SPDX-License-Identifier: GPL-2.0
"""Several paths over TCP (mprds) between two nodes."""

import json

import pytest
from traffic import (RDS_TCP_PORT, TCP_WIRE as WIRE, counters, exchange, lose_filtered, messages, path_traffic, ping,
                     ports, setting, unchanged, under_load, wait_for, wait_until)

pytestmark = pytest.mark.kinds("rxe")

OURS = pytest.mark.pairs("rust-rust")
SETTING = "/proc/sys/net/rds/tcp/max_paths"
MOST = 8

# The node with the lower address connects.
LOWER = pytest.mark.parametrize("lower", (pytest.param(0, id="a-connects"),
                                          pytest.param(1, id="b-connects", marks=pytest.mark.long("debug"))))


def restart(m, most=MOST):
    m.forget("tcp=1")
    m.write_file(SETTING, str(most))


@pytest.fixture
def paths(pair, tools, tcp):
    """Returns a function that gives both nodes addresses and up to 8 paths.

    It waits until these are negotiated."""
    def start(lower):
        hosts = tcp(lower)
        for m in pair:
            if m.impl == "rust":
                restart(m)
        ping(tools, pair[0], hosts[1], hosts[0])
        negotiated(pair, hosts)
        return hosts

    return start


def lines(m, own, peer):
    """Returns the fields in debugfs of the paths between two addresses, by index."""
    start, found = f"{own} -> {peer}", {}
    for line in m.read_file("/sys/kernel/debug/rds/connections").splitlines():
        name, _, rest = line.partition(": ")
        if name.startswith(start):
            _, _, index = name.partition(" path ")
            found[int(index or 0)] = dict(x.split("=") for x in rest.split())
    return found


def negotiated(pair, hosts, count=MOST):
    """Waits until our nodes have all paths."""
    for m, own, peer in zip(pair, hosts, hosts[::-1]):
        if m.impl == "rust":
            wait_until(lambda m=m, own=own, peer=peer: len(lines(m, own, peer)) == count)


def links(tools, m, own):
    """Returns the ports of the node that connects, by the index of the path. Each path has a TCP
    connection of its own."""
    rows = [x for x in json.loads(m.run([tools / "rds-info", "--json", "-T"]).out)["tcp"] if x["local"] == own]
    found = [max(x["local_port"], x["peer_port"]) for x in rows]
    assert len({x % MOST for x in found}) == len(found), found
    return {x % MOST: x for x in found}


@LOWER
def test_sockets_use_several_paths(pair, tools, flavor, paths, lower):
    """Messages of several sockets take several TCP connections, and arrive once and in order."""
    hosts = paths(lower)
    exchange(tools, *zip(pair, hosts), count=messages(flavor, 400), sizes="mixed", sockets=16)
    for m, own in zip(pair, hosts):
        assert len(links(tools, m, own)) > 2


@OURS
def test_tables(pair, tools, paths):
    """The table of connections has one row for all paths, that of paths one for each."""
    hosts = paths(0)
    for m, own in zip(pair, hosts):
        tables = json.loads(m.run([tools / "rds-info", "--json", "-n", "-p"]).out)
        assert [len([x for x in tables[name] if x["local"] == own]) for name in ("connections", "paths")] == [1, MOST]
        # Each path has its number, and debugfs has the CPU of its packets. Paths without messages
        # are not connected.
        rows = {path["index"]: path for x in tables["paths"] if x["local"] == own for path in x["paths"]}
        assert sorted(rows) == list(range(MOST)) and rows[0]["connected"], rows
        shown = lines(m, own, hosts[m is pair[0]])
        assert sorted(shown) == list(range(MOST)) and int(shown[0]["cpu"]) in range(int(m.run("nproc").out)), shown


@OURS
def test_traffic_of_each_path(pair, tools, paths):
    """rds-info -p has the messages, payload and CPU of each path, as debugfs has. Together they are
    those that were exchanged."""
    hosts = paths(0)
    exchange(tools, *zip(pair, hosts), count=messages("release", 400), sizes="100", sockets=16)

    def seen(m, own, peer):
        rows = json.loads(m.run([tools / "rds-info", "--json", "-p"]).out)["paths"]
        table = {path["index"]: path["traffic"] for x in rows if x["local"] == own for path in x["paths"]}
        return table, {index: path_traffic(words) for index, words in lines(m, own, peer).items()}

    ends = [(m, *at) for m, at in zip(pair, (hosts, hosts[::-1]))]
    # An acknowledgement may arrive between the two.
    wait_until(lambda: all(one == other for one, other in (seen(*x) for x in ends)), lambda: [seen(*x) for x in ends])
    one, _ = seen(*ends[0])
    busy = [k for k, x in one.items() if x["send_bytes"]]
    assert len(busy) > 2 and all(one[k]["cpu"] is not None for k in busy), one
    wait_until(lambda: [x["send_bytes"] for _, x in sorted(seen(*ends[0])[0].items())] ==
               [x["recv_bytes"] for _, x in sorted(seen(*ends[1])[0].items())],
               lambda: [seen(*x) for x in ends])
    assert f"send_bytes={one[busy[0]]['send_bytes']}, recv_bytes=" in pair[0].run([tools / "rds-info", "-pv"]).out


@OURS
@LOWER
def test_one_path_is_cut(pair, tools, guest, flavor, paths, lower):
    """Only a path whose packets are lost is connected again. The messages on it are not lost."""
    hosts = paths(lower)
    ends = list(zip(pair, hosts))

    def ups():
        return [{k: int(x["ups"]) for k, x in lines(m, *at).items()} for m, at in zip(pair, (hosts, hosts[::-1]))]

    # A busy machine takes seconds to answer on the other paths.
    with setting("keepalive_secs", 6 if flavor == "release" else 15, *pair):
        exchange(tools, *ends, count=20, sockets=16)
        index, port = max(links(tools, *ends[0]).items())
        assert index > 0
        before, way = ups(), "sport" if lower == 0 else "dport"
        streams = under_load(tools, guest, *ends, node=pair[1], netdev=pair[1].netdevs[WIRE],
                             count=messages(flavor, 500), sockets=16)
        lost = lose_filtered(pair[0], pair[0].netdevs[WIRE], f"u32 match ip {way} {port} 0xffff flowid 1:3")
        try:
            # Up to three times that until the path is given up, and then it connects again.
            wait_until(lambda: ups()[0][index] > before[0][index], ups, timeout=180)
            assert lost()
        finally:
            pair[0].run(f"tc qdisc del dev {pair[0].netdevs[WIRE]} root")
        streams.finish()
    for old, now in zip(before, ups()):
        assert now.pop(index) > old.pop(index)
        assert now == old


@OURS
@LOWER
def test_a_ping_overtakes_the_map(pair, tools, guest, paths, lower):
    """A program that has emptied its port gets a pong, although the map is still under way.

    A pong to a port that is full is dropped by either node."""
    hosts = paths(lower)
    (a, b), port, sockets = pair, ports(), 16
    netdev, way = a.netdevs[WIRE], "sport" if lower == 0 else "dport"
    start = [counters(m, guest) for m in pair]
    pinging = a.start(["python3", guest / "pongs.py", "ping", *hosts, port, sockets])
    pinging.expect("^bound$")
    filling = b.start(["python3", guest / "pongs.py", "fill", *hosts[::-1], port, sockets])
    counts = filling.expect(r"^([\d ]+)\n").group(1)
    total = sum(map(int, counts.split()))
    wait_for(a, guest, lambda now: now["recv_queued"] >= start[0]["recv_queued"] + total)
    pinging.write("ping\n")

    def dropped(now):
        others = counters(b, guest)["send_pong_dropped"] - start[1]["send_pong_dropped"]
        return now["recv_drop_pong"] - start[0]["recv_drop_pong"] + others

    now = wait_for(a, guest, lambda now: dropped(now) == sockets)
    assert now["recv_drop_pong"] > start[0]["recv_drop_pong"]

    def sent_on_others():
        return sum(int(x["next_tx"]) for index, x in lines(a, *hosts).items() if index > 0)

    before, sent = counters(b, guest), sent_on_others()
    first = links(tools, a, hosts[0])[0]
    lost = lose_filtered(a, netdev, f"u32 match ip {way} {first} 0xffff flowid 1:3")
    try:
        pinging.write(counts + "\n")
        pinging.expect("^pinged$")
        count = sent_on_others() - sent
        assert count > 0
        now = wait_for(b, guest, lambda now: now["recv_ping"] >= before["recv_ping"] + count)
        unchanged(before, now, "send_pong_dropped")
        assert lost()
    finally:
        a.run(f"tc qdisc del dev {netdev} root")
    pinging.finish()
    filling.finish()


@OURS
@LOWER
@pytest.mark.parametrize("most", (1, MOST))
def test_the_peer_restarts(pair, guest, paths, lower, most):
    """Messages without an acknowledgement of the old peer arrive at the new one, in order.

    With fewer paths all of them move to the first one."""
    hosts = paths(lower)
    (a, b), port, counts = pair, ports(), ("16", "20")
    moved = counters(a, guest)["send_moved"]
    b.run(f"ip link set {b.netdevs[WIRE]} down")
    sender = a.start(["python3", guest / "queued_ports.py", "send", *hosts, port, *counts])
    sender.expect("^sent$")
    restart(b, most)
    receiver = b.start(["python3", guest / "queued_ports.py", "receive", *hosts[::-1], port, *counts])
    receiver.expect("^bound$")
    b.run(f"ip link set {b.netdevs[WIRE]} up")
    receiver.wait(120, check=True)
    sender.finish()
    assert (counters(a, guest)["send_moved"] > moved) == (most == 1)


@OURS
@LOWER
def test_unload_under_traffic(pair, tools, guest, flavor, paths, lower):
    """A module is unloaded while messages are under way on all paths."""
    hosts = paths(lower)
    ends = list(zip(pair, hosts))
    for unloaded in range(2):
        under_load(tools, guest, *ends, node=pair[0], netdev=pair[0].netdevs[WIRE], count=messages(flavor, 500),
                   sockets=16)
        m = pair[unloaded]
        m.stop_all()
        # The peer connects before the setting is there, and gets one path.
        m.forget("tcp=1")
        m.run(f"ip link set {m.netdevs[WIRE]} down")
        restart(m)
        m.run(f"ip link set {m.netdevs[WIRE]} up")
        pair[1 - unloaded].stop_all()
        exchange(tools, *ends, count=50, sockets=16)
        negotiated(pair, hosts)


@OURS
def test_paths_of_c_may_be_silent(pair, guest, tcp):
    """C RDS may send nothing on another path, not even its map. Messages there are complete once
    TCP has acknowledged them."""
    hosts = tcp(0)
    a, b = pair
    restart(a)
    # Its own listener takes the place of RDS.
    b.forget()
    peer = b.start(["python3", guest / "tcp_silent_paths.py", hosts[1], RDS_TCP_PORT])
    peer.expect("^ready$")
    a.run(["python3", guest / "from_ports.py", *hosts, ports(), 1])
    for path in range(MOST):
        peer.expect(f"^{path}$")
    a.run(["python3", guest / "from_ports.py", *hosts, ports(), 64], timeout=300)
    peer.stop()
    b.forget("tcp=1")
