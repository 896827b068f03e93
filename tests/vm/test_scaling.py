# SPDX-License-Identifier: GPL-2.0
"""Hundreds of connections on one node."""

import json

import bench
import bench_scaling
import pytest
from rdsvm import cluster
from rdsvm.cluster import must
from traffic import counters, wait_for

pytestmark = pytest.mark.flavors("release")

NETWORKS, TYPES, MESSAGES = 40, 10, 20
# Maximum growth of the cost of an operation on one socket when there are many: lists of a table
# have two entries instead of one.
MOST_GROWTH = 1.2
# Minimum memory of an idle connection, both ends.
LEAST_KIB = 400


def memory(node, guest):
    return json.loads(node.run(["python3", guest / "memory.py"]).out)["free"]


@pytest.fixture(scope="module")
def crowd(flavor, tmp_path_factory):
    """A node with many addresses, on which the module is not loaded."""
    node = cluster.one_node(tmp_path_factory.mktemp("crowd"), "rust", flavor)
    try:
        node.add_pair()
        node.add_peers(NETWORKS)
        yield node
    finally:
        node.kill()


@pytest.mark.long("release")
def test_hundreds_at_once(crowd, guest):
    """Hundreds of connections come up when both ends request all of them at once. No message is
    lost, and all memory is back after the unload.

    The second round is the one that is checked. In the first one the kernel creates threads for the
    workers of all connections, and keeps them for minutes.
    """
    count = NETWORKS * TYPES
    for _ in range(2):
        before = memory(crowd, guest)
        must(crowd.load())
        result = crowd.run(["python3", guest / "many.py", NETWORKS, TYPES, MESSAGES], timeout=900)
        assert 1.9 * count < json.loads(result.out)["up"] <= 2 * count, str(result)
        seen = counters(crowd, guest)
        assert seen["recv_queued"] == 2 * count * MESSAGES
        assert not [x for x, n in seen.items() if x.startswith("recv_drop_bad") and n], seen
        taken = memory(crowd, guest) - before
        must(crowd.unload())
        kept = memory(crowd, guest) - before
    assert taken > LEAST_KIB * count, "memory that is not counted cannot be missing"
    assert kept < taken / 20, f"{kept} KiB of {taken} are not back"
    assert not crowd.complaints()


def test_only_connections_of_the_address(crowd, guest):
    """A close cancels messages of its socket on all connections of its address. The map of a
    congested port goes out on all of these connections. Connections of other addresses are not
    involved."""
    # More peers than the table handles under one hold of its lock.
    peers = NETWORKS
    must(crowd.load())

    def added(what, name, least):
        before = counters(crowd, guest)[name]
        crowd.run(["python3", guest / "concerned.py", what, peers])
        return wait_for(crowd, guest, lambda now: now[name] - before >= least)[name] - before

    crowd.run(["python3", guest / "concerned.py", "connect", peers])
    assert added("close", "send_drop_closed", peers) == peers
    assert added("congest", "cong_update_queued", 2 * peers) == 2 * peers
    must(crowd.unload())
    assert not crowd.complaints()


def costs(out, capsys, rows):
    """Returns the instructions of an operation, by row of `make bench`."""
    status = bench.main(["--impls=rust", f"--rows={rows}", f"--out={out}"])
    shown = capsys.readouterr()
    assert status == 0, shown.err + shown.out
    return {x["row"]: x["rust"]["p50"] for x in json.loads(out.read_text())["rows"]}


@pytest.mark.long("release")
def test_many_bound_sockets(tmp_path, capsys):
    """A bind and a close cost about the same with 200,000 bound sockets, measured in
    instructions."""
    cost = costs(tmp_path / "out.json", capsys, "bind-fresh,close,bind-many,close-many")
    assert 0 < cost["bind-many"] < MOST_GROWTH * cost["bind-fresh"], cost
    assert 0 < cost["close-many"] < MOST_GROWTH * cost["close"], cost


@pytest.mark.long("release")
def test_few_ports_left(tmp_path, capsys):
    """A bind needs only a few more steps when 50,000 consecutive ports of the address are taken.
    It needs at most one step for each port to find the last one. The cost is measured in
    instructions."""
    ports, look, looks = 65534, 200, 32
    cost = costs(tmp_path / "out.json", capsys, "bind-crowded,bind-last")
    assert 0 < cost["bind-crowded"] < 4000 + looks * look, cost
    assert 0 < cost["bind-last"] < (ports + looks) * look, cost


def test_close_behind_many_messages(tmp_path, capsys):
    """Messages that other sockets have queued for a missing peer do not increase the cost of a
    close. It costs little more than that of a socket which has sent nothing. The cost is measured
    in instructions."""
    cost = costs(tmp_path / "out.json", capsys, "close,close-queued,close-queued-many")
    assert 0 < cost["close-queued-many"] < MOST_GROWTH * cost["close-queued"], cost
    assert 0 < cost["close-queued"] < 2 * cost["close"], cost


@pytest.mark.long("release")
def test_cost_does_not_grow(tmp_path, capsys):
    """The cost of a message, a bind and a close does not depend on the number of connections. It is
    measured in instructions."""
    out = tmp_path / "out.json"
    status = bench_scaling.main(["--impls=rust", "--connections=10,150", "--strict", f"--out={out}"])
    shown = capsys.readouterr()
    assert status == 0, shown.err + shown.out
    rows = {x["row"]: x["rust"]["growth"] for x in json.loads(out.read_text())["rows"]}
    assert all(rows[x.name] > 0 for x in bench_scaling.ROWS if x.steady)
