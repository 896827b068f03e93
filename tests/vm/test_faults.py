# SPDX-License-Identifier: GPL-2.0
"""Devices that fail, and allocations that fail at one place."""

import json

import pytest
from faults import EVERYWHERE, KNOBS, faults, faults_within, place, place_in_kernel, place_of, place_of_rust
from rdsvm.cluster import PAIR
from tracing import traced
from traffic import connection, counters, ping, ports, wait_for

pytestmark = [pytest.mark.impls("rust"), pytest.mark.flavors("debug")]


@pytest.mark.kinds("rxe")
def test_queue_pair_that_is_never_flushed(node, tools, guest):
    """A queue pair for which soft-RoCE finds no memory when it is made ready never flushes what is
    posted to it. It is destroyed all the same, and the connection comes up when there is memory."""
    node.forget()
    before = counters(node, guest)["ib_not_flushed"]
    with faults_within(node, place_of(node, "rxe_modify_qp", "rdma_rxe"), "failslab", probability=100):
        waiting = node.start([tools / "rds-ping", "-c", "1", "-W", "120", "-I", PAIR[0], PAIR[1]])
        wait_for(node, guest, lambda now: now["ib_not_flushed"] > before)
    waiting.wait(300, check=True)
    ping(tools, node, PAIR[1], PAIR[0])


@pytest.mark.kinds("rxe")
@pytest.mark.parametrize("place", (1, 2), ids=("listener", "worker"))
def test_a_request_that_cannot_be_answered_is_parked(node, tools, guest, place):
    """The route is missing when a request arrives, or when the worker handles it. Soft-RoCE cannot
    survive an answer without a route. The peer gets its answer when there is a route, and asks
    again."""
    node.forget()
    before = counters(node, guest)
    index, = [x["ifindex"] for x in json.loads(node.run("rdma -j dev").out) if x["ifname"] == "rdsx1"]
    node.run(f"echo {index} >{KNOBS}/device")
    with traced(node) as trace:
        with faults_within(node, EVERYWHERE, "rds_faults/cut_path", probability=100, interval=place, times=1):
            ping(tools, node, PAIR[1], PAIR[0])
            assert node.run(f"cat {KNOBS}/cut_path/times").out.strip() == "0"
        parked = [x for x in trace() if "conn_request_parked" in x]
        assert parked == [f"drop: <::ffff:{PAIR[1]},::ffff:{PAIR[0]},0> conn_request_parked 1"]
    assert counters(node, guest)["conn_request_parked"] == before["conn_request_parked"] + 1
    # The value of `device` is kept until the module is unloaded.
    node.forget()


@pytest.mark.kinds("rxe")
@pytest.mark.parametrize("function,folder", (
    (r"8Listener.*8Acceptor.*8on_event", "failslab"),
    (r"18IncomingConnection.*7Request6accept$", "failslab"),
    (r"18IncomingConnection.*7Request6accept$", "fail_page_alloc"),
), ids=("listener", "worker", "queues"))
def test_no_memory_is_no_refusal_of_the_version(node, tools, guest, function, folder):
    """A node without memory rejects a request such that the peer does not try another version."""
    node.forget()
    before, mark = counters(node, guest)["conn_attempt_failed"], node.mark("requests that find no memory")
    # The allocation for the rejection itself succeeds.
    with faults_within(node, place_of_rust(node, function), folder, probability=100, min_order=0,
                       spared=place_in_kernel(node, "cm_send_rej_locked")):
        waiting = node.start([tools / "rds-ping", "-c", "1", "-W", "120", "-I", PAIR[0], PAIR[1]])
        # Half of the failures may be attempts of the side that was asked.
        wait_for(node, guest, lambda now: now["conn_attempt_failed"] >= before + 8)
        assert connection(node, PAIR[0], PAIR[1])["refusals"] == "0"
    waiting.wait(150, check=True)
    ends = f"<::ffff:{PAIR[0]},::ffff:{PAIR[1]},0>"
    node.wait_log(f"Active conn connected {ends} version 4[.]1", mark)


@pytest.mark.kinds("rxe")
def test_a_failed_accept_is_no_refusal_of_the_version(node, tools, guest):
    """rdma_accept() rejects a request without data when it fails. The peer repeats its proposal."""
    node.forget()
    before, mark = counters(node, guest)["conn_attempt_failed"], node.mark("requests that are not accepted")
    with faults_within(node, place_in_kernel(node, "ib_send_cm_rep"), "failslab", probability=100, times=2):
        ping(tools, node, PAIR[1], PAIR[0])
    # Both ends count.
    assert counters(node, guest)["conn_attempt_failed"] >= before + 4
    ends = f"<::ffff:{PAIR[0]},::ffff:{PAIR[1]},0>"
    node.wait_log(f"Active conn connected {ends} version 4[.]1", mark)


@pytest.mark.long
@pytest.mark.kinds("rxe")
def test_many_failed_accepts_of_a_known_peer(node, tools, guest):
    """The last connection has shown that the peer knows 4.1, so any number may fail."""
    ping(tools, node, PAIR[1], PAIR[0])
    before, mark = counters(node, guest)["conn_attempt_failed"], node.mark("a known peer accepts nothing")
    with faults_within(node, place_in_kernel(node, "ib_send_cm_rep"), "failslab", probability=100):
        node.run([tools / "rds-stress", "--reset", "-r", PAIR[0], "-s", PAIR[1]])
        waiting = node.start([tools / "rds-ping", "-c", "1", "-W", "120", "-I", PAIR[0], PAIR[1]])
        # Both ends count, and either may have asked.
        wait_for(node, guest, lambda now: now["conn_attempt_failed"] >= before + 2 * 16)
        assert [connection(node, *x)["refusals"] for x in (PAIR, PAIR[::-1])] == ["0", "0"]
    waiting.wait(150, check=True)
    ends = f"<::ffff:{PAIR[0]},::ffff:{PAIR[1]},0>"
    node.wait_log(f"(?:Active|Passive) conn connected {ends} version 4[.]1", mark)


@pytest.mark.long("release", "debug")
@pytest.mark.on_siw
def test_each_step_of_a_new_device(node, tools, guest):
    mark = node.mark("new devices")
    # The device's driver calls this module.
    with faults_within(node, place(node, "rds_rust"), "failslab", "fail_page_alloc", "fail_usercopy", probability=0,
                       min_order=0):
        node.run(["python3", guest / "new_device.py", "rdsx0", node.kind, "rdsv0", PAIR[0]], timeout=600)
    node.wait_log("rdsx0: cannot be used", mark)
    ping(tools, node, PAIR[1], PAIR[0])
    ping(tools, node, PAIR[0], PAIR[1])


@pytest.mark.kinds("rxe")
def test_no_memory_to_say_that_a_port_is_full(node, guest):
    """Senders on other nodes learn of the full port from the next message."""
    # Otherwise a map may exist already.
    node.forget()
    before = counters(node, guest)
    with traced(node) as trace, faults(node, "failslab", probability=100, ignore_gfp_wait="Y", task_filter="Y"):
        result = node.run(["python3", guest / "lost_mark.py", *PAIR, ports()], timeout=120)
        assert f"drop: <::ffff:{PAIR[0]},::,0> cong_update_failed 1" in trace()
    assert result.out == "held back\n"
    assert counters(node, guest)["cong_update_failed"] > before["cong_update_failed"]


FOLDERS = pytest.mark.parametrize("folder", ("failslab", "fail_page_alloc", "rds_faults/fail_post"),
                                  ids=lambda x: x.rpartition("/")[2])


def steps_of_a_connection(node, tools, guest, folder, every):
    node.forget()
    with faults(node, folder, probability=0, min_order=0):
        program = ["python3", guest / "connect_steps.py", folder, *PAIR, every]
        print(node.run(program, timeout=1200).out)
    ping(tools, node, PAIR[1], PAIR[0])


@pytest.mark.long
@FOLDERS
def test_each_step_of_a_connection(node, tools, guest, folder):
    """CVE-2026-53355: each allocation, or each post, that either side makes to resolve, connect,
    accept and send the first messages fails once."""
    steps_of_a_connection(node, tools, guest, folder, 1)


@pytest.mark.parametrize("folder", ("failslab", "fail_page_alloc"))
def test_some_steps_of_a_connection(node, tools, guest, folder):
    """A tenth of the failing allocations of test_each_step_of_a_connection, other ones each
    time."""
    steps_of_a_connection(node, tools, guest, folder, 10)
