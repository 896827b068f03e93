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
# What more sockets may add to an operation on one: lists of a table have two instead of one.
MOST_GROWTH = 1.2
# An idle one takes more than this, both ends.
LEAST_KIB = 400


def memory(node, guest):
    return json.loads(node.run(["python3", guest / "memory.py"]).out)["free"]


@pytest.fixture(scope="module")
def crowd(flavor, tmp_path_factory):
    """A node with many addresses, without the module."""
    node = cluster.one_node(tmp_path_factory.mktemp("crowd"), "rust", flavor)
    try:
        node.add_pair()
        node.add_peers(NETWORKS)
        yield node
    finally:
        node.kill()


@pytest.mark.long("release")
def test_hundreds_at_once(crowd, guest):
    """All come up though all are asked for at once, by both ends; nothing is lost, and without the module
    their memory is back. The second time counts for that: the first time the kernel makes threads for the
    workers of all connections, and keeps them for minutes."""
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
    """A close takes back what its socket has sent on all connections of its address, and the map of a
    congested port goes out on all of them. Those of other addresses have nothing to do with it."""
    # More than the table is locked for at a time.
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
    """Instructions for an operation, by row of `make bench`."""
    status = bench.main(["--impls=rust", f"--rows={rows}", f"--out={out}"])
    shown = capsys.readouterr()
    assert status == 0, shown.err + shown.out
    return {x["row"]: x["rust"]["p50"] for x in json.loads(out.read_text())["rows"]}


@pytest.mark.long("release")
def test_many_bound_sockets(tmp_path, capsys):
    """With 200,000 sockets bound a bind and a close cost what they cost before: by count of instructions."""
    cost = costs(tmp_path / "out.json", capsys, "bind-fresh,close,bind-many,close-many")
    assert 0 < cost["bind-many"] < MOST_GROWTH * cost["bind-fresh"], cost
    assert 0 < cost["close-many"] < MOST_GROWTH * cost["close"], cost


@pytest.mark.long("release")
def test_few_ports_left(tmp_path, capsys):
    """It costs a bind a few more looks when 50,000 ports of the address are taken, one after the other; and each port one
    at the most, before the last one is found: by count of instructions."""
    ports, look, looks = 65534, 200, 32
    cost = costs(tmp_path / "out.json", capsys, "bind-crowded,bind-last")
    assert 0 < cost["bind-crowded"] < 4000 + looks * look, cost
    assert 0 < cost["bind-last"] < (ports + looks) * look, cost


def test_close_behind_many_messages(tmp_path, capsys):
    """What others have queued for a peer that is not there does not make a close dearer, and little dearer than that of
    a socket that has sent nothing: by count of instructions."""
    cost = costs(tmp_path / "out.json", capsys, "close,close-queued,close-queued-many")
    assert 0 < cost["close-queued-many"] < MOST_GROWTH * cost["close-queued"], cost
    assert 0 < cost["close-queued"] < 2 * cost["close"], cost


@pytest.mark.long("release")
def test_cost_does_not_grow(tmp_path, capsys):
    """A message, a bind and a close cost the same, however many connections there are: by count of
    instructions."""
    out = tmp_path / "out.json"
    status = bench_scaling.main(["--impls=rust", "--connections=10,150", "--strict", f"--out={out}"])
    shown = capsys.readouterr()
    assert status == 0, shown.err + shown.out
    rows = {x["row"]: x["rust"]["growth"] for x in json.loads(out.read_text())["rows"]}
    assert all(rows[x.name] > 0 for x in bench_scaling.ROWS if x.steady)
