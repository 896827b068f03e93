# SPDX-License-Identifier: GPL-2.0
"""Operations between two nodes that the peer's device refuses. Other programs only have to wait."""

import time

import pytest
from probes import Probes
from rdsvm.cluster import wire_address
from traffic import counters, exchange, messages, unchanged

pytestmark = pytest.mark.impls("rust")

A, B = wire_address(0, 1), wire_address(0, 2)


@pytest.mark.on_siw
@pytest.mark.pairs("rust-rust")
def test_bad_operations(patient, tools, guest, flavor):
    """Wrong keys, lengths and accesses end their own operations with an error. Messages of other
    programs arrive, once and in order. Their operations are at worst dropped and can be
    repeated."""
    a, b = patient
    before, rounds = counters(b, guest), 1
    # iWARP does not report whether a write without a message was done.
    how, programs = ["insist", *["unheard"] * (b.kind == "siw")], []
    for role, node, here, there in (("owner", a, A, B), ("user", b, B, A)):
        others = node.start(["python3", guest / "rdma_end.py", role, here, there, 8, *how])
        if role == "owner":
            others.expect("ready")
            bad = node.start(["python3", guest / "bad_operations.py", role, here, there])
            bad.expect("ready")
        else:
            bad = node.start(["python3", guest / "bad_operations.py", role, here, there, rounds, int(b.kind == "rxe")])
        programs += [bad, others]
    while any(program.running() for program in programs):
        exchange(tools, (a, A), (b, B), count=messages(flavor, 200), sizes="1..20000")
    results = [program.wait(300) for program in reversed(programs)]
    assert all(x.status == 0 for x in results), "\n".join(map(str, results))
    now = counters(b, guest)
    # An operation may end a connection that another operation has ended already.
    assert now["conn_reset"] - before["conn_reset"] >= rounds, now
    unchanged(before, now, "conn_keepalive_timeout", "ib_mr_kept", "recv_drop_bad_checksum")


@pytest.mark.long
@pytest.mark.pairs("rust-c")
@pytest.mark.parametrize("user", ("rust", "c"))
def test_bad_keys_with_c(user, pair, tools, guest, flavor):
    """Keys that no node has issued end their own operations. Messages of other programs arrive on
    both nodes."""
    ends = [(pair[0], A), (pair[1], B)]
    (node, here), (_, there) = ends if user == "rust" else ends[::-1]
    bad = node.start(["python3", guest / "bad_key.py", here, there, 1])
    while bad.running():
        exchange(tools, *ends, count=messages(flavor, 200), sizes="1..20000")
    bad.wait(check=True)


@pytest.mark.pairs("rust-c")
@pytest.mark.parametrize("owner", ("rust", "c"))
def test_memory_held_with_c(owner, pair, guest):
    """A program holds registered memory on a connection that another program's wrong key ends. The
    connection of C RDS does not come back while that program holds the memory.
    Documentation/rdma.md gives the reason."""
    ends = [(pair[0], A), (pair[1], B)]
    (m, here), (n, there) = ends if owner == "rust" else ends[::-1]
    holder, user = [node.start(["python3", guest / "with_c.py", *rest, 0, "map", "read"])
                    for node, rest in ((m, ("owner", here, there)), (n, ("user", there, here)))]
    for program in (holder, user):
        program.expect("^ready$")
        program.write("go\n")
    user.expect("^SUCCESS 5$")
    with Probes(pair[1], "rds_ib_cm_handle_connect", "rds_ib_cm_connect_complete") as probes:
        bad = n.start(["python3", guest / "bad_key.py", there, here, 1])
        if owner == "c":
            deadline = time.monotonic() + 120
            while probes.hits()[0] < 5:
                assert time.monotonic() < deadline, "the peer was to ask for a connection"
            assert probes.hits()[1] == 0 and bad.running(), probes.hits()
            holder.write("end\n")
        bad.wait(300, check=True)
    holder.write("" if owner == "c" else "end\n", close=True)
    for program in (holder, user):
        program.wait(60, check=True)
