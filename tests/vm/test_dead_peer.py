# SPDX-License-Identifier: GPL-2.0
"""A peer that has died silently while messages wait for it. Neither the removal of a device nor the
unloading of the module waits for the peer."""

import signal
from contextlib import contextmanager

import pytest
from rdsvm.cluster import must, wire_address
from traffic import forget_each_other, losing, ping, ports, read_late, wait_for_state

pytestmark = [pytest.mark.pairs("rust-rust"), pytest.mark.on_siw]

A, B = wire_address(0, 1), wire_address(0, 2)
# Less than a send buffer takes.
COUNT, SIZE = 10, 8000


@contextmanager
def without_peer(pair, tools, guest, state):
    """Blocks all packets after node a has sent messages to node b. The connection is up, or a is
    still connecting. Yields the sender, and a reader on b."""
    a, b = pair
    program, port = guest / "late_reader.py", ports()
    if state == "connecting":
        forget_each_other(tools, pair, B)
    else:
        ping(tools, a, B)
    recv = b.start(["python3", program, "recv", B, port, COUNT, SIZE])
    recv.expect("ready")
    with losing(pair, 100):
        send = a.start(["python3", program, "send", A, port, B, port, COUNT, SIZE])
        send.expect(f"^sent {COUNT}$")
        # A connection that is up may be given up at any time.
        if state == "connecting":
            wait_for_state(a, A, B, state)
        yield send, recv


@pytest.mark.parametrize("state", ("up", pytest.param("connecting", marks=pytest.mark.long)))
def test_device_goes(pair, tools, guest, state):
    """Messages that wait arrive when the device and the packets are back."""
    a, _ = pair
    device = f"{a.kind}0"
    with without_peer(pair, tools, guest, state) as (send, recv):
        a.run(["rdma", "link", "del", device])
        a.run(["rdma", "link", "add", device, "type", a.kind, "netdev", a.netdevs[0]])
    read_late(send, recv, COUNT)


@pytest.mark.kept
@pytest.mark.parametrize("state", ("up", pytest.param("connecting", marks=pytest.mark.long)))
def test_module_is_unloaded(pair, tools, guest, state):
    a, b = pair
    with without_peer(pair, tools, guest, state) as (send, recv):
        # A socket would keep the module loaded. The messages that were posted to the device are
        # still there.
        send.stop(signal.SIGKILL)
        must(a.unload())
        must(a.load())
    recv.stop()
    ping(tools, a, B)
    ping(tools, b, A)
