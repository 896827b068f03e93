# SPDX-License-Identifier: GPL-2.0
"""The tables of RDS_INFO_*, which are the same on C RDS and on rds_rust.

guest/info.py reads them; this file has the expected contents. A Differ marks a deliberate
difference.
"""

import json

import pytest
from differ import Differ
from rdsvm.cluster import PAIR, PAIR6
from traffic import exchange, flow_control, new_type, one_way, ping, ports, wait_for

LOOP, LOOP6 = "127.0.0.1", "::1"
NOWHERE, NOWHERE6 = "10.9.0.200", "fd09::200"
A, B = PAIR
NO_GID = "00" * 16
SIZES = {10000: 40, 10001: 42, 10003: 26, 10004: 26, 10005: 26, 10006: 28, 10008: 68,
         10011: 65, 10012: 50, 10013: 50, 10014: 50, 10015: 52, 10017: 92}
# Tables that C RDS of Linux does not have.
OF_UEK = {10018: 184, 10019: 208, 10020: 131, 10021: 131}
# Reasons in the table of paths: of the end that a program resets, of the other end, and of
# attempts.
USER_RESET, LOST, UNREACHABLE = 1, (11, 12, 26, 33, 34), (5, 7, 20, 21, 22)
NO_ADDRESS = "C shows 0.0.0.0 for both addresses: it takes them from the wrong end of the mapped ones"


def mapped(host):
    return host if ":" in host else f"::ffff:{host}"


def both(rows, at=2):
    """Returns rows with two addresses as the tables for IPv4 and for IPv6 show them."""
    four = [row for row in rows if ":" not in row[at]]
    return [four, [[*row[:at], *(mapped(x) if x else "::" for x in row[at:at + 2]), *row[at + 2:]]
                   for row in rows]]


def sizes(others=()):
    return {str(x): {**SIZES, **dict(others)}.get(x, "ENOPROTOOPT") for x in range(9999, 10023)}


def none_of_c(tables):
    """Returns the tables as C RDS shows them, without the IPv4 addresses."""
    return [[[*row[:2], "0.0.0.0", "0.0.0.0", *row[4:]] for row in tables[0]], tables[1]]


def messages(local, peer, ports, sizes, tos):
    return both([[i, size, local, peer, *ports, 0, tos] for i, size in enumerate(sizes)])


def gid(host):
    return f"{'0' * 20}ffff{bytes(int(x) for x in host.split('.')).hex()}"


def rdma_connections(names, service_level):
    """Returns the rows with the names (GIDs) that each end has for the two addresses."""
    rows = [[*ends, *its, True, True, True, 8, service_level, "0000"] for ends, its in zip((PAIR, PAIR[::-1]), names)]
    return both(rows, at=0)


def rdma_connections_of_iwarp(node):
    """Returns the rows of iWARP, whose addresses are hardware addresses. The accepting end does not
    know that of its peer. There are no service levels."""
    links = json.loads(node.run("ip -j addr").out)
    hardware = {x["local"]: link["address"] for link in links for x in link["addr_info"]}
    x, y = (hardware[host].replace(":", "").ljust(len(NO_GID), "0") for host in PAIR)
    return rdma_connections([(x, y), (y, NO_GID)], 0)


def unsent(local, nowhere):
    sent = messages(local, nowhere, (4001, 4002), (10, 20000, 0), 6)
    connecting = [] if ":" in local else [[[2], [2]]]
    rest = [[[3, 0, mapped(nowhere)]], *connecting, [[], []],
            both([[local, nowhere, NO_GID, NO_GID, 0, 0, 0, 0, 0, 6, 0, "0000", 0]], at=0), 0]
    if ":" in local:
        return [*sent, *rest]
    return Differ(c=[*none_of_c(sent), *rest], rust=[*sent, *rest], reason=NO_ADDRESS)


# Counters of the core and of the IB transport.
COUNTERS = """
    conn_reset recv_drop_bad_checksum recv_drop_old_seq recv_drop_no_sock
    recv_drop_dead_sock recv_deliver_raced recv_delivered recv_queued
    recv_immediate_retry recv_delayed_retry recv_ack_required recv_rdma_bytes recv_ping
    send_queue_empty send_queue_full send_lock_contention send_lock_queue_raced
    send_immediate_retry send_delayed_retry send_drop_acked send_ack_required
    send_queued send_rdma send_rdma_bytes send_pong page_remainder_hit
    page_remainder_miss copy_to_user copy_from_user cong_update_queued
    cong_update_received cong_send_error cong_send_blocked recv_bytes_added_to_sock
    recv_bytes_freed_fromsock send_stuck_rm mprds_catchup_tx0_retries ib_connect_raced
    ib_listen_closed_stale ib_evt_handler_call ib_tasklet_call ib_tx_cq_event
    ib_tx_ring_full ib_tx_throttle ib_tx_sg_mapping_failure ib_tx_stalled
    ib_tx_credit_updates ib_rx_cq_event ib_rx_ring_empty ib_rx_refill_from_cq
    ib_rx_refill_from_thread ib_rx_alloc_limit ib_rx_total_frags ib_rx_total_incs
    ib_rx_credit_updates ib_ack_sent ib_ack_send_failure ib_ack_send_delayed
    ib_ack_send_piggybacked ib_ack_received ib_rdma_mr_8k_alloc ib_rdma_mr_8k_free
    ib_rdma_mr_8k_used ib_rdma_mr_8k_pool_flush ib_rdma_mr_8k_pool_wait
    ib_rdma_mr_8k_pool_depleted ib_rdma_mr_1m_alloc ib_rdma_mr_1m_free
    ib_rdma_mr_1m_used ib_rdma_mr_1m_pool_flush ib_rdma_mr_1m_pool_wait
    ib_rdma_mr_1m_pool_depleted ib_rdma_mr_8k_reused ib_rdma_mr_1m_reused ib_atomic_cswp
    ib_atomic_fadd
""".split()
LEFT = messages(A, B, (4002, 4001), (5000,), 8)
UNREAD = both([[None, 10, LOOP, LOOP, 4001, 4002, 0, 0], [None, 5000, LOOP, LOOP, 4001, 4002, 0, 0],
               [None, 0, LOOP, LOOP, 4001, 4002, 0, 0]])
LOOP_SOCKET, LOOP_MESSAGE = (106496, LOOP, LOOP, 4001), (LOOP, LOOP, 4001)


def lengths(empty, behind):
    return {**{str(x): ["ENOSPC", 84, True] for x in (-84, -83, -56, -1)},
            **{str(x): [28, 84, True] for x in (0, 1, 4012)},
            "negative": "EINVAL", "longest": "EINVAL", "empty": [26, 0], "empty, with room": [26, 0],
            "bad memory": "EFAULT", "empty, bad memory": empty, "bad memory behind it": behind}


EXPECTED = {
    "record_sizes": Differ(c=sizes(), rust=sizes(OF_UEK), reason="programs for Oracle's kernels read these tables"),
    "counter_names": COUNTERS,
    "lengths": Differ(c=lengths("EFAULT", "EAGAIN"), rust=lengths([26, 0], [28, 84]),
                      reason="C checks the whole buffer first, even if the message is shorter"),
    "sockets": [
        [[*LOOP_SOCKET, 4004, 106496, 0], [30000, A, "0.0.0.0", 4003, 0, 40000, 2]],
        [[106496, mapped(LOOP), mapped(LOOP), 4001, 4004, 106496, 0],
         [106496, LOOP6, LOOP6, 4002, 4005, 106496, 1],
         [30000, mapped(A), "::", 4003, 0, 40000, 2]]],
    "unbound_and_closed_sockets": [],
    "unread_on_loopback": both([[None, 10, *LOOP_MESSAGE, 4002, 0, 0],
                                [None, 5000, *LOOP_MESSAGE, 4003, 0, 0],
                                [None, 0, *LOOP_MESSAGE, 4002, 0, 0]]),
    "unread_and_looked_at": [UNREAD, UNREAD],
    "unread_from_itself": both([[None, 10, A, A, 4001, 4002, 0, 4]]),
    "unread_from_a_peer": [*messages(B, A, (4001, 4002), (10, 20000, 0), 4), 2, 20000],
    "unread_from_a_peer_v6": [*messages(*PAIR6[::-1], (4001, 4002), (10, 20000, 0), 4), 2, 20000],
    "unsent_to_nobody": unsent(A, NOWHERE),
    "unsent_to_nobody_v6": unsent(PAIR6[0], NOWHERE6),
    "unacknowledged": Differ(c=none_of_c(LEFT), rust=LEFT, reason=NO_ADDRESS),
    "connections_that_are_up": [
        [[0, 1, B, A, 4], [1, 0, A, B, 4]],
        [[0, 1, mapped(B), mapped(A), 4], [1, 0, mapped(A), mapped(B), 4]]],
    "rdma_connections": Differ(
        *(rdma_connections([[gid(host) for host in ends] for ends in (PAIR, PAIR[::-1])], level) for level in (8, 0)),
        reason="on RoCE the priority map of the network device decides"),
    "namespaces": [[4001, 4002], [3], [0] * 6, [], [4011, 4012]],
}


@pytest.fixture(scope="session")
def shown():
    """The tables of each implementation on each kind of devices. The first test that asks fills
    them."""
    return {}


@pytest.mark.on_c
@pytest.mark.parametrize("case", EXPECTED)
def test_info(node, shown, guest, case):
    who = node.impl, node.kind
    if who not in shown:
        if node.impl == "rust":
            # A connection that was forgotten would continue with higher numbers.
            node.forget()
        result = node.run(["python3", guest / "info.py"], check=False, timeout=1200)
        lines = [json.loads(line) for line in result.out.splitlines()]
        shown[who] = {x["case"]: x["value"] for x in lines}
        assert set(shown[who]) == set(EXPECTED), f"not all cases ran: {result}"
    expected = EXPECTED[case]
    if case == "rdma_connections" and node.kind == "siw":
        expected = rdma_connections_of_iwarp(node)
    if isinstance(expected, Differ):
        expected = getattr(expected, node.impl)
    assert shown[who][case] == expected


@pytest.mark.impls("rust")
def test_counters(node, tools, guest):
    """Each counter follows Documentation/abi.md. Some are checked for their number, others only for
    being counted at all."""
    # After this there are no connections, and all counters are 0.
    node.forget()
    # Pairs of counters: one of one end, and the corresponding one of the other end.
    same = (("ib_ack_sent", "ib_ack_received"), ("recv_ping", "send_pong"),
            ("recv_bytes_added_to_sock", "recv_bytes_freed_fromsock"),
            ("ib_tx_credit_updates", "ib_rx_credit_updates"))
    with flow_control(node):
        ping(tools, node, B, A, count=3)
        exchange(tools, (node, A), (node, B), count=400, sizes="0..9000")
        # Messages of the other direction may have carried all acknowledgements so far.
        one_way(tools, (node, A), (node, B), count=100)
        # Messages in flight at the end of the streams are counted at the other end soon after.
        seen = wait_for(node, guest, lambda now: all(now[x] == now[y] for x, y in same))
    # There are other pings too: rds-verify sends some at its start, and the module sends probes to
    # make receive rings smaller.
    assert seen["recv_ping"] >= 3 + seen["send_probe"], seen
    assert seen["recv_delivered"] >= 803, seen
    assert seen["send_queued"] >= seen["send_drop_acked"] > 700, seen
    for name in ("recv_bytes_added_to_sock", "ib_evt_handler_call", "ib_tx_cq_event",
                 "ib_rx_cq_event", "ib_ack_sent", "ib_tx_credit_updates"):
        assert seen[name] > 0, (name, seen)


@pytest.mark.impls("rust")
@pytest.mark.parametrize("ends", ((*PAIR, NOWHERE), (*PAIR6, NOWHERE6)), ids=("v4", "v6"))
def test_paths(node, tools, guest, ends):
    """The table of paths, which Oracle's kernels have: a connection that is up, the same one after
    a reset, and one that was never up."""
    local, peer, nowhere = ends
    tos = new_type()
    seen = json.loads(node.run(["python3", guest / "info_paths.py", *ends, ports(), tos]).out)

    def times(row):
        return [row[x] for x in ("attempted", "connected", "reset")]

    def between(name, *seconds):
        return all(seen[name]["from"] <= x <= seen[name]["to"] for x in seconds)

    is_v6 = ":" in local
    for name, count in (("up", 2), ("reset", 2), ("nowhere", 1)):
        assert seen[name]["in_the_other"] == (0 if is_v6 else count), name
        for row in seen[name]["rows"]:
            assert (row["transport"], row["tos"], row["npaths"], row["index"]) == ("infiniband", tos, 0, 0), name

    # The peer has not connected by itself.
    up, accepted = seen["up"]["rows"]
    assert (up["flags"], up["reset"], up["reason"]) == (4, 0, 0) and up["attempts"] > 0
    assert between("up", up["attempted"], up["connected"]) and up["attempted"] <= up["connected"]
    assert (accepted["flags"], accepted["attempted"], accepted["attempts"]) == (4, 0, 0)
    assert (accepted["reset"], accepted["reason"]) == (0, 0) and between("up", accepted["connected"])

    again, other = seen["reset"]["rows"]
    assert again["flags"] == other["flags"] == 4
    assert again["reason"] == USER_RESET and other["reason"] in LOST, (again, other)
    assert again["attempts"] > 0 and between("reset", *times(again)), again
    assert again["reset"] <= again["attempted"] <= again["connected"]
    assert between("reset", other["reset"], other["connected"]) and other["reset"] <= other["connected"]

    never = seen["nowhere"]["rows"][0]
    assert never["flags"] in (0, 2) and times(never)[1:] == [0, 0], never
    assert never["attempts"] > 2 and between("nowhere", never["attempted"]), never
    assert never["reason"] in UNREACHABLE, never

    for found in seen["lengths"]:
        needed = found["needed"]
        assert found["short"] == [["ENOSPC", needed, True]] * 2 and needed >= 131
        assert (found["each"], found["length"]) == (131, needed)

    # The tool prints the time of the day in UTC, and a second of the clock may pass meanwhile.
    option = "-pa" if is_v6 else "-p"
    shown = [x for x in json.loads(node.run([tools / "rds-info", "--json", option]).out)["paths"]
             if (x["local"], x["tos"]) == (local, tos)]
    assert {x["peer"] for x in shown} == {peer, nowhere}, shown
    path = next(x["paths"] for x in shown if x["peer"] == peer)
    assert [(x["connected"], x["reset"], x["reason"], x["flags"]) for x in path] == [
        (again["connected"], again["reset"], USER_RESET, ["connected"])]
    lines = node.run([tools / "rds-info", option]).out.splitlines()
    at = next(i for i, x in enumerate(lines) if x.split() == [local, peer, str(tos), "infiniband"])
    assert lines[at + 2].split()[:2] == ["P", "Connected@"]
    number, *rest, flags, down, reason = lines[at + 3].split()
    assert (number, flags, reason) == ("0", "--C-", str(USER_RESET)) and rest.count("UTC") == 3, lines[at + 3]
    assert int(down) == again["connected"] - again["reset"]


@pytest.mark.race
@pytest.mark.impls("rust")
def test_tables_that_change(node, guest):
    """Up to 20,000 messages and 5,000 sockets are listed while others come and go. Each of them
    appears exactly once in each listing."""
    scale = 5 if node.debug else 1
    result = node.run(["python3", guest / "info_load.py", 5000 // scale, 20000 // scale], check=False,
                      timeout=900)
    assert result.status == 0, str(result)
    seen = json.loads(result.out.splitlines()[-1])
    assert min(seen["reads"].values()) >= 3, seen
    assert seen["wrong"] == []
