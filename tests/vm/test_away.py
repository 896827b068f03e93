# SPDX-License-Identifier: GPL-2.0
"""The first messages to a peer while the local address, or its device, is missing."""

import pytest
from rdsvm.cluster import PAIR, peer_address
from traffic import ping

# Networks of add_peers() that no other test uses.
NETWORKS = {"address": 211, "device": 212, "lines": 213}


def come_back(what, node, guest):
    network = NETWORKS[what]
    node.add_peers(1, network)
    near, far = (peer_address(network, i) for i in (0, 1))
    for host in (near, far):
        node.run(["python3", guest / "laddr.py", "bound", host])
    node.run(["python3", guest / "away.py", what, near, far, "rdsv0", "rdsx0", node.kind], timeout=300)


@pytest.mark.on_c
def test_address(node, guest):
    """The messages wait for the address, as they do on a connection that was up before."""
    come_back("address", node, guest)


# Soft-RoCE warns of objects that C RDS leaves behind when a device goes.
@pytest.mark.impls("rust")
def test_device(node, guest):
    come_back("device", node, guest)


@pytest.mark.impls("rust")
@pytest.mark.kinds("rxe")
def test_lines(node, tools, guest):
    """Failed attempts of an ordinary user do not suppress the log line about a connection that has
    lost its address."""
    near, far = (peer_address(NETWORKS["lines"], i) for i in (0, 1))
    node.add_peers(1, NETWORKS["lines"])
    ping(tools, node, far, near)
    mark = node.mark("attempts")
    node.run(["python3", guest / "attempts.py", PAIR[0]])
    node.wait_log(": cannot connect", mark)
    address = f"{near}/32", "dev", "rdsv0"
    node.run(["ip", "address", "del", *address])
    try:
        node.wait_log(f"{near} -> {far}: the local address is on no RDMA device any more", mark)
    finally:
        node.run(["ip", "address", "add", *address])
