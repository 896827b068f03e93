# SPDX-License-Identifier: GPL-2.0
"""Messages over each MTU of RoCE fabrics, over two different MTUs, and during changes of the
MTU."""

import pytest
from rdsvm.cluster import PAIR
from traffic import counters, exchange, under_load

NETDEVS = ("rdsv0", "rdsv1")
# Bytes of payload in a packet, by the MTU of the network device. The RDMA device leaves room for
# headers and uses the next smaller MTU of InfiniBand.
PAYLOAD = {1500: 1024, 2200: 2048, 4200: 4096}
# Headers of Ethernet, IPv4, UDP and InfiniBand, and the checksum at the end.
HEADERS = 14 + 20 + 8 + 12 + 4
COUNT, SIZE = 100, 8192


@pytest.fixture
def mtu(node):
    """Sets the MTUs of both ends, and restores them at the end."""
    before = [node.read_file(f"/sys/class/net/{x}/mtu").strip() for x in NETDEVS]

    def change(*values):
        for netdev, value in zip(NETDEVS, values):
            node.run(["ip", "link", "set", netdev, "mtu", value])

    yield change
    change(*before)
    node.stop_all()
    # Connections keep the MTU with which they were made.
    node.forget()


@pytest.mark.impls("rust")
@pytest.mark.kinds("rxe")
@pytest.mark.parametrize(
    "ends",
    [
        # Two nodes with C RDS have this MTU.
        pytest.param((1500, 1500), marks=pytest.mark.long("release", "debug")),
        (2200, 2200),
        # All other tests have this one.
        pytest.param((4200, 4200), marks=pytest.mark.long("release", "debug")),
        (1500, 4200),
        (4200, 1500),
    ],
    ids=lambda x: "-".join(map(str, x)),
)
def test_packets_are_as_large_as_both_ends_take(node, tools, guest, mtu, ends):
    mtu(*ends)
    node.forget()
    # Each message takes many full packets.
    seen = node.start(["python3", guest / "packets.py", NETDEVS[1], COUNT])
    seen.expect("^ready$")
    exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=COUNT, sizes=SIZE)
    longest = int(seen.wait(check=True).out.split()[-1])
    assert longest == PAYLOAD[min(ends)] + HEADERS


@pytest.mark.impls("rust")
@pytest.mark.parametrize(
    "change",
    [(4200, 1500), pytest.param((1500, 4200), marks=pytest.mark.long("release", "debug"))],
    ids=lambda x: "-to-".join(map(str, x)),
)
def test_mtu_changes_under_load(node, tools, guest, mtu, change):
    """No message is lost. A connection whose packets no longer fit is made again."""
    before, after = change
    mtu(before, before)
    node.forget()
    resets = counters(node, guest)["conn_reset"]
    streams = under_load(tools, guest, (node, PAIR[0]), (node, PAIR[1]), node, "rdsv0", count=600, sizes="1..20000")
    mtu(after, after)
    streams.finish()
    if node.kind == "rxe" and after < before:
        assert counters(node, guest)["conn_reset"] > resets
