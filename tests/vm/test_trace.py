# SPDX-License-Identifier: GPL-2.0
"""The tracepoints rds:*."""

import errno
import re

import pytest
from faults import faults_within, place_of
from rdsvm.cluster import PAIR
from slow_reader import run_slow_reader
from test_pool import SMALL_POOL, starve
from tracing import EVENTS, REQUEST, parse, sizes_of, traced, ways
from traffic import counters, new_devices, new_type, ping, ports, read_late, wait_until

# The tracepoints are the same on both kernels. Only the debug kernel detects that they access freed
# memory; tests for that are short.
pytestmark = [pytest.mark.impls("rust"), pytest.mark.long]

ENDS = f"<::ffff:{PAIR[0]},::ffff:{PAIR[1]},0>"


@pytest.fixture
def trace(node):
    with traced(node) as read:
        yield read


def told(trace, line):
    """Waits until a line is in the trace."""
    wait_until(lambda: line in trace(), lambda: f"{line!r} is not in {trace()}")


def test_connections(node, tools, trace):
    tos = new_type()
    ends = f"<::ffff:{PAIR[0]},::ffff:{PAIR[1]},{tos}>"
    ping(tools, node, PAIR[1], PAIR[0], tos=tos)
    start = f"conn_state: {ends} "
    told = [x.removeprefix(start) for x in trace() if x.startswith(start)]
    # The step is that from the address to the route.
    assert told == ["wanted: down -> preparing", "step: preparing -> preparing",
                    "prepared: preparing -> connecting", "established: connecting -> up"]


# The error number of a refused key is another one on iWARP.
@pytest.mark.short
@pytest.mark.kinds("rxe")
def test_errors(node, tools, guest, trace):
    """A peer is missing, and then a peer's device refuses a key. Both ends trace the refusal."""
    nowhere = "203.0.113.7"
    node.run([tools / "rds-ping", "-c", "1", "-W", "1", "-I", PAIR[0], nowhere], check=False)
    node.run(f"until grep 'rds_error.*{nowhere}' /sys/kernel/tracing/trace; do sleep 0.1; done", timeout=60)
    told = next(x for x in trace() if x.startswith("error: ") and nowhere in x)
    assert re.fullmatch(rf"error: <::ffff:{PAIR[0]},::ffff:{nowhere},0> address error: -\d+", told), told
    node.run(["python3", guest / "refused.py", 1, "bad_keys"], timeout=300)
    # IB_WC_REM_ACCESS_ERR and IB_EVENT_QP_ACCESS_ERR.
    remote_access_error, access_error = 10, 3
    told = trace()
    assert f"error: {ENDS} send: {remote_access_error}" in told
    assert f"error: <::ffff:{PAIR[1]},::ffff:{PAIR[0]},0> queue pair: {access_error}" in told


def test_ends(node, tools, guest):
    """The trace has the reason why a connection ends when neither the CM nor the device reports
    one."""
    extra = "10.9.0.78"
    node.forget()
    with traced(node) as trace:
        node.run(["python3", guest / "reset.py", "one", *PAIR, ports()])
        assert f"error: {ENDS} reset: {-errno.ECONNRESET}" in trace()
        node.run(f"ip addr add {extra}/32 dev rdsv0 && ip route add {extra}/32 dev rdsv1 && "
                 f"ip neigh replace {extra} lladdr $(cat /sys/class/net/rdsv0/address) dev rdsv1 nud permanent")
        node.run(["python3", guest / "laddr.py", "bound", extra])
        ping(tools, node, PAIR[1], extra)
        node.run(f"ip route del {extra}/32 dev rdsv1; ip neigh del {extra} dev rdsv1; ip addr del {extra}/32 dev rdsv0")
        told(trace, f"error: <::ffff:{extra},::ffff:{PAIR[1]},0> address moved: {-errno.EADDRNOTAVAIL}")
        new_devices(node, guest)
        assert f"error: {ENDS} device removal: {-errno.ENODEV}" in trace()


@pytest.mark.short
@pytest.mark.kinds("rxe")
@pytest.mark.flavors("debug")
def test_a_device_that_only_flushes(node, tools):
    """Soft-RoCE has no memory for a packet. It then ends the queue pair and flushes all its work
    requests, sends and receives in any order."""
    node.forget()
    ping(tools, node, PAIR[1], PAIR[0])
    with traced(node) as trace:
        with faults_within(node, place_of(node, "rxe_init_packet", "rdma_rxe"), "failslab", probability=100, times=1):
            ping(tools, node, PAIR[1], PAIR[0], count=1)
        flushed = 5
        assert any(re.fullmatch(rf"error: .* (send|receive): {flushed}", x) for x in trace()), trace()


@pytest.mark.parametrize("tool", (["perf", "list", "rds:*"], ["trace-cmd", "list", "-e", "^rds:"]), ids=lambda it: it[0])
def test_tools_list_them(node, tool):
    told = set(re.findall(r"\brds:rds_\w+", node.run(tool).out))
    assert told == {f"rds:{name}" for name in node.run(["ls", EVENTS]).out.split() if name.startswith("rds_")}
    assert "rds:rds_error" in told


def test_trace_cmd_reads_them(node, tools):
    """trace-cmd has its own parser for the format of an event."""
    recording, tos = "/run/rds.dat", new_type()
    node.run(["trace-cmd", "record", "-q", "-e", "rds", "-o", recording,
              tools / "rds-ping", "-c", 1, "-Q", tos, "-I", *PAIR])
    told = node.run(["trace-cmd", "report", "-i", recording]).out
    ends = f"<::ffff:{PAIR[0]},::ffff:{PAIR[1]},{tos}>"
    assert re.search(rf"rds_conn_state: +{re.escape(ends)} established: connecting -> up", told), told
    node.run(["rm", recording])


@pytest.mark.short
def test_drops(node, tools, guest, trace):
    node.run(["python3", guest / "to_nobody.py", PAIR[0], PAIR[1], ports()])
    assert f"drop: <::ffff:{PAIR[1]},::ffff:{PAIR[0]},0> recv_drop_no_sock 1" in trace()


@pytest.mark.race
@pytest.mark.flavors("release")
def test_requests_that_cross(slow_node, guest):
    with traced(slow_node) as trace:
        before = counters(slow_node, guest)["ib_connect_raced"]
        slow_node.run(["python3", guest / "count.py", "both_connect"], timeout=300)
        refused = counters(slow_node, guest)["ib_connect_raced"] - before
        lines = [x for x in trace() if re.fullmatch(r"drop: <.*> ib_connect_raced 1", x)]
    assert len(lines) == refused > 0, lines


@pytest.mark.parametrize("ends", [("127.0.0.1", "127.0.0.2"), (PAIR[0], PAIR[0])], ids="-".join)
def test_drops_on_this_node(node, guest, trace, ends):
    """Drops are traced without a connection, on loopback and from an address to itself."""
    near, far = ends
    node.run(["python3", guest / "to_nobody.py", near, far, ports()])
    assert f"drop: <::ffff:{far},::ffff:{near},0> recv_drop_no_sock 1" in trace()


# The cases are those of tests/vm/test_counters.py.
@pytest.mark.short
@pytest.mark.kinds("rxe")
@pytest.mark.parametrize("case,peer,drop", (("closed_amid_a_send", "::ffff:127.0.0.1", "recv_drop_dead_sock 1"),
                                            ("closed_unread", "::", "recv_drop_closed 2")))
def test_drops_of_a_closed_socket(node, guest, trace, case, peer, drop):
    node.run(["python3", guest / "count.py", case], timeout=300)
    assert f"drop: <::ffff:127.0.0.1,{peer},0> {drop}" in trace()


def test_congestion(node, guest, trace):
    """The port of a slow reader becomes full, and has room again after a read."""
    run_slow_reader(guest, *((node, x) for x in PAIR))
    told = [x for x in trace() if x.startswith(f"congestion: ::ffff:{PAIR[1]} ")]
    states = [x.split(maxsplit=4)[4] for x in told]
    assert states == ["congested", "has room"] * (len(states) // 2) and states, told
    assert len({x.split()[3] for x in told}) == 1, told


SENT, ARRIVED = ["queued", "posted"], ["received", "delivered", "read"]
MESSAGES = tuple(f"rds_msg_{x}" for x in (*SENT, "acked", *ARRIVED))


@pytest.mark.on_siw
@pytest.mark.short
def test_messages(node, tools):
    """Each step of pings and of their answers is traced once, at its end, with the same numbers.
    Acknowledgments may come later."""
    tos, count = new_type(), 4
    with traced(node, *MESSAGES) as trace:
        ping(tools, node, PAIR[1], PAIR[0], count=count, tos=tos)
        found = {message: steps for message, steps in ways(trace()).items() if message.tos == tos}
    near, far = (f"::ffff:{x}" for x in PAIR)
    pings = [x for x in found if (x.source, x.destination, x.dport) == (near, far, 0)]
    pongs = [x for x in found if (x.source, x.destination, x.sport) == (far, near, 0)]
    assert len(pings) == len(pongs) == count, found
    assert {x.transport for x in found} == {"infiniband"} and {x.bytes for x in found} == {0}, found
    assert len({x.sequence for x in pings}) == len({x.sequence for x in pongs}) == count, found
    # The node answers pings itself, so they are not delivered. The clocks of two processors may
    # differ a little, and so the order.
    acked = [x for x in found if "acked" in found[x]]
    assert acked, found
    for messages, arrived in ((pings, ["received"]), (pongs, ARRIVED)):
        for message in messages:
            steps = [*SENT, *(["acked"] if message in acked else []), *arrived]
            assert sorted(found[message]) == sorted(steps), (message, found[message])


@pytest.mark.short
@pytest.mark.kinds("rxe")
def test_messages_on_this_node(node, tools):
    """On loopback nothing is posted, and there are no sequence numbers."""
    with traced(node, *MESSAGES) as trace:
        ping(tools, node, "127.0.0.2", "127.0.0.1", count=1)
        found = {message: steps for message, steps in ways(trace()).items() if message.transport == "loopback"}
    assert {(x.sequence, x.bytes) for x in found} == {(0, 0)}, found
    near, far = "::ffff:127.0.0.1", "::ffff:127.0.0.2"
    # The node answers the ping itself.
    assert {(x.source, x.destination): steps for x, steps in found.items()} == {
        (near, far): ["queued"], (far, near): ARRIVED[1:]}, found


# Soft-iWARP reports a write before the peer has it. So a frame follows it there, which the peer
# acknowledges.
@pytest.mark.on_siw("release")
@pytest.mark.short
def test_operations_without_messages(node, guest):
    """They are not traced as messages. What is queued is posted, and it arrives with the same
    numbers."""
    node.forget()
    with traced(node, *MESSAGES) as trace:
        node.run(["python3", guest / "operate.py", int(node.kind == "rxe"), "silent"], timeout=600)
        found = {message: steps for message, steps in ways(trace()).items() if message.transport == "infiniband"}
    # The messages of the case that are not empty.
    assert {5, 6} <= {message.bytes for message in found}, found
    lost = {message: steps for message, steps in found.items() if not {*SENT, "received"} <= set(steps)}
    assert not lost, lost


@pytest.mark.on_siw
def test_rings(node, tools, guest):
    """Completions are those that are counted. Receives are posted when a connection begins, and
    again when some were used."""
    tos = new_type()
    with traced(node, "rds_send_completed", "rds_recv_completed", "rds_recv_posted") as trace:
        before = counters(node, guest)
        ping(tools, node, PAIR[1], PAIR[0], count=50, tos=tos)
        after = counters(node, guest)
        lines = trace()

    def numbers(event, ends, pattern):
        return [tuple(map(int, found)) for x in lines if (found := parse(x, event, rf"{ends} {pattern}"))]

    completed, added = r"infiniband completed (\d+) left (\d+)", r"added (\d+) posted (\d+)"
    for event, counter in (("send_completed", "ib_tx_cq_event"), ("recv_completed", "ib_rx_cq_event")):
        seen = sum(count for count, _ in numbers(event, r"<\S+>", completed))
        assert seen >= after[counter] - before[counter] > 0, (event, seen)
    for near, far in (PAIR, PAIR[::-1]):
        ends = re.escape(f"<::ffff:{near},::ffff:{far},{tos}>")
        posted = numbers("recv_posted", ends, added)
        assert len(posted) > 1 and all(0 < count <= depth for count, depth in posted), posted
        depth = max(depth for _, depth in posted)
        received = numbers("recv_completed", ends, completed)
        assert received and all(count > 0 and left <= depth for count, left in received), (depth, received)
        assert sum(count for count, _ in posted) > sum(count for count, _ in received), "more arrived than were posted"
        assert numbers("send_completed", ends, completed), lines


@pytest.mark.flavors("release")
@pytest.mark.kinds("rxe")
def test_ring_without_memory(node, tools, guest, load):
    load(SMALL_POOL)
    with traced(node, "rds_recv_ring_empty") as trace:
        send, recv, count = starve(node, guest)
        lines = wait_until(trace)
        read_late(send, recv, count)
    ends = re.escape(f"<::ffff:{PAIR[1]},::ffff:{PAIR[0]},0>")
    assert any(parse(x, "recv_ring_empty", rf"{ends} added 0 posted ([01])") for x in lines), lines


# Soft-iWARP has no atomic operations, and needs a region for the local memory of a read.
@pytest.mark.short
@pytest.mark.kinds("rxe")
def test_operations(node, guest):
    """Each posted work request completes, and the last one of each operation says so. All
    registered memory is released, and cookies are for peers only."""
    # Regions of earlier tests would be released meanwhile.
    node.forget()
    with traced(node, "rds_op_posted", "rds_op_completed", "rds_mr_registered", "rds_mr_released") as trace:
        node.run(["python3", guest / "operate.py", 1, "cookies", "read_only", "atomics"], timeout=600)
        request = rf"<(\S+),(\S+),0> {REQUEST}"
        memory = r"(\S+) rkey (0x[0-9a-f]+) bytes (\d+) for (peers|an operation)"

        def memory_of(event):
            return sorted(found for x in trace() if (found := parse(x, event, memory)))

        registered = memory_of("mr_registered")
        wait_until(lambda: len(memory_of("mr_released")) == len(registered))
        assert memory_of("mr_released") == registered
        lines = trace()
    posted = [found for x in lines if (found := parse(x, "op_posted", request))]
    completed = [found for x in lines if (found := parse(x, "op_completed", rf"{request} status SUCCESS"))]
    assert sorted(posted, key=str) == sorted(completed, key=str) and posted, (posted, completed)
    # Operations one after the other have different numbers.
    numbers = [number for *_, last, number in posted if last]
    assert len(set(numbers)) == len(numbers) > 1, numbers
    sizes = sizes_of((kind, *rest) for _, _, kind, *rest in posted)
    assert {"write", "read", "fetch_add", "compare_swap"} == {kind for kind, _ in sizes}, sizes
    assert {("write", 5000), ("read", 4096), ("fetch_add", 8)} <= set(sizes), sizes
    assert {to for *_, to in registered} == {"peers", "an operation"}, registered
    # The page of the case is registered for one use, from byte 10 on.
    assert any((size, to) == ("5000", "peers") and rkey != "0x0" for _, rkey, size, to in registered), registered


@pytest.mark.kinds("rxe")
def test_operation_of_several_requests(node, guest):
    """All requests of an operation have its number, and only the last one is the last."""
    with traced(node, "rds_op_posted") as trace:
        node.run(["python3", guest / "operate.py", 1, "transfers"], timeout=600)
        requests = [found for x in trace() if
                    (found := parse(x, "op_posted", rf"<\S+> {REQUEST}"))]
    assert any(not last for _, _, last, _ in requests), requests
    # The areas of the case, each written and read.
    wanted = [1, 4096, 5000, 65536, 65536, 1 << 20, sum(100 + i for i in range(40)), 1024 * 1000]
    assert sizes_of(requests) == [(kind, size) for size in wanted for kind in ("write", "read")], requests


@pytest.mark.kinds("rxe")
def test_failed_operation(node, guest):
    """The completion has the status of the device."""
    node.forget()
    with traced(node, "rds_op_completed") as trace:
        node.run(["python3", guest / "refused.py", 1, "bad_keys"], timeout=300)
        assert any(parse(x, "op_completed", r"<\S+> (\w+) bytes \d+ last operation \S+ status REM_ACCESS_ERR")
                   for x in trace()), trace()
