# SPDX-License-Identifier: GPL-2.0
"""First messages between addresses whose neighbours the kernel does not know yet.

All other labs have permanent entries in their neighbour tables.
"""

import json
from contextlib import contextmanager

import pytest

pytestmark = pytest.mark.impls("rust")

# The number of wires. The neighbours of each are unknown once.
WIRES = 3
# The connection manager waits two seconds when it has missed the answer. Only the fastest wire has
# to meet the limit, so a busy machine does not matter.
LIMIT = 1.9


def ends(wire):
    return f"10.77.{wire}.1", f"10.77.{wire}.2"


@contextmanager
def new_wires(node, guest):
    """Creates wires with an RDMA device and one address on each end, without entries in neighbour
    tables."""
    names = [(f"rdsn{wire}a", f"rdsn{wire}b") for wire in range(WIRES)]
    for wire, both in enumerate(names):
        node.run("ip link add {} type veth peer name {}".format(*both))
        for netdev, mine, theirs in zip(both, ends(wire), ends(wire)[::-1]):
            node.run(f"sysctl -q net.ipv4.conf.{netdev}.accept_local=1 net.ipv4.conf.{netdev}.rp_filter=0"
                     f" && ip link set {netdev} up && ip addr add {mine}/32 dev {netdev}"
                     f" && ip route add {theirs}/32 dev {netdev}"
                     f" && rdma link add {netdev} type {node.kind} netdev {netdev}")
    try:
        for wire in range(WIRES):
            for address in ends(wire):
                node.run(["python3", guest / "laddr.py", "bound", address])
        yield names
    finally:
        for both in names:
            node.run("rdma link del {} && rdma link del {} && ip link del {}".format(*both, both[0]))


# On the debug kernel an answer may take longer than the limit.
@pytest.mark.long
@pytest.mark.on_siw("release")
def test_first_message(node, guest):
    """A neighbour may answer before the connection manager waits for the answer."""
    with new_wires(node, guest) as names:
        for netdev in (netdev for both in names for netdev in both):
            known = json.loads(node.run(f"ip -4 -j neigh show dev {netdev}").out)
            assert not known, f"{netdev} has neighbours: {known}"
        pairs = [address for wire in range(WIRES) for address in ends(wire)]
        result = node.run(["python3", guest / "first_message.py", *pairs], timeout=300)
    took = json.loads(result.out)
    assert min(took) < LIMIT, f"the first messages took {took} s"
