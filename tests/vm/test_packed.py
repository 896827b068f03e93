# SPDX-License-Identifier: GPL-2.0
"""Packed frames, which short messages share when much is in flight. No message is lost, and only
peers that support such frames get them."""

import pytest
from rdsvm.cluster import PAIR, wire_address
from traffic import (counters, exchange, late_reader, ping, read_late, slow_down, under_load,
                     wait_for)

A, B = wire_address(0, 1), wire_address(0, 2)


# On the debug kernel the sender may be slower than the wire. On iWARP a send is complete when TCP
# has it.
@pytest.mark.flavors("release")
@pytest.mark.kinds("rxe")
@pytest.mark.impls("rust")
def test_short_messages_wait_when_much_is_in_flight(slow_node, tools, guest):
    """The first of 100 messages go alone, while the send ring has room for all. The others share
    frames: 37 of them fit into one."""
    ping(tools, slow_node, PAIR[1], PAIR[0])
    before, count = counters(slow_node, guest), 100
    read_late(*late_reader(guest, slow_node, count, 64, PAIR), count)
    now = counters(slow_node, guest)
    assert 2 <= now["ib_tx_packed"] - before["ib_tx_packed"] <= 4


@pytest.mark.on_siw
@pytest.mark.impls("rust")
def test_streams_of_short_messages(slow_node, tools, guest, load):
    """Each packed frame arrives once. The device retries often, because frames would be lost with
    the connection."""
    load("rds_ib_retry_count=7")
    before = counters(slow_node, guest)
    exchange(tools, (slow_node, PAIR[0]), (slow_node, PAIR[1]), count=2000, sizes="0..600")
    after = counters(slow_node, guest)
    sent, received, resets = (after[x] - before[x]
                              for x in ("ib_tx_packed", "ib_rx_packed", "conn_reset"))
    assert (resets, received) == (0, sent) and sent > 20, (sent, received, resets)


@pytest.mark.pairs("rust-c", "c-rust")
def test_c_gets_no_such_frames(pair, tools, guest, flavor):
    slow_down(*((m, m.netdevs[0]) for m in pair))
    try:
        exchange(tools, (pair[0], A), (pair[1], B), count=1000, sizes="0..600")
    finally:
        for m in pair:
            m.set_loss(0)
    for m in pair:
        if m.impl == "rust":
            assert counters(m, guest)["ib_tx_packed"] == 0


# On iWARP a cut wire ends no connection: TCP retries for a quarter of an hour.
@pytest.mark.kinds("rxe")
@pytest.mark.flavors("release")
@pytest.mark.pairs("rust-rust")
def test_lost_frames_are_sent_again(pair, tools, guest):
    """The connection ends under load, and its messages are packed again on the next one."""
    slow_down(*((m, m.netdevs[0]) for m in pair))
    a, b = pair
    before = counters(a, guest)
    streams = under_load(tools, guest, (a, A), (b, B), a, count=20000, sizes="0..600")
    for m in pair:
        m.set_loss(100)
    wait_for(a, guest, lambda now: now["conn_reset"] > before["conn_reset"])
    slow_down(*((m, m.netdevs[0]) for m in pair))
    try:
        streams.finish()
    finally:
        for m in pair:
            m.set_loss(0)
    assert counters(a, guest)["ib_tx_packed"] > before["ib_tx_packed"]
