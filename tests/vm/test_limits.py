# SPDX-License-Identifier: GPL-2.0
"""Limits of the number of connections, and the removal of connections that are not needed."""

import json

import pytest
from bystander import Bystander
from rdsvm.cluster import PAIR, peer_address
from test_rogue import add_rogue
from tracing import traced
from traffic import PATIENT, counters, ping, wait_for

pytestmark = pytest.mark.impls("rust")

# Another address on each end of the pair: see add_peers().
MORE = [peer_address(1, end) for end in (0, 1)]
A, B = PAIR


@pytest.fixture
def peers(node):
    """Adds the addresses in MORE. They stay."""
    if MORE[0] not in node.run("ip addr").out:
        node.add_peers(1)


def known(node, guest):
    """Returns the states of the node's connections by local address, peer and type of service."""
    lines = node.run(["python3", guest / "connections.py", "n"]).out.splitlines()
    rows = [x.split() for x in lines[1:]]
    return {(row[1], row[2], int(row[4])): row[-1] for row in rows}


def strangers(node, guest):
    """Returns the peers of the connections to addresses without a host."""
    return [peer for _, peer, _ in known(node, guest) if peer.startswith("10.77.")]


def send(node, guest, local, peer, *tos):
    """Returns the result of a message with each of these types of service."""
    return json.loads(node.run(["python3", guest / "limits.py", "tos", local, peer, *tos]).out)


def ping_tos(node, tools, source, target, *values):
    for tos in values:
        node.run([tools / "rds-ping", "-I", source, "-Q", tos, "-c", 1, "-W", 60, target], timeout=90)


class Talk:
    """Two sockets that stay open and send to each other on request."""

    def __init__(self, node, guest, local, peer, tos=0):
        self.process = node.start(["python3", guest / "limits.py", "talk", local, peer, tos])
        self.process.expect("^ready$")
        self.sent = 0

    def go(self, count):
        self.sent += count
        self.process.write(f"{count}\n")
        self.process.expect(f"^all {self.sent}$")

    def finish(self):
        self.process.finish()


@pytest.mark.long
def test_connections_of_a_peer(node, tools, guest, load, peers):
    """One peer address has as many connections as allowed. The next one is refused, to a local
    program and to the peer itself. Local address and type of service do not matter."""
    load("max_conns_per_peer=4", "idle_secs=0", PATIENT)
    mark = node.mark("bound")
    # All of these connections have the same two addresses, so the limit for the peer A is reached.
    ping_tos(node, tools, MORE[1], A, 0, 1, 2, 3)
    assert counters(node, guest)["conn_refused_limit"] == 0
    assert send(node, guest, MORE[1], A, 4, 5, 3) == ["ENOMEM", "ENOMEM", "ok"]
    assert send(node, guest, B, A, 0) == ["ENOMEM"]
    seen = counters(node, guest)
    assert seen["conn_refused_limit"] == 3
    # The request arrives at the end for which this is a fifth connection.
    sender = Talk(node, guest, A, MORE[1], 0)
    sender.go(3)
    assert send(node, guest, A, B, 0) == ["ok"]
    seen = wait_for(node, guest, lambda now: now["conn_refused_limit"] > seen["conn_refused_limit"])
    assert seen["conn_reject_bad_request"] == 0
    reason = f"there are 4 connections with {A}, raise max_conns_per_peer to allow more"
    node.wait_log(reason, mark)
    # Other connections keep working, also the existing ones of this peer.
    sender.go(3)
    sender.finish()
    ping(tools, node, MORE[0], B)
    ping_tos(node, tools, MORE[1], A, 3)


def test_connections_in_all(node, tools, guest, load, peers):
    """A node has as many connections as allowed. A program gets no other one, whatever its address,
    peer or type of service. The existing connections keep working."""
    load("max_conns=8", "idle_secs=0", PATIENT)
    mark = node.mark("bound")
    # Each connection has both ends on this node.
    busy = Bystander(node, guest, A, B, 0, 1, 2, 3)
    there = known(node, guest)
    assert len(there) == 8 and counters(node, guest)["conn_refused_limit"] == 0
    stranger = "10.77.0.1"
    with traced(node) as trace:
        assert send(node, guest, A, B, 4, 3, 5) == ["ENOMEM", "ok", "ENOMEM"]
        assert send(node, guest, MORE[1], MORE[0], 0) == ["ENOMEM"]
        assert send(node, guest, A, stranger, 0) == ["ENOMEM"]
        ends = (A, B, 4), (A, B, 5), (MORE[1], MORE[0], 0), (A, stranger, 0)
        assert [x for x in trace() if "conn_refused_limit" in x] == [
            f"drop: <::ffff:{here},::ffff:{there},{tos}> conn_refused_limit 1" for here, there, tos in ends]
    assert counters(node, guest)["conn_refused_limit"] == 4
    reason = "this node has 8 connections, raise max_conns to allow more"
    node.wait_log(f"{A} -> {B} tos 4.*{reason}", mark)
    busy.go_on()
    assert known(node, guest) == there
    assert counters(node, guest)["conn_reset"] == 0
    busy.finish()


@pytest.mark.long
def test_requests_in_all(node, tools, guest, load):
    """A peer asks for one more connection than allowed. It is refused, keeps asking, and succeeds
    when the node has forgotten idle connections."""
    load("max_conns=9", "idle_secs=15", PATIENT)
    mark = node.mark("bound")
    busy = Bystander(node, guest, A, B, 0, 1, 2, 3)
    # The ninth connection. Its other end would be the tenth.
    pinger = node.start([tools / "rds-ping", "-I", A, "-Q", 9, "-c", 1, "-W", 200, B])

    def is_refused_again(now):
        # The other connections must not become idle meanwhile.
        busy.go_on()
        return now["conn_refused_limit"] >= 2

    wait_for(node, guest, is_refused_again)
    node.wait_log(f"{B} -> {A} tos 9: refused, this node has 9 connections, raise max_conns", mark)
    seen = counters(node, guest)
    assert seen["conn_reject_bad_request"] == seen["conn_gc"] == 0
    busy.go_on()
    assert pinger.running(), str(pinger.wait())
    assert counters(node, guest)["conn_reset"] == 0
    busy.finish()
    result = pinger.wait(300)
    assert result.status == 0, str(result)
    # Programs get connections again, too.
    wait_for(node, guest, lambda now: now["conn_gc"] >= 2 and len(known(node, guest)) <= 7)
    ping_tos(node, tools, B, A, 10)


def test_strangers_are_collected(node, tools, guest, load):
    """A program sends to more addresses without a host than a node may have connections. It leaves
    some to others, and its connections go when its messages go."""
    load("max_conns=100", "idle_secs=2")
    mark = node.mark("bound")
    program = node.start(["python3", guest / "limits.py", "strangers", A, 120])
    program.expect('^{"ok": 50, "ENOMEM": 70}$')
    assert len(strangers(node, guest)) == 50
    assert counters(node, guest)["conn_refused_limit"] == 70
    reason = "its user has 50 connections to peers that have never answered"
    # A message that waits to be sent keeps its connection. Failed attempts may have used up the
    # limit of lines.
    more = 0
    while not more or not any(reason in line for line in node.log(mark)):
        more += 1
        assert more < 900, node.log(mark)
        program.write("\n")
        program.expect(rf'(?:^{{"ENOMEM": 1}}\n){{{more}}}')
        # The line of this call is in the log before that of the mark.
        node.mark(f"refusal {more}")
    # Another user does the same, and has peers that do answer.
    other = node.start(["python3", guest / "limits.py", "strangers", B, 60, 65533])
    other.expect('^{"ok": 25, "ENOMEM": 35}$')
    ping_tos(node, tools, A, B, *range(10))
    assert counters(node, guest)["conn_refused_limit"] == 70 + more + 35
    assert len(strangers(node, guest)) == 75
    for each in (program, other):
        each.finish()
    seen = wait_for(node, guest, lambda now: now["conn_gc"] >= 75 and not strangers(node, guest))
    # The next such connections are collected, too.
    program = node.start(["python3", guest / "limits.py", "strangers", A, 5])
    program.expect('^{"ok": 5}$')
    program.finish()
    wait_for(node, guest, lambda now: now["conn_gc"] >= seen["conn_gc"] + 5
             and not strangers(node, guest))


@pytest.mark.on_siw("release")
def test_idle_connections_close_and_come_back(node, guest, load):
    """Idle connections release their memory and keep their sequence numbers."""
    load("idle_secs=0", PATIENT)
    talk = Talk(node, guest, A, B, 1)
    talk.go(20)
    talk.finish()
    seen = counters(node, guest)
    assert seen["ib_pool_bufs_in_use"] > 0 and seen["conn_reset"] == 0

    load("idle_secs=2", PATIENT)
    talk = Talk(node, guest, A, B, 1)
    for rounds in (1, 2):
        talk.go(20)
        # One end closes, or both do.
        seen = wait_for(node, guest, lambda now, ends=2 * rounds: now["conn_reset"] >= ends
                        and now["ib_pool_bufs_in_use"] == 0)
        assert seen["conn_idle_closed"] >= rounds
        assert known(node, guest) == {(A, B, 1): "down", (B, A, 1): "down"}
    assert seen["conn_gc"] == 0
    talk.go(20)
    talk.finish()


def test_idle_connections_make_room(node, guest, load):
    """A node with as many connections as allowed forgets a closed one. The sockets that used it
    continue and get each message once, although only one end restarts its numbers."""
    load("max_conns=2", "idle_secs=2")
    talk = Talk(node, guest, A, B, 1)
    with traced(node) as trace:
        for rounds in (1, 2, 3):
            talk.go(10)
            # The other end may have been forgotten already, to make room for the first end.
            wait_for(node, guest, lambda now, rounds=rounds: now["conn_gc"] >= rounds
                     and list(known(node, guest).values()) == ["down"])
        assert len([x for x in trace() if x.endswith(" unused: down -> forgotten")]) >= 3
    talk.go(10)
    talk.finish()


@pytest.mark.long("release", "debug")
def test_retransmission_to_a_forgotten_connection(node, tools, guest, load):
    """A connection breaks before its peer has the acknowledgement. It is still forgotten to make
    room for others, and retransmissions are not delivered twice."""
    add_rogue(node, guest)
    load("max_conns=1", "idle_secs=8")
    node.run(["python3", guest / "rogue_connect.py", tools.parent / "verbs.so", "forgotten"], timeout=600)
