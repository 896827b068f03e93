# SPDX-License-Identifier: GPL-2.0
"""Counters that other tests do not cover. guest/count.py causes them; this file has the expected
values.

tests/lint/test_every_counter.py checks that every counter has a test.
"""

import errno
import json

import pytest
from faults import faults, faults_within, place_of_rust
from rdsvm.cluster import PAIR
from tracing import traced
from traffic import counters, late_reader, ping, read_late, times_up

# The causes belong to one kind of device.
pytestmark = [pytest.mark.impls("rust"), pytest.mark.kinds("rxe")]

LOOP = "127.0.0.1"
A, B = PAIR
# A message of 1000 bytes. The receiver peeks at it with room for 300 bytes before it reads it.
COPIED = {"copy_from_user": 1000, "copy_to_user": 1300, "recv_delivered": 1, "recv_queued": 1}
EXPECTED = {
    "copies": {LOOP: COPIED, A: COPIED},
    "full_send_buffer": [["EAGAIN", "ETIMEDOUT"], {"send_queue_full": 2}],
    "full_receiver": [{"cong_update_queued": True, "cong_update_received": True}, ["ENOBUFS", "ETIMEDOUT"],
                      {"cong_send_error": 1, "cong_send_blocked": 1}, {"send_pong_dropped": 1}],
    "closed_amid_a_send": [[100], {"recv_drop_dead_sock": 1}],
    "closed_unread": {"recv_drop_closed": 2, "recv_drop_dead_sock": 0},
    "operations": [{"send_rdma": 1, "send_rdma_bytes": 5000, "recv_rdma_bytes": 0},
                   {"send_rdma": 1, "send_rdma_bytes": 0, "recv_rdma_bytes": 3096},
                   {"ib_atomic_fadd": 2, "ib_atomic_cswp": 2, "send_rdma": 0},
                   ["EFAULT"] * 3,
                   {"send_rdma": 0, "send_rdma_bytes": 0, "recv_rdma_bytes": 0, "ib_atomic_fadd": 0}],
}
# Each of these must increase. The amount depends on the machine.
SLOW = {
    "full_ring": {"ib_tx_ring_full", "ib_ack_send_delayed", "ib_ack_send_piggybacked", "send_ack_required",
                  "recv_ack_required"},
    "both_connect": {"ib_connect_raced"},
}


def count(node, guest, case):
    return json.loads(node.run(["python3", guest / "count.py", case], timeout=300).out)["value"]


@pytest.mark.parametrize("case", EXPECTED)
def test_exact(node, guest, case):
    assert count(node, guest, case) == EXPECTED[case]


@pytest.mark.flavors("release")
@pytest.mark.parametrize("case", SLOW)
def test_on_a_slow_wire(slow_node, guest, case):
    seen = count(slow_node, guest, case)
    assert isinstance(seen, dict) and set(seen) == SLOW[case] and all(seen.values()), seen


@pytest.mark.flavors("debug")
def test_messages_find_no_memory(node, tools, guest):
    """Each allocation fails in the softirq that receives. The worker allocates what is needed. All
    messages arrive on the same link, in order: short ones in common frames, long ones in several.
    Pongs, which rds-verify would wait for, find no memory."""
    ping(tools, node, B, A)
    # The functions that handle completions.
    softirq = place_of_rust(node, r"2qp.*2Qp.*10qp_context.*(3run|4poll)")
    for count, size in ((100, 50), (100, 400), (10, 30000)):
        before, ups = counters(node, guest), times_up(node, A, B)
        with faults_within(node, softirq, "failslab", probability=100):
            send, recv = late_reader(guest, node, count, size, PAIR)
            read_late(send, recv, count)
        seen = counters(node, guest)
        assert seen["ib_rx_alloc_wait"] > before["ib_rx_alloc_wait"]
        assert times_up(node, A, B) == ups


@pytest.mark.flavors("debug")
def test_a_bind_finds_no_memory(node, guest):
    """A bind allocates to look up an address that is local only through a route. That allocation
    fails."""
    address = "10.78.0.1"
    node.run(f"ip route add local {address} dev lo")
    try:
        before = counters(node, guest)["ib_laddr_failed"]
        binder = node.start(["python3", guest / "late_bind.py", address])
        binder.expect("^ready$")
        with traced(node) as trace, faults(node, "failslab", probability=100):
            binder.write("bind\n")
            binder.expect("^ENOMEM$")
            assert f"error: <::ffff:{address},::,0> local address: {-errno.ENOMEM}" in trace()
        binder.finish()
        assert counters(node, guest)["ib_laddr_failed"] == before + 1
    finally:
        node.run(f"ip route del local {address} dev lo")
