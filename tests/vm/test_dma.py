# SPDX-License-Identifier: GPL-2.0
"""Soft-RoCE that accesses memory through the DMA API, as adapters do
(configs/patches/rxe-dma-device.cocci).

All memory that the device gets has to be mapped. The kernel copies to and from bounce buffers only
on calls of the DMA API.
"""

import re
from contextlib import contextmanager

import pytest
from probes import Probes
from rdsvm import cluster
from rdsvm.cluster import NO_KMEMLEAK, PAIR, PAIR6, wire_address
from traffic import exchange, new_devices, ping, under_load

pytestmark = pytest.mark.kinds("rxe")

# No device has this address.
NOBODY = "10.9.0.99"
WAYS = "bounced", "translated"


@contextmanager
def one_node(tmp_path, impl, flavor, way):
    """Yields a node with a pair of devices, and RDS loaded. The node has to be without complaints
    at the end."""
    # Unloading this module checks its memory.
    node = cluster.one_node(tmp_path, impl, flavor, dma=way, cmdline=NO_KMEMLEAK)
    try:
        node.add_pair()
        cluster.must(node.load())
        start = node.mark("loaded")
        yield node
        assert not (found := node.complaints(start)), found[0]
    finally:
        node.kill()


def verified(tools, node, way, count):
    """Exchanges messages. Checks that the device has accessed memory in this way."""
    for ends in (PAIR, PAIR6):
        ping(tools, node, ends[1], ends[0])
    if way == "bounced":
        assert node.bounced_slots() > 0
    # The device looks up each address that it accesses.
    with Probes(node, "iommu_iova_to_phys") as probes:
        exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=count)
        translations, = probes.hits()
    assert translations > count if way == "translated" else translations == 0


@pytest.mark.impls("rust")
@pytest.mark.parametrize("way", WAYS)
def test_traffic(way, tmp_path, flavor, tools, guest):
    """Verified traffic runs, also while devices go and come back. Operations run only in the
    translated case, because memory of peers cannot bounce. Otherwise they wait for a peer that does
    not exist, without exhausting the bounce buffers. At the end no bounce buffer is left."""
    with one_node(tmp_path, "rust", flavor, way) as node:
        verified(tools, node, way, 50 if node.debug else 200)
        ends = ((node, PAIR[0]), (node, PAIR[1]))
        if not node.debug:
            exchange(tools, *ends, count=32, sizes="boundary")
        if way == "translated":
            node.run(["python3", guest / "operate.py", 1, "transfers", "atomics"], timeout=600)
        else:
            node.run(["python3", guest / "bounced_operations.py", PAIR[0], NOBODY], timeout=600)
        # Messages that wait move to other buffers.
        streams = under_load(tools, guest, *ends, node, "rdsv1", count=100 if node.debug else 400)
        new_devices(node, guest)
        streams.finish()
        node.stop_all()
        cluster.must(node.unload())
        for i in (0, 1):
            node.run(f"rdma link del rdsx{i}")
        assert not node.dma_errors()
        if way == "bounced":
            # Only RDMA devices use bounce buffers here.
            assert node.bounced_slots() == 0


@pytest.mark.impls("c")
@pytest.mark.flavors("release")
@pytest.mark.parametrize("way", WAYS)
def test_c_rds(way, tmp_path, flavor, tools):
    """C RDS uses the device: a check of the device itself. It is not unloaded, because it does not
    survive that with connections."""
    with one_node(tmp_path, "c", flavor, way) as node:
        verified(tools, node, way, 200)


def bounced_by_rxe(node):
    """Starts to record the bounce buffers of soft-RoCE. Returns a function that returns how many
    were taken, each for a part of a mapping of at most 256 KiB."""
    events = "/sys/kernel/tracing/events/swiotlb/swiotlb_bounced"
    node.run(f"""echo 'dev_name ~ "rxe_dma*"' >{events}/filter && echo 1 >{events}/enable""")

    def taken():
        node.write_file(f"{events}/enable", "0")
        return len(re.findall("swiotlb_bounced: ", node.run("cat /sys/kernel/tracing/trace").out))

    return taken


@pytest.mark.pairs("rust-rust")
@pytest.mark.flavors("release")
@pytest.mark.parametrize("size", (64 << 10, 512 << 10))
def test_operations_over_a_wire(size, tmp_path, flavor, guest):
    """Local memory of reads, writes and atomics takes bounce buffers; that of the peer does not.
    All bytes arrive in the memory of the program."""
    a, b = nodes = cluster.two_nodes(tmp_path, ("rust", "rust"), flavor, ways=("bounced", None), cmdline=NO_KMEMLEAK)
    try:
        for m in nodes:
            cluster.must(m.load())
        marks = [m.mark("loaded") for m in nodes]
        program, taken = ["python3", guest / "sized_operations.py"], bounced_by_rxe(a)
        user = a.start([*program, "user", wire_address(0, 1), wire_address(0, 2), size])
        user.expect("^ready$")
        owner = b.start([*program, "owner", wire_address(0, 2), wire_address(0, 1), size])
        count = int(user.finish(timeout=300).out.split()[1])
        owner.wait(60, check=True)
        # Buffers of messages also bounce.
        assert taken() >= count
        for m, mark in zip(nodes, marks):
            m.stop_all()
            cluster.must(m.unload())
            assert not (found := m.complaints(mark)), found[0]
    finally:
        for m in nodes:
            m.kill()
