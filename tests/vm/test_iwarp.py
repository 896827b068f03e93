# SPDX-License-Identifier: GPL-2.0
"""Behaviour that is specific to iWARP: no mechanism holds a fast sender back, and no event reports
that a buffer is free."""

import pytest
from rdsvm.cluster import PAIR, must, wire_address
from traffic import Streams, counters, exchange, ping, ports, times_up, unchanged, wait_for

pytestmark = [pytest.mark.impls("rust"), pytest.mark.pairs("rust-rust"), pytest.mark.kinds("siw"),
              pytest.mark.on_siw]

A, B = wire_address(0, 1), wire_address(0, 2)


@pytest.mark.long
def test_no_frame_finds_no_receive(slow_node, tools, guest, flavor):
    """A receive ring holds less than TCP takes, so the sender waits for the receiver."""
    ping(tools, slow_node, PAIR[1], PAIR[0])
    before, ups = counters(slow_node, guest), times_up(slow_node, *PAIR)
    exchange(tools, (slow_node, PAIR[0]), (slow_node, PAIR[1]), count=400 if flavor == "debug" else 2000,
             sockets=8, sizes="513..700")
    after = counters(slow_node, guest)
    assert after["ib_tx_throttle"] > before["ib_tx_throttle"], "the ring was long enough"
    assert times_up(slow_node, *PAIR) == ups


def test_cancelled_messages_go_out_as_they_were(slow_node, tools, guest, flavor):
    """The cancelled messages are still in TCP while other messages take their buffers."""
    ping(tools, slow_node, PAIR[1], PAIR[0])
    before, ups, port = counters(slow_node, guest), times_up(slow_node, *PAIR), ports()
    streams = Streams(tools, (slow_node, PAIR[0]), (slow_node, PAIR[1]),
                      count=100 if flavor == "debug" else 500, sizes="1..30000")
    slow_node.run(["python3", guest / "cancel.py", PAIR[0], port, PAIR[1], port + 1, 100], timeout=300)
    streams.finish()
    after = counters(slow_node, guest)
    assert after["send_drop_closed"] > before["send_drop_closed"]
    unchanged(before, after, "recv_drop_bad_header", "recv_drop_bad_fragment", "recv_drop_bad_checksum")
    assert times_up(slow_node, *PAIR) == ups


def test_silent_peer(pair, tools, guest):
    """A peer with a known hardware address does not answer. Attempts fail one after another, and
    the first one after the peer is back succeeds."""
    a, b = pair
    a.forget()
    ping(tools, a, B)
    must(a.unload())
    a.set_loss(100)
    must(a.load())
    attempts = counters(a, guest)["conn_attempt_failed"]
    mac = b.run(f"cat /sys/class/net/{b.netdevs[0]}/address").out.strip()
    a.run(f"ip neigh replace {B} lladdr {mac} dev {a.netdevs[0]} nud permanent")
    try:
        pinger = a.start([tools / "rds-ping", "-c", 1, "-W", "200", B])
        wait_for(a, guest, lambda now: now["conn_attempt_failed"] >= attempts + 2)
        assert pinger.running(), str(pinger.wait())
    finally:
        a.run(f"ip neigh del {B} dev {a.netdevs[0]}")
        a.set_loss(0)
    result = pinger.wait(300)
    assert result.status == 0, str(result)


@pytest.mark.flavors("debug")
def test_device_goes_amid_tcp_connections(node, tools, guest):
    """Soft-iWARP has not accepted all connections when its listener closes. The lock that it takes
    for that is also taken by connections that carry data."""
    exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=30, sizes="1..30000")
    knocks = node.start(["python3", guest / "knock.py", PAIR[0], PAIR[1], 18634])
    knocks.expect("^ready$")
    node.run("rdma link del rdsx1")
    knocks.wait(60, check=True)
    node.run(f"rdma link add rdsx1 type {node.kind} netdev rdsv1")
    ping(tools, node, PAIR[1], PAIR[0])
