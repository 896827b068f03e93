# SPDX-License-Identifier: GPL-2.0
"""Buffer pools and receive rings: their cost, and their behaviour when memory is short."""

import errno
import itertools
import json
import re

import pytest
from faults import faults, faults_within, place_of
from probes import Probes
from rdsvm import cluster
from rdsvm.cluster import PAIR, must, wire_address
from tracing import traced
from traffic import (counters, exchange, late_reader, messages, new_devices, ping, ports, read_late,
                     silence_limit, unchanged, under_load, wait_for)

pytestmark = pytest.mark.impls("rust")

# Bytes of a shard that a fragment of 8 KiB takes.
BUFFER = 9344
# Maximum number of buffers of a new connection: posted receives, and sends without a reported
# completion, on both ends.
IDLE_BUFS = 2 * (14 + 16)
# Pools of 2 MiB, the smallest possible. A shard of 64 KiB has 7 buffers for fragments of 8 KiB.
SMALL_POOL, SMALL_POOL_SHARDS = "pool_limit_mib=2", 32
SMALL_POOL_BUFS = SMALL_POOL_SHARDS * 7
FRAMES_OF_1MB = 123


def change(node, guest, before, name):
    return counters(node, guest)[name] - before[name]


@pytest.fixture
def small_pools(load):
    """Pools that soon reach their limit."""
    load(SMALL_POOL)


def starve(node, guest):
    """Lets unread messages take all buffers of a pool. Returns (sender, receiver, number of
    messages to read)."""
    # The send buffer of a socket has room for 26.
    before, count = counters(node, guest), SMALL_POOL_BUFS + 60
    send, recv = late_reader(guest, node, count, 8000, PAIR)
    wait_for(node, guest, lambda now: now["ib_rx_ring_empty"] > before["ib_rx_ring_empty"])
    return send, recv, count


@pytest.mark.long
def test_nothing_is_mapped_for_a_message(node, tools):
    """Buffers are mapped with their shard. Once there are enough shards, no message creates one,
    whatever its size."""
    large, count = {"sizes": "1000000..1000000"}, messages(node.flavor, 40)
    exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=count // 4, **large)
    # The necessary number depends on how far the receivers are behind, which may be more the next
    # time.
    for _ in range(4):
        with Probes(node, "rds_rust_ib_dma_map", "rds_rust_alloc_shard", "rds_rust_ib_post_recv") as probes:
            exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=count, **large)
            maps, allocations, posts = probes.hits()
        assert posts > count, "the probes do not see the module"
        if max(maps, allocations) * 50 < 2 * count * FRAMES_OF_1MB:
            return
    raise AssertionError(f"{maps} mappings and {allocations} allocations for {count} messages each way")


# Only this device exposes its work requests to a probe.
@pytest.mark.kinds("rxe")
def test_receives_are_posted_first(node, tools):
    """Receives are posted before a connection is requested and before one is accepted. Each has one
    piece of memory."""
    node.forget()
    functions = ("rds_rust_ib_post_recv", "rds_rust_rdma_connect_locked", "rdma_accept", "rxe_post_recv pieces=+24(%si):s32")
    with Probes(node, *functions) as probes:
        ping(tools, node, PAIR[1], PAIR[0])
        calls = probes.calls()
    steps = [name for name, _ in itertools.groupby(name for name, _ in calls if name != "rxe_post_recv")]
    assert steps[:4] == ["rds_rust_ib_post_recv", "rds_rust_rdma_connect_locked", "rds_rust_ib_post_recv", "rdma_accept"], calls
    assert {told for name, told in calls if name == "rxe_post_recv"} == {"pieces=1"}, calls


def test_receives_are_posted_in_chains(node, tools, guest):
    """A receive ring is refilled when a quarter is missing, however fast each frame is handled. For
    the smallest ring that is three receives. Each message is a frame, and so is each bare
    acknowledgement."""
    before, count = counters(node, guest), messages(node.flavor, 2000)
    with Probes(node, "rds_rust_ib_post_recv") as probes:
        exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=count, sizes="1..100")
        posts, = probes.hits()
    now = counters(node, guest)
    delivered, acks, grown = (now[x] - before[x] for x in
                              ("recv_queued", "ib_ack_sent", "ib_rx_ring_grown"))
    assert delivered >= 2 * count, "there are counters for the frames"
    # A growing ring posts more receives than it gets frames. A new connection fills its ring and
    # sends a map.
    slack = 382 * min(grown, 2) + 2 * (14 + 2)
    assert posts > 0, "the probes do not see the module"
    assert posts * 3 <= delivered + acks + slack, (posts, delivered, acks, grown)


# On iWARP a ring has its full depth from the start, and needs more than such a pool has.
shallow = pytest.mark.kinds("rxe")


@pytest.mark.long
@shallow
def test_at_its_limit_a_pool_makes_peers_wait(node, tools, guest, small_pools):
    """Unread messages have taken all buffers. The connection stays up without a receive and
    continues when the receiver reads. No message is lost."""
    before = counters(node, guest)
    send, recv, count = starve(node, guest)
    assert "sent" not in send.out, "the sender was to wait"
    now = counters(node, guest)
    # The softirqs found no buffer, and neither did the work item.
    for name in ("ib_pool_refused_limit", "ib_rx_alloc_limit", "ib_rx_refill_from_cq", "ib_rx_refill_from_thread"):
        assert now[name] > before[name], name
    assert 0 < now["recv_queued"] - before["recv_queued"] <= SMALL_POOL_BUFS
    read_late(send, recv, count)
    now = counters(node, guest)
    unchanged(before, now, "conn_reset", "ib_rx_alloc_wait", "ib_pool_refused_memory", "ib_rx_starved_drop")
    exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=100, sizes="1..100")


@pytest.mark.long
@shallow
def test_receiver_without_memory_sends_signs_of_life(node, guest, small_pools):
    """No message is acknowledged until the receiver reads. The sender does not take the peer as
    silent, because the peer sends a frame each second."""
    send, recv, count = starve(node, guest)
    # Shorter than the wait below. A sender that heard nothing for half of it asks, also if the
    # machine pauses.
    with silence_limit(8, node):
        before = counters(node, guest)
        wait_for(node, guest, lambda now: now["ib_ack_received"] >= before["ib_ack_received"] + 10)
        now = counters(node, guest)
    unchanged(before, now, "recv_queued", "conn_keepalive_timeout", "conn_reset")
    read_late(send, recv, count)


@pytest.mark.long
@shallow
def test_acknowledgements_need_no_memory_of_messages(node, guest, small_pools):
    """Messages for a missing peer take all buffers for short ones that they can get. Messages of
    another peer are acknowledged nevertheless."""
    filler = node.start(["python3", guest / "fill_pool.py", PAIR[0], "10.9.0.77"])
    filler.expect("^full")
    before = counters(node, guest)
    count, size = 40, 100
    send, recv = late_reader(guest, node, count, size, PAIR[::-1])
    send.expect(f"^sent {count}$")
    wait_for(node, guest, lambda now: now["ib_ack_received"] > before["ib_ack_received"])
    unchanged(before, counters(node, guest), "ib_ack_send_failure", "conn_reset")
    filler.write("enough\n")
    filler.wait(check=True)
    read_late(send, recv, count)


@shallow
def test_a_map_needs_no_memory_of_messages(node, tools, guest, small_pools):
    """Messages for a missing peer take all buffers for long ones that they can get. A connection
    begins with a map of that length, and comes up nevertheless."""
    filler = node.start(["python3", guest / "fill_pool.py", PAIR[0], "10.9.0.77", 8000])
    filler.expect("^full")
    before = counters(node, guest)
    ping(tools, node, PAIR[1], PAIR[0])
    unchanged(before, counters(node, guest), "conn_reset", "ib_tx_alloc_wait")
    filler.write("enough\n")
    filler.wait(check=True)


@shallow
def test_other_cpus_get_the_lock_while_a_device_goes(node, guest, small_pools):
    """Behind an IOMMU it may take long to unmap a shard. Who frees a buffer waits for the lock with
    softirqs off, so it is held for few shards at a time."""
    filler = node.start(["python3", guest / "fill_pool.py", PAIR[0], "10.9.0.77", 8000])
    filler.expect("^full")
    with Probes(node, "rds_rust_ib_dma_unmap", "rds_rust_spin_unlock_bh") as probes:
        new_devices(node, guest)
        calls = probes.calls("rdma")
    filler.write("enough\n")
    filler.wait(check=True)
    runs = [len(list(run)) for name, run in itertools.groupby(name for name, _ in calls) if name == "rds_rust_ib_dma_unmap"]
    assert sum(runs) >= SMALL_POOL_SHARDS, runs
    assert max(runs) <= 16, runs


@pytest.mark.long
@shallow
def test_rings_grow_and_get_small_again(node, guest, small_pools):
    """A ring that runs low, here because of unread messages, grows. An unused ring shrinks again
    without traffic of programs: the ends send each other probes."""
    before = counters(node, guest)
    send, recv, count = starve(node, guest)
    assert change(node, guest, before, "ib_rx_ring_grown") > 0
    read_late(send, recv, count)
    # Few buffers are also in use when a deep ring has just become empty.
    wait_for(node, guest, lambda now: now["ib_pool_bufs_in_use"] <= IDLE_BUFS
             and now["ib_rx_ring_shrunk"] > before["ib_rx_ring_shrunk"]
             and now["send_probe"] > before["send_probe"])


# This needs two nodes, because the memory for sends must not be limited. test_pair gives the reason
# for the kernel.
@pytest.mark.kinds("rxe")
@pytest.mark.pairs("rust-rust")
@pytest.mark.flavors("release")
def test_messages_in_part_do_not_wait_for_each_other(pair, tools, guest):
    """More messages arrive at once than there is memory for. None of them completes unless another
    one gives way."""
    (a, b), sizes, each = pair, "1000000..1048576", 4
    must(b.unload())
    must(b.load(options=[SMALL_POOL]))
    try:
        ends = []
        for tos in range(6):
            port = ports()
            common = ["--count", each, "--sizes", sizes, "--tos", tos, "--timeout", 300]
            to = f"{wire_address(0, 2)}:{port}"
            ends.append(b.start([tools / "rds-verify", "recv", "--bind", to, *common]))
            ends.append(a.start([tools / "rds-verify", "send", "--bind",
                                 f"{wire_address(0, 1)}:{port}", "--to", to, *common]))
        with traced(b) as trace:
            for process in ends:
                process.wait(600, check=True)
            told = [x for x in trace() if x.endswith(f" receive memory: {-errno.ENOMEM}")]
        assert counters(b, guest)["ib_rx_starved_drop"] > 0, "they were to be in each other's way"
        assert told
    finally:
        b.stop_all()
        b.forget()


@pytest.mark.flavors("release")
@pytest.mark.parametrize("order", (1, pytest.param(2, marks=pytest.mark.long("release", "debug"))))
def test_fragmented_memory(flavor, guest, tools, tmp_path, order):
    """Almost no free memory is in pieces larger than 8 or 16 KiB. Connections come up, and traffic
    runs."""
    # With allocator checks, packets of soft-RoCE need larger pieces. It ends a queue pair that gets
    # none.
    node = cluster.one_node(tmp_path, "rust", flavor, memory="256M", detectors=False)
    try:
        node.add_pair()
        must(node.load())
        exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=10)
        node.forget()
        mark = node.mark("fragmented memory")
        holder = node.start(["python3", guest / "fragment_memory.py", order])
        holder.expect("^fragmented", timeout=600)
        exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=messages(node.flavor, 100),
                 sizes="0..70000")
        seen = counters(node, guest)
        assert seen["ib_pool_small_shards"] > 0
        # What the kernel frees meanwhile may give a connection larger fragments than it can keep.
        # Each of the two ends has one connection.
        first = next(x for x in node.log(mark) if ", fragments of " in x)
        assert seen["conn_reset"] <= (0 if first.endswith("fragments of 4096 bytes") else 2)
        assert not node.complaints()
    finally:
        node.kill()


@pytest.mark.flavors("debug")
def test_no_large_pages(node, guest, tools):
    """The page allocator refuses the module all pieces larger than 8 KiB."""
    node.forget()
    with faults(node, "fail_page_alloc", min_order=2, probability=100):
        exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=30, sizes="0..70000")
        seen = counters(node, guest)
    assert seen["ib_pool_small_shards"] > 0
    assert seen["ib_pool_refused_memory"] > 0, "fragments of 8 KiB have no shards as small as that"


@pytest.mark.flavors("debug")
def test_large_pages_run_out(node, guest, tools):
    """Large pages run out while two nodes are connected with fragments of 8 KiB. Once unread
    messages keep all buffers, the next connection has fragments of 4 KiB."""
    node.forget()
    mark = node.mark("large pages run out")
    exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=10, sizes="1..100")
    node.run("echo 2 >/proc/sys/vm/drop_caches")
    # Soft-RoCE needs such pieces, too, on this kernel.
    shards = place_of(node, "rds_rust_alloc_shard", "rds_rust")
    with faults_within(node, shards, "fail_page_alloc", min_order=2, probability=100):
        before = counters(node, guest)
        # A message takes a buffer for 8 KiB to receive, but one for 4 KiB to send.
        count = 4 * IDLE_BUFS
        send, recv = late_reader(guest, node, count, 4000, PAIR)
        seen = wait_for(node, guest, lambda now: now["ib_rx_starved_drop"] > before["ib_rx_starved_drop"])
        read_late(send, recv, count)
    assert seen["ib_pool_refused_memory"] > before["ib_pool_refused_memory"]
    sizes = [line.rpartition(", fragments of ")[2] for line in node.log(mark) if ", fragments of " in line]
    assert sizes[0] == "8192 bytes", sizes
    assert sizes[-1] == "4096 bytes", sizes


def test_a_sender_pays_for_all(node, guest):
    """Messages of a socket take at most the memory of its send buffer of 1 MiB, and of one
    message."""
    node.forget()
    found = json.loads(node.run(["python3", guest / "send_memory.py"]).out)
    for size, (count, taken) in found.items():
        each = taken / count
        assert (1 << 20) - 2 * each - 256 * count < taken <= (1 << 20) + each, (size, count, taken)
        assert each >= int(size) + 48


def grow_pools(node, tools, guest):
    """Makes pools grow by traffic. Returns the counters then, as on a slow machine the pools may
    shrink on their own."""
    for _ in range(5):
        exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=20, sizes="1000000..1000000")
        seen = counters(node, guest)
        if seen["ib_pool_bytes"] > 2 << 20:
            break
    return seen


@pytest.mark.long
def test_shrinker(node, tools, guest):
    """Empty shards are freed on request of the kernel."""
    before = grow_pools(node, tools, guest)
    node.run("echo 2 >/proc/sys/vm/drop_caches")
    after = counters(node, guest)
    gone = before["ib_pool_bytes"] - after["ib_pool_bytes"]
    assert gone >= 1 << 20
    assert after["ib_pool_shrunk_bytes"] - before["ib_pool_shrunk_bytes"] >= 1 << 20
    exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=20)


@pytest.mark.long
def test_unneeded_memory_goes_after_a_while(node, tools, guest):
    before = grow_pools(node, tools, guest)
    assert before["ib_pool_bytes"] > 2 << 20
    # On iWARP, which has no "receiver not ready", the receive rings stay deep.
    after = wait_for(node, guest, lambda now: now["ib_pool_bytes"] - now["ib_pool_bufs_in_use"] * BUFFER < 3 << 19)
    assert after["ib_pool_shrunk_bytes"] == before["ib_pool_shrunk_bytes"]


@pytest.mark.parametrize("index", (pytest.param(0, marks=pytest.mark.long), 1), ids=("sender", "receiver"))
def test_device_goes_and_comes_back(node, tools, guest, index):
    """A device goes and comes back under load. Messages in progress wait in memory of no device,
    and all of them use the new device."""
    streams = under_load(tools, guest, (node, PAIR[0]), (node, PAIR[1]), node, "rdsv0",
                         count=messages(node.flavor, 1000), sizes="1..30000")
    node.run(["rdma", "link", "del", f"rdsx{index}"])
    try:
        # The connection had queued messages, which have moved. New messages are not mapped for any
        # device.
        let = node.run(["python3", guest / "counters.py"])
        assert json.loads(let.out)["ib_pool_bytes"] > 0
    finally:
        node.run(["rdma", "link", "add", f"rdsx{index}", "type", node.kind, "netdev",
                  f"rdsv{index}"])
    streams.finish()


@pytest.mark.on_siw
@pytest.mark.flavors("release")
@pytest.mark.parametrize("index", (0, 1), ids=("sender", "receiver"))
def test_traffic_when_a_device_is_back(node, tools, guest, index):
    """A waiting message goes with the first attempt that can succeed."""
    ping(tools, node, PAIR[1], PAIR[0])
    device = f"rdsx{index}"
    asks = node.start(["python3", guest / "ask_later.py", *PAIR])
    asks.expect("^bound$")
    node.run(["rdma", "link", "del", device])
    try:
        failed = counters(node, guest)["conn_attempt_failed"]
        asks.write("now\n")
        # These attempts reach the longest backoff. A missing answer of the peer is only noticed
        # after a while, so there is one attempt.
        enough = 12 if index == 0 else 1
        wait_for(node, guest, lambda now: now["conn_attempt_failed"] >= failed + enough)
    finally:
        node.run(["rdma", "link", "add", device, "type", node.kind, "netdev", f"rdsv{index}"])
    with traced(node) as trace:
        # The RDMA core notices the address after a short delay.
        node.run(["python3", guest / "laddr.py", "bound", PAIR[index]])
        node.write_file("/sys/kernel/tracing/trace_marker", f" rds_{device} is known")
        asks.wait(180, check=True)
        _, *told = itertools.dropwhile(lambda x: x != f"{device} is known", trace())
    # The attempt in progress may fail, later ones do not.
    start = f"conn_state: <::ffff:{PAIR[0]},::ffff:{PAIR[1]},0> "
    steps = [x.removeprefix(start).partition(": ")[2] for x in told if x.startswith(start)]
    begun = itertools.dropwhile(lambda x: not re.fullmatch("(down|waiting|up) -> preparing", x), steps)
    assert not any(x.endswith(" -> waiting") for x in begun), told


@pytest.mark.flavors("release")
def test_memory_of_an_idle_connection(flavor, guest, tmp_path):
    """The memory of both ends counts, including the queues of the device's driver."""
    # Allocator checks would take memory that is not the module's.
    node = cluster.one_node(tmp_path, "rust", flavor, cpus=1, detectors=False)
    try:
        node.add_pair()
        must(node.load())
        result = node.run(["python3", guest / "idle_memory.py", 4, 48], timeout=600)
        kib = json.loads(result.out)
        assert kib["free"] <= 768, kib
    finally:
        node.kill()
