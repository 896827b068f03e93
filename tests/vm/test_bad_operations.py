# SPDX-License-Identifier: GPL-2.0
"""Operations between two nodes that the peer's device refuses, and what others notice of it: that they have to wait."""

import pytest
from rdsvm.cluster import wire_address
from traffic import Streams, counters, messages, unchanged

pytestmark = [pytest.mark.impls("rust"), pytest.mark.pairs("rust-rust")]

A, B = wire_address(0, 1), wire_address(0, 2)


@pytest.mark.on_siw
def test_bad_operations(patient, tools, guest, flavor):
    """Keys, lengths and accesses that are not good end their own operations, with an error. Messages of others arrive,
    once and in order, and their operations are dropped at worst, and can be done again."""
    a, b = patient
    before, rounds = counters(b, guest), 2 if flavor == "debug" else 4
    streams = Streams(tools, (a, A), (b, B), count=messages(flavor, 4000), sizes="1..20000")
    # Of a write without a message, iWARP does not tell whether it was done.
    how, programs = ["insist", *["unheard"] * (b.kind == "siw")], []
    for role, node, here, there in (("owner", a, A, B), ("user", b, B, A)):
        others = node.start(["python3", guest / "rdma_end.py", role, here, there, 30, *how])
        if role == "owner":
            others.expect("ready")
            bad = node.start(["python3", guest / "bad_operations.py", role, here, there])
            bad.expect("ready")
        else:
            bad = node.start(["python3", guest / "bad_operations.py", role, here, there, rounds, int(b.kind == "rxe")])
            bad.expect("round 0", timeout=300)
            assert streams.running(), "messages were to be on the way meanwhile"
        programs += [bad, others]
    results = [program.wait(300) for program in reversed(programs)]
    assert all(x.status == 0 for x in results), "\n".join(map(str, results))
    streams.finish()
    now = counters(b, guest)
    # Each may end a connection that another one has ended already.
    assert now["conn_reset"] - before["conn_reset"] >= rounds, now
    unchanged(before, now, "conn_silent", "ib_mr_kept", "recv_drop_bad_checksum")
