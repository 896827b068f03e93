# SPDX-License-Identifier: GPL-2.0
"""Messages over TCP that the event of a socket receives, and those that it leaves to the work."""

import pytest
from traffic import RDS_TCP_PORT, counters, ping, ports, wait_for

pytestmark = pytest.mark.kinds("rxe")


@pytest.mark.long("debug")
@pytest.mark.pairs("rust-rust")
def test_arrivals_need_no_work(pair, tools, guest, tcp):
    """Once messages flow, the event of a socket receives them. Only arrivals during a run of the
    work are left to it."""
    here, there = tcp(0)
    a, _ = pair
    ping(tools, a, there, here)
    before = counters(a, guest)
    ping(tools, a, there, here, count=100)
    now = counters(a, guest)
    arrived, deferred = (now[f"tcp_data_ready_{x}"] - before[f"tcp_data_ready_{x}"] for x in ("calls", "deferred"))
    assert 0 < arrived and deferred < arrived / 2, (arrived, deferred)


@pytest.mark.long("debug")
@pytest.mark.pairs("rust-rust")
def test_urgent_bytes(pair, guest, tcp):
    """Urgent bytes are no part of the stream. An event leaves them to the work, which goes on with
    the message behind them."""
    hosts = tcp(1)
    a, b = pair
    b.forget()
    port = ports()
    receiving = a.start(["python3", guest / "receive.py", hosts[0], port, "hello 1", "hello 2"])
    receiving.expect("^ready$")
    before = counters(a, guest)
    peer = b.start(["python3", guest / "tcp_urgent.py", hosts[1], hosts[0], RDS_TCP_PORT, port])
    peer.expect("^sent$")
    wait_for(a, guest, lambda now: now["copy_to_user"] > before["copy_to_user"])
    peer.write("\n")
    receiving.wait(60, check=True)
    peer.write("\n")
    peer.wait(60, check=True)
    assert counters(a, guest)["tcp_data_ready_deferred"] > before["tcp_data_ready_deferred"]
