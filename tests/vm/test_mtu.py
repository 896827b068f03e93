# SPDX-License-Identifier: GPL-2.0
"""Messages over each MTU that RoCE fabrics use, over two that differ, and while it changes."""

import json

import pytest
from rdsvm.cluster import PAIR
from traffic import Streams, counters, exchange, let_packets_pass

NETDEVS = ("rdsv0", "rdsv1")
# Packets of a message of 8 KiB with its header, by the MTU of the network device. The device leaves
# room for headers and takes the next smaller of the MTUs that InfiniBand knows.
PACKETS = {1500: 9, 2200: 5, 4200: 3}
COUNT, SIZE = 100, 8192


@pytest.fixture
def mtu(node):
    """Sets the MTUs of both ends; they are as before in the end."""
    before = [node.read_file(f"/sys/class/net/{x}/mtu").strip() for x in NETDEVS]

    def change(*values):
        for netdev, value in zip(NETDEVS, values):
            node.run(["ip", "link", "set", netdev, "mtu", value])

    yield change
    change(*before)
    node.stop_all()
    # Connections keep the MTU that they were made with.
    node.forget()


def sent(node):
    stats = json.loads(node.run("rdma -j statistic show link rdsx0/1").out)
    return stats[0]["sent_pkts"]


@pytest.mark.impls("rust")
@pytest.mark.kinds("rxe")
@pytest.mark.parametrize(
    "ends",
    [(1500, 1500), (2200, 2200), (4200, 4200), (1500, 4200), (4200, 1500)],
    ids=lambda x: "-".join(map(str, x)),
)
def test_packets_are_as_large_as_both_ends_take(node, tools, mtu, ends):
    mtu(*ends)
    node.forget()
    before = sent(node)
    exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=COUNT, sizes=SIZE)
    least = COUNT * PACKETS[min(ends)]
    # Beside the messages there are the acknowledgements of those that come the other way.
    assert least <= sent(node) - before < least + 3 * COUNT


@pytest.mark.impls("rust")
@pytest.mark.parametrize(
    "change", [(4200, 1500), (1500, 4200)], ids=lambda x: "-to-".join(map(str, x))
)
def test_mtu_changes_under_load(node, tools, guest, mtu, change):
    """No message gets lost. A connection whose packets do not fit any more is made anew."""
    before, after = change
    mtu(before, before)
    node.forget()
    resets = counters(node, guest)["conn_reset"]
    streams = Streams(tools, (node, PAIR[0]), (node, PAIR[1]), count=600, sizes="1..20000")
    let_packets_pass(guest, node, "rdsv0", 200)
    mtu(after, after)
    streams.finish()
    if node.kind == "rxe" and after < before:
        assert counters(node, guest)["conn_reset"] > resets
