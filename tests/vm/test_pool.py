# SPDX-License-Identifier: GPL-2.0
"""Buffer pools and receive rings: what they cost, and what they do when memory is short."""

import json

import pytest
from rdsvm import cluster
from rdsvm.cluster import PAIR, must
from traffic import Streams, exchange, let_packets_pass, ping, ports

pytestmark = [pytest.mark.impls("rust"), pytest.mark.long]

FRAGMENTS_OF_1MIB = 256
KPROBES = "/sys/kernel/tracing/kprobe_events"


def counters(node, guest):
    return json.loads(node.run(["python3", guest / "counters.py"]).out)


def change(node, guest, before, name):
    return counters(node, guest)[name] - before[name]


def wait_for(node, guest, condition):
    """Reads the counters until they are as they should be; there is no event to wait for."""
    for _ in range(240):
        seen = counters(node, guest)
        if condition(seen):
            return seen
        node.run(["sleep", "0.5"])
    raise AssertionError(f"waited in vain, the counters are {seen}")


class Probes:
    """Counts the calls of functions of the module."""

    def __init__(self, node, *functions):
        self.node, self.functions = node, functions

    def __enter__(self):
        for name in self.functions:
            self.node.run(f"echo 'p:rdspool/{name} rds_rust:{name}' >>{KPROBES} && "
                          f"echo 1 >{KPROBES.replace('kprobe_events', '')}events/rdspool/{name}/enable")
        return self

    def __exit__(self, *_):
        self.node.run(f"cd {KPROBES.replace('kprobe_events', '')}; echo 0 >events/rdspool/enable; "
                      f"{'; '.join(f'echo -:rdspool/{x} >>kprobe_events' for x in self.functions)}")

    def hits(self):
        lines = self.node.run("cat /sys/kernel/tracing/kprobe_profile").out.splitlines()
        found = {x.split()[0]: int(x.split()[1]) for x in lines}
        return [found[name] for name in self.functions]


def late_reader(guest, node, count, size, ends=PAIR):
    """A sender and a receiver that does not read yet: (sender, receiver)."""
    program, port = guest / "late_reader.py", ports()
    recv = node.start(["python3", program, "recv", ends[1], port, count, size])
    recv.expect("ready")
    send = node.start(["python3", program, "send", ends[0], port + 1, ends[1], port, count, size])
    return send, recv


def read_late(send, recv, count):
    recv.write("read\n")
    recv.expect(f"^all {count}$")
    send.expect(f"^sent {count}$")
    send.write("done\n")
    for process in (send, recv):
        process.wait(check=True)


def test_nothing_is_mapped_for_a_message(node, tools):
    """Buffers are mapped with their shard. Once there are enough shards, no message makes one, however
    large it is."""
    large = {"sizes": "1000000..1000000"}
    exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=10, **large)
    with Probes(node, "rds_ib_dma_map", "rds_alloc_shard", "rds_ib_post_recv") as probes:
        exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=40, **large)
        maps, allocations, posts = probes.hits()
    assert posts > 40, "the probes do not see the module"
    frames = 2 * 40 * FRAGMENTS_OF_1MIB
    assert max(maps, allocations) * 50 < frames


def test_receives_are_posted_in_chains(node, tools):
    with Probes(node, "rds_ib_post_recv") as probes:
        exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=3000, sizes="1..100")
        posts, = probes.hits()
    assert 0 < posts * 3 < 6000


def test_rings_grow_and_get_small_again(node, tools, guest):
    """And the memory that was posted comes back, though nothing more is sent."""
    before = counters(node, guest)
    for _ in range(20):
        exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=100, sockets=4,
                 sizes="100000..200000")
        if change(node, guest, before, "ib_rx_ring_grown"):
            break
    else:
        raise AssertionError("no ring grew")
    after = wait_for(node, guest, lambda now: now["ib_rx_ring_shrunk"] - before["ib_rx_ring_shrunk"]
                     >= now["ib_rx_ring_grown"] - before["ib_rx_ring_grown"])
    # Each end: a ring of 15, and sends of which nothing was heard yet.
    ends = after["ib_pool_bufs_in_use"] / (2 * (15 + 16))
    assert ends <= 3, f"buffers for {ends} connections are in use"


def test_shrinker(node, tools, guest):
    """What is empty goes back when the kernel asks."""
    exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=20, sizes="1000000..1000000")
    before = counters(node, guest)
    node.run("echo 2 >/proc/sys/vm/drop_caches")
    after = counters(node, guest)
    gone = before["ib_pool_bytes"] - after["ib_pool_bytes"]
    assert gone >= 1 << 20
    assert after["ib_pool_shrunk_bytes"] - before["ib_pool_shrunk_bytes"] >= 1 << 20
    exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=20)


def test_unneeded_memory_goes_after_a_while(node, tools, guest):
    exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=20, sizes="1000000..1000000")
    before = counters(node, guest)
    assert before["ib_pool_bytes"] > 2 << 20
    after = wait_for(node, guest, lambda now: now["ib_pool_bytes"] < 3 << 19)
    assert after["ib_pool_shrunk_bytes"] == before["ib_pool_shrunk_bytes"]


@pytest.mark.parametrize("index", (0, 1), ids=("sender", "receiver"))
def test_device_goes_and_comes_back(node, tools, guest, index):
    """Under load: what was under way waits in memory of no device, and all of it comes through the new
    one."""
    streams = Streams(tools, (node, PAIR[0]), (node, PAIR[1]), count=3000, sizes="1..30000")
    let_packets_pass(guest, node, "rdsv0", 500)
    assert streams.running(), "the device was to go under load"
    node.run(["rdma", "link", "del", f"rdsx{index}"])
    try:
        # It had queued messages, and now gets some that no device has seen.
        let = node.run(["python3", guest / "counters.py"])
        assert json.loads(let.out)["ib_pool_bytes"] > 0
    finally:
        node.run(["rdma", "link", "add", f"rdsx{index}", "type", "rxe", "netdev", f"rdsv{index}"])
    streams.finish()


@pytest.mark.flavors("release")
def test_memory_of_an_idle_connection(flavor, guest, tmp_path):
    """Both ends together, with the queues of the device's driver."""
    node = cluster.one_node(tmp_path, "rust", flavor, cpus=1)
    try:
        node.add_pair()
        must(node.load())
        result = node.run(["python3", guest / "idle_memory.py", 4, 48], timeout=600)
        kib = json.loads(result.out)
        assert kib["free"] <= 768, kib
    finally:
        node.kill()
