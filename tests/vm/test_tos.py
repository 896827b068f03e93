# SPDX-License-Identifier: GPL-2.0
"""The type of service of a socket: its own connection, and packets that carry it."""

import json

import pytest
from rdsvm.cluster import PAIR
from traffic import connection, new_addresses, ping

# The lowest two bits of the byte are for ECN.
TOS = 0x28


def connections(node, guest, peer):
    """Returns {type of service: (next sent, next received)} of the connections to a peer. All of
    these must be up."""
    lines = node.run(["python3", guest / "connections.py", node.name]).out.splitlines()[1:]
    rows = [x.split() for x in lines if x.split()[2] == peer]
    assert all(x[-1] == "connected" for x in rows), lines
    return {int(x[4]): (int(x[5]), int(x[6])) for x in rows}


@pytest.mark.long
def test_connection_of_its_own(pair, tools, guest):
    """Each type of service has its own connection and numbers, whichever side connects. The network
    determines the service level, which is always 0 here."""
    a, b = pair
    here, there = new_addresses(guest, pair)
    ping(tools, a, there, here)
    ping(tools, a, there, here, tos=TOS)
    ping(tools, b, here, there, tos=TOS + 4)
    ways = [(a, there), (b, here)]
    before = [connections(m, guest, peer) for m, peer in ways]
    assert [set(x) for x in before] == [{0, TOS, TOS + 4}] * 2
    for tos in before[0] if {m.impl for m in pair} == {"rust"} else ():
        ends = (a, here, there), (b, there, here)
        levels = [connection(*x, tos)["service_level"] for x in ends]
        assert levels == ["0"] * 2, (tos, levels)
    ping(tools, a, there, here, tos=TOS, count=5)
    after = [connections(m, guest, peer) for m, peer in ways]
    for old, new in zip(before, after):
        assert new[0] == old[0] and new[TOS + 4] == old[TOS + 4]
        # Five pings each way, and no message on another connection.
        assert all(y - x == 5 for x, y in zip(old[TOS], new[TOS])), (old, new)


# On iWARP the type of service selects the connection, but packets do not carry it.
@pytest.mark.kinds("rxe")
@pytest.mark.flavors("release")
@pytest.mark.pairs("rust-rust", "rust-c")
@pytest.mark.parametrize("version, first", (
    (4, "a"), (6, "b"), *(pytest.param(*x, marks=pytest.mark.long("release")) for x in ((4, "b"), (6, "a")))))
def test_packets_carry_it(pair, tools, guest, first, version):
    """The packets of both sides carry the type of service, also those of the accepting side."""
    a, b = pair
    for tos in (TOS, 0):
        hosts = new_addresses(guest, pair, version)
        node, own, peer = (a, *hosts) if first == "a" else (b, *hosts[::-1])
        watch = a.start(["python3", guest / "roce_tos.py", a.netdevs[0], hosts[0]])
        watch.expect("ready")
        ping(tools, node, peer, own, tos=tos)
        watch.write("enough\n")
        seen = json.loads(watch.wait(check=True).out.splitlines()[-1])
        assert seen == {"in": [tos], "out": [tos]}


def test_connections_within_a_node(node, tools, guest):
    """Each connection has its own queue pair, on both ends."""
    def queue_pairs():
        return node.run("rdma res show qp | grep -c 'type RC'").out.strip()

    node.forget()
    ping(tools, node, PAIR[1], source=PAIR[0])
    ping(tools, node, PAIR[1], source=PAIR[0], tos=TOS)
    assert set(connections(node, guest, PAIR[1])) == {0, TOS}
    assert set(connections(node, guest, PAIR[0])) == {0, TOS}
    assert queue_pairs() == "4"
