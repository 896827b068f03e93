# SPDX-License-Identifier: GPL-2.0
"""Soft-RoCE that accesses memory through the DMA API, as adapters do
(configs/patches/rxe-dma-device.cocci).

All memory that the device gets has to be mapped. The kernel copies to and from bounce buffers only
on calls of the DMA API.
"""

import pytest
from probes import Probes
from rdsvm import cluster
from rdsvm.cluster import PAIR, PAIR6
from traffic import exchange, new_devices, ping, under_load

pytestmark = [pytest.mark.impls("rust"), pytest.mark.kinds("rxe")]

# No device has this address.
NOBODY = "10.9.0.99"


def bounced_slots(node):
    """Returns the number of bounce-buffer slots in use. Only RDMA devices use any here."""
    return int(node.run("cat /sys/kernel/debug/swiotlb/io_tlb_used").out)


# The debug kernel takes minutes.
@pytest.mark.flavors("release")
@pytest.mark.parametrize("way", ("bounced", pytest.param("translated", marks=pytest.mark.long)))
def test_traffic(way, tmp_path, flavor, tools, guest):
    """Verified traffic runs, also while devices go and come back. Operations run only in the
    translated case, because memory of peers cannot bounce. Otherwise they wait for a peer that does
    not exist, without exhausting the bounce buffers. At the end no bounce buffer is left."""
    node = cluster.one_node(tmp_path, "rust", flavor, dma=way)
    try:
        before = bounced_slots(node) if way == "bounced" else 0
        node.add_pair()
        cluster.must(node.load())
        start = node.mark("loaded")
        for ends in (PAIR, PAIR6):
            ping(tools, node, ends[1], ends[0])
        if way == "bounced":
            assert bounced_slots(node) > before
        ends = ((node, PAIR[0]), (node, PAIR[1]))
        # The device looks up each address that it accesses.
        with Probes(node, "iommu_iova_to_phys") as probes:
            exchange(tools, *ends, count=200)
            translations, = probes.hits()
        assert translations > 200 if way == "translated" else translations == 0
        exchange(tools, *ends, count=32, sizes="boundary")
        if way == "translated":
            node.run(["python3", guest / "operate.py", 1, "transfers"], timeout=600)
        else:
            node.run(["python3", guest / "bounced_operations.py", PAIR[0], NOBODY], timeout=600)
        # Messages that wait move to other buffers.
        streams = under_load(tools, guest, *ends, node, "rdsv1", count=400)
        new_devices(node, guest)
        streams.finish()
        node.stop_all()
        cluster.must(node.unload())
        for i in (0, 1):
            node.run(f"rdma link del rdsx{i}")
        assert not node.complaints(start), node.complaints(start)[0]
        assert not (leaks := node.scan_leaks()), leaks
        if way == "bounced":
            assert bounced_slots(node) == before
    finally:
        node.kill()
