# SPDX-License-Identifier: GPL-2.0
"""Devices that do not do what they were asked for."""

import pytest
from faults import faults_within, place_of
from rdsvm.cluster import PAIR
from traffic import counters, ping, wait_for

pytestmark = [pytest.mark.impls("rust"), pytest.mark.flavors("debug")]


@pytest.mark.kinds("rxe")
def test_queue_pair_that_is_never_flushed(node, tools, guest):
    """Soft-RoCE that finds no memory when a queue pair is made ready never flushes what is posted to it. It goes all
    the same, and the connection comes up when there is memory."""
    node.forget()
    before = counters(node, guest)["ib_not_flushed"]
    with faults_within(node, place_of(node, "rxe_modify_qp", "rdma_rxe"), "failslab", probability=100):
        waiting = node.start([tools / "rds-ping", "-c", "1", "-W", "120", "-I", PAIR[0], PAIR[1]])
        wait_for(node, guest, lambda now: now["ib_not_flushed"] > before)
    waiting.wait(300, check=True)
    ping(tools, node, PAIR[1], PAIR[0])
