# SPDX-License-Identifier: GPL-2.0
"""Devices that do not do as they should: soft-RoCE with the faults of tests/vm/faulty, whose memory
goes through bounce buffers or an IOMMU. And devices that check how they are used.

Documentation/testing.md has a table of the faults, with the answers of the module.
"""

from dataclasses import dataclass, field

import pytest
from faulty_device import CM_MESSAGES, fault, knob, violations
from probes import Probes
from rdsvm import hardware
from rdsvm.cluster import PAIR, must
from tracing import traced
from traffic import (counters, exchange, new_devices, ping, times_up, under_load, wait_for,
                     wait_until)

# The debug kernel takes several minutes.
pytestmark = [pytest.mark.impls("rust"), pytest.mark.kinds("rxe"), pytest.mark.long]

ALWAYS = -1
# Numbers of the status of a completion (enum ib_wc_status).
LOC_PROT_ERR, REM_ACCESS_ERR = 4, 10


@dataclass
class Row:
    """A fault during verified traffic.

    ends: the connection ends and comes back; None if it may. out_of_order: that is because of a
    completion that was not the next one. settings: other files of the faults.
    """

    fault: str
    times: int = ALWAYS
    skip: int = 0
    ends: bool | None = False
    out_of_order: bool = False
    settings: dict = field(default_factory=dict)

    def __str__(self):
        return "-".join([self.fault, *self.settings])


# Few of the sends are signaled.
TRAFFIC = [
    Row("late"),
    Row("late", settings={"turned": 1}),
    Row("hard_irq"),
    # The message comes again from the peer, and once.
    Row("lose_recv", 1, 5, ends=True, out_of_order=True),
    Row("double_recv", 1, 5, ends=True, out_of_order=True),
    Row("double_send", 1, 4, ends=True, out_of_order=True),
    Row("lose_send", 1, 4),
    Row("cq_error", 1, 20, ends=True),
    Row("qp_fatal", 1, 20, ends=True),
    Row("post_send", 1, 20, ends=True),
    # The ring posts the buffer again, unless the ring grows at this moment.
    Row("post_recv", 1, 20, ends=None),
]


def ends_of(node):
    return (node, PAIR[0]), (node, PAIR[1])


@pytest.mark.parametrize("row", TRAFFIC, ids=str)
def test_traffic(faulty, tools, guest, row):
    """Every message arrives once, in order."""
    node = faulty
    ping(tools, node, PAIR[1], PAIR[0])
    before, found = times_up(node, *PAIR), counters(node, guest)["ib_completion_out_of_order"]
    overtook = knob(node, "overtook")
    with fault(node, row.fault, row.times, row.skip, **row.settings) as seen:
        exchange(tools, *ends_of(node), count=200)
        occurred = seen()
    assert occurred == row.times if row.times > 0 else occurred > 0
    assert (knob(node, "overtook") > overtook) == ("turned" in row.settings)
    if row.ends is not None:
        assert (times_up(node, *PAIR) != before) == row.ends
    assert counters(node, guest)["ib_completion_out_of_order"] - found == row.out_of_order
    ping(tools, node, PAIR[1], PAIR[0])


@dataclass
class FlushRow:
    """A fault while a connection is reset. unflushed: the module gives up waiting for the flush."""

    fault: str
    times: int = ALWAYS
    unflushed: bool = False
    settings: dict = field(default_factory=dict)

    def __str__(self):
        return self.fault


FLUSH = [
    FlushRow("poison"),
    FlushRow("late_flush", settings={"late_ms": 300}),
    FlushRow("lose_flush", unflushed=True),
    FlushRow("scribble"),
    # The connection ends with queue pairs and regions whose calls take long.
    FlushRow("slow_qp", settings={"late_ms": 300}),
    # The first attempt fails.
    FlushRow("create_qp", 1),
    # The CM tries it first, to disconnect.
    FlushRow("modify_qp", 2, unflushed=True),
]


def reset(node, tools):
    node.run([tools / "rds-stress", "--reset", "-r", PAIR[0], "-s", PAIR[1]])


@pytest.mark.parametrize("row", FLUSH, ids=str)
def test_flush(faulty, tools, guest, row):
    """The connection comes back. No buffer is lost: the streams verify what they receive."""
    node = faulty
    ping(tools, node, PAIR[1], PAIR[0])
    ups, before = times_up(node, *PAIR), counters(node, guest)
    with fault(node, row.fault, row.times, **row.settings) as seen:
        reset(node, tools)
        ping(tools, node, PAIR[1], PAIR[0])
        now = wait_for(node, guest, lambda now: times_up(node, *PAIR) != ups and (
            not row.unflushed or now["ib_not_flushed"] > before["ib_not_flushed"]))
        assert seen() > 0
    assert (now["ib_not_flushed"] > before["ib_not_flushed"]) == row.unflushed
    exchange(tools, *ends_of(node), count=50)


@pytest.mark.parametrize("kind", ("REQ", "REP", "RTU", "DREQ", "DREP"))
@pytest.mark.parametrize("how", ("drop", "delay", "double"))
def test_messages_of_the_cm(faulty, tools, guest, how, kind):
    """A connection comes up, and comes back after a reset."""
    node = faulty
    node.forget()
    with fault(node, f"cm_{how}", 1, cm_attribute=CM_MESSAGES[kind], late_ms=300) as seen:
        ping(tools, node, PAIR[1], PAIR[0])
        if kind.startswith("D"):
            reset(node, tools)
            ping(tools, node, PAIR[1], PAIR[0])
        # The CM may answer later than the ping.
        wait_for(node, guest, lambda now: seen() == 1)
    ping(tools, node, PAIR[1], PAIR[0])


@pytest.mark.parametrize("how", ("drop", "delay", "double"))
def test_rejections_of_the_cm(faulty, tools, how):
    """Both ends ask for the connection at the same time, so one request is rejected."""
    node = faulty
    node.forget()
    with fault(node, "cm_delay", 2, cm_attribute=CM_MESSAGES["REQ"], late_ms=2000) as crossed:
        pings = [node.start([tools / "rds-ping", "-I", one, "-c", 3, "-i", "10ms", "-W", 60, other])
                 for one, other in (PAIR, PAIR[::-1])]
        wait_until(lambda: crossed() == 2)
        with fault(node, f"cm_{how}", 1, cm_attribute=CM_MESSAGES["REJ"], late_ms=300) as rejected:
            for x in pings:
                assert "3 sent, 3 received" in x.wait(120).out
            wait_until(lambda: rejected() == 1)
    exchange(tools, *ends_of(node), count=50)


@pytest.mark.parametrize("event", ("cq_error", "qp_fatal"))
def test_event_in_a_hard_interrupt(faulty, tools, event):
    """The connection ends and comes back, as after an event in a softirq."""
    node = faulty
    ping(tools, node, PAIR[1], PAIR[0])
    before = times_up(node, *PAIR)
    with fault(node, "hard_event") as interrupts, fault(node, event, 1, 20) as seen:
        exchange(tools, *ends_of(node), count=200)
        assert (seen(), interrupts()) == (1, 1)
    assert times_up(node, *PAIR) != before
    ping(tools, node, PAIR[1], PAIR[0])


def logged(node, start):
    """Returns True if the device has logged, since a mark, an access to what is not mapped."""
    return any("strict DMA: unmapped" in x for x in node.log(start))


@pytest.mark.way("bounced", "translated")
@pytest.mark.parametrize("name,queue", (("unmapped_send", "send"), ("unmapped_recv", "receive")))
def test_unmapped_buffer(faulty, tools, name, queue):
    """A buffer is posted with an address where nothing is mapped. The device fails the work
    request as an adapter does. The connection ends and comes back, and each message arrives once.
    """
    node = faulty
    node.forget()
    start = node.mark("unmapped")
    # The first receive of a new connection gets the first frame.
    with (violations(node) as found, traced(node, "rds_error") as errors,
          fault(node, name, 1) as seen):
        ping(tools, node, PAIR[1], PAIR[0])
        assert (seen(), found()) == (1, {"unmapped": 1})
        lines = errors()
        assert any(x.endswith(f"{queue}: {LOC_PROT_ERR}") for x in lines), lines
    assert max(map(int, times_up(node, *PAIR))) > 1
    assert logged(node, start)
    exchange(tools, *ends_of(node), count=50)


@pytest.mark.way("translated")
def test_unmapped_region(faulty, guest):
    """A peer writes to registered memory that is not mapped for the device. The write fails as one
    with a wrong key does: the program is told, and no byte changes. The next registration works.
    The device reports the error in an event, too."""
    node = faulty
    start = node.mark("unmapped")
    with (violations(node) as found, traced(node, "rds_error") as errors,
          fault(node, "hard_event") as interrupts):
        result = node.run(["python3", guest / "region_faults.py", "unmapped_region", 1], timeout=300)
        assert result.out.strip() == "refused"
        assert interrupts() > 0
        assert found() == {"unmapped": 1}
        lines = errors()
        assert any(x.endswith(f"send: {REM_ACCESS_ERR}") for x in lines), lines
    assert logged(node, start)


@pytest.mark.way("translated")
@pytest.mark.parametrize("case,times,told", (("reg_mr", 1, "registered"), ("reg_mr", 4, "EIO"), ("local_inv", 1, "ok")))
def test_regions(faulty, guest, case, times, told):
    """The next registration succeeds."""
    result = faulty.run(["python3", guest / "region_faults.py", case, times], timeout=300)
    assert result.out.strip() == told


@pytest.mark.way("translated")
def test_slow_regions(faulty, guest):
    """Regions take a second to end, also while their device is removed. Nothing stays pinned."""
    with fault(faulty, "slow_mr", late_ms=1000) as seen:
        faulty.run(["python3", guest / "operate.py", 1, "transfers", "removed"], timeout=600)
        assert seen() > 0


def test_fatal_event(faulty, tools, guest):
    """The event alone ends nothing: the driver decides whether it removes the device. The node asks
    the RDMA CM about its addresses again."""
    node = faulty
    ping(tools, node, PAIR[1], PAIR[0])
    before = times_up(node, *PAIR)
    streams = under_load(tools, guest, *ends_of(node), node, "rdsv1", count=400)
    with Probes(node, "rdma_bind_addr") as probes:
        node.write_file("/sys/kernel/debug/rxe_faults/fatal", "rdsv0\n")
        wait_until(lambda: probes.hits()[0] > 0)
    streams.finish()
    assert times_up(node, *PAIR) == before


def test_removal_of_a_dead_device(faulty, tools, guest):
    """The device completes nothing, accepts nothing, and is then removed. The messages wait for the
    next device."""
    node = faulty
    ping(tools, node, PAIR[1], PAIR[0])
    streams = under_load(tools, guest, *ends_of(node), node, "rdsv1", count=400)
    knob(node, "dead", 1)
    for i in (0, 1):
        node.run(f"rdma link del rdsx{i}")
    knob(node, "dead", 0)
    for i in (0, 1):
        node.run(f"rdma link add rdsx{i} type rxe netdev rdsv{i}")
    streams.finish()
    ping(tools, node, PAIR[1], PAIR[0])


@pytest.mark.way("bounced", "guarded")
# The kernel's own checks of the DMA API belong to each run of make test.
@pytest.mark.way("translated", short=True)
def test_each_access_was_allowed(faulty, tools, guest):
    """The driver has checked each access. When it is unloaded nothing is mapped any more."""
    node = faulty
    exchange(tools, *ends_of(node), count=200)
    # Peers never access a bounce buffer.
    if node.dma != hardware.BOUNCED:
        node.run(["python3", guest / "operate.py", 1, "transfers"], timeout=600)
        before = knob(node, "strict/regions")
        node.run(["python3", guest / "operate.py", 1, "atomics"], timeout=600)
        # Nothing else in these cases accesses a region.
        assert knob(node, "strict/regions") > before
    # Messages that wait move to other buffers.
    streams = under_load(tools, guest, *ends_of(node), node, "rdsv1", count=400)
    new_devices(node, guest)
    streams.finish()
    exchange(tools, *ends_of(node), count=100, sizes="boundary")
    assert knob(node, "strict/accesses") > 1000
    assert (knob(node, "strict/poisoned") > 0) == (node.dma != hardware.TRANSLATED)
    assert not node.forbidden()
    node.stop_all()
    must(node.unload())
    node.run("rdma link del rdsx0 && rdma link del rdsx1 && rmmod rdma_rxe")
    if node.debug:
        # The kernel's own checks of the DMA API. They end if they run out of memory.
        found = [node.read_file(f"/sys/kernel/debug/dma-api/{x}").strip() for x in ("error_count", "disabled")]
        assert found == ["0", "N"]
    # The next test needs the driver.
    node.spent = True
