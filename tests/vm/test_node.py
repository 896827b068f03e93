# SPDX-License-Identifier: GPL-2.0
"""One node: loopback, and two soft RDMA devices on the ends of a veth pair."""

import pytest
from rdsvm.cluster import PAIR, PAIR6
from slow_reader import run_slow_reader
from traffic import exchange, ping

LOOPS = [("127.0.0.1", "127.0.0.1"), ("::1", "::1")]
PAIRS = [PAIR, PAIR[::-1], PAIR6, (PAIR[0], PAIR[0])]


@pytest.mark.on_siw
@pytest.mark.parametrize("ends", LOOPS + PAIRS, ids="-".join)
def test_ping(node, tools, ends):
    source, target = ends
    ping(tools, node, target, source)


@pytest.mark.on_siw
@pytest.mark.parametrize("ends", LOOPS + [PAIR, PAIR6, (PAIR[1], PAIR[1])], ids="-".join)
def test_traffic(node, tools, ends):
    left, right = ends
    exchange(tools, (node, left), (node, right), count=300)


@pytest.mark.parametrize("ends", [LOOPS[0], PAIR], ids="-".join)
def test_fragment_boundaries(node, tools, ends):
    left, right = ends
    exchange(tools, (node, left), (node, right), count=64, sizes="boundary")


@pytest.mark.parametrize("ends", [LOOPS[0], PAIR], ids="-".join)
def test_many_sockets(node, tools, ends):
    left, right = ends
    exchange(tools, (node, left), (node, right), count=50, sockets=8, sizes="1..20000")


@pytest.mark.impls("rust")
def test_slow_reader(node, guest):
    """C's two ends in one kernel do not tell each other that a congestion is over."""
    run_slow_reader(guest, (node, PAIR[0]), (node, PAIR[1]))


@pytest.mark.impls("rust")
def test_slow_reader_on_loopback(node, guest):
    """C has no back-pressure here."""
    run_slow_reader(guest, (node, "127.0.0.1"), (node, "127.0.0.1"))
