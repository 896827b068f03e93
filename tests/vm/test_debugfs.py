# SPDX-License-Identifier: GPL-2.0
"""The files in debugfs."""

import json
import re

import pytest
from rdsvm.cluster import PAIR, PAIR6, must
from tracing import TRACING, traced
from traffic import exchange, new_type, path_traffic, ping, ports, wait_until

pytestmark = [pytest.mark.impls("rust"), pytest.mark.long]

DIR = "/sys/kernel/debug/rds"
# Reason in the table of paths.
USER_RESET = "1"


def view(node, name):
    """Returns {subject of a line: {word: value}}."""
    lines = node.run(["cat", f"{DIR}/{name}"]).out.splitlines()
    split = [line.split(": ", 1) for line in lines]
    return {what: dict(x.split("=") for x in words.split()) for what, words in split}


def test_connections(node, tools):
    tos = new_type()
    local, peer = PAIR
    ping(tools, node, peer, local, count=3, tos=tos)
    up = view(node, "connections")[f"{local} -> {peer} tos {tos}"]
    assert up["state"] == "up" and up["ups"] == "1" and up["refusals"] == "0", up
    assert int(up["next_tx"]) >= 4 and int(up["next_rx"]) >= 4, up
    # Cancelled messages are in neither queue.
    assert int(up["next_tx"]) - int(up["acked"]) - 1 >= int(up["unsent"]) + int(up["unacked"]), up
    assert up["device"] in node.run("ls /sys/class/infiniband").out.split(), up
    assert up["flow_control"] == str(int(node.kind == "siw")), up
    assert int(up["send_ring"]) > 0 < int(up["recv_ring"]), up
    assert (up["reset"], up["reason"], up["retransmissions"]) == ("0", "0", "0") and int(up["up_secs"]) >= 0, up
    vectors = int(node.run(f"ls -d /sys/class/infiniband/{up['device']}/device/msi_irqs/* 2>/dev/null | wc -l").out)
    assert 0 <= int(up["vector"]) <= max(vectors, int(node.run("nproc").out)), up
    ends = view(node, "connections")
    assert {ends[f"{a} -> {b} tos {tos}"]["passive"] for a, b in (PAIR, PAIR[::-1])} == {"0", "1"}


def test_queue_pairs(node, tools):
    """The numbers of both ends are those that "rdma resource" shows."""
    tos = new_type()
    ping(tools, node, PAIR[1], PAIR[0], tos=tos)
    lines = view(node, "connections")
    one, other = (lines[f"{a} -> {b} tos {tos}"] for a, b in (PAIR, PAIR[::-1]))
    numbers = {x["lqpn"] for x in json.loads(node.run("rdma -j resource show qp").out) if x["type"] == "RC"}
    assert {int(one["qpn"]), int(other["qpn"])} <= numbers, (one, other, numbers)
    wanted = ("0", "0") if node.kind == "siw" else (other["qpn"], one["qpn"])
    assert (one["peer_qpn"], other["peer_qpn"]) == wanted


@pytest.mark.parametrize("ends", (PAIR, PAIR6), ids=("v4", "v6"))
def test_rds_info_shows_the_same(node, tools, guest, ends):
    """rds-info -I has the queue pair, vector, CPU and payload, and -p the traffic of the path. A
    connection that is not up has none."""
    is_v6 = ":" in ends[0]
    tos, letters, nowhere = new_type(), "-Ia" if is_v6 else "-I", "fd09::211" if is_v6 else "10.9.0.212"
    exchange(tools, (node, ends[0]), (node, ends[1]), count=20, sizes="100", tos=tos)
    node.run(["python3", "-c", f"import sys; sys.path.append('{guest}'); from rds import Sock; "
              f"Sock(('{ends[0]}', 0)).send(b'', ('{nowhere}', 4000), 64)"])

    def rows():
        found = json.loads(node.run([tools / "rds-info", "--json", letters]).out)["ib"]
        return {(x["local"], x["peer"], x["tos"]): x for x in found}

    def shown(row):
        return [row[x] for x in ("qp_num", "dst_qp_num", "scq_vector", "rcq_vector", "cpu", "frag", "send_bytes", "recv_bytes")]

    def seen(line):
        words = ("qpn", "peer_qpn", "vector", "vector", "cpu", "fragment", "acked_bytes", "received_bytes")
        return [int(line[x]) for x in words]

    def both():
        table, lines = rows(), view(node, "connections")
        return [(shown(table[a, b, tos]), seen(lines[f"{a} -> {b} tos {tos}"])) for a, b in (ends, ends[::-1])]

    def traffic():
        """The same of the table of paths, with sequence numbers and retransmissions."""
        found = json.loads(node.run([tools / "rds-info", "--json", letters.replace("I", "p")]).out)["paths"]
        table = {(x["local"], x["peer"], x["tos"]): x["paths"][0]["traffic"] for x in found}
        lines = view(node, "connections")
        return [(table[a, b, tos], path_traffic(lines[f"{a} -> {b} tos {tos}"])) for a, b in (ends, ends[::-1])]

    # Acknowledgements may arrive on another CPU between the two.
    wait_until(lambda: all(one == other for one, other in both()), both)
    wait_until(lambda: all(one == other for one, other in traffic()), traffic)
    table = rows()
    up, down = table[(*ends, tos)], table[ends[0], nowhere, 0]
    assert up["qp_num"] > 0 and 0 <= up["cpu"] < int(node.run("nproc").out) and up["recv_bytes"] > 2000, up
    assert shown(down) == [0, 0, -1, -1, -1, 0, 0, 0], down

    text = node.run([tools / "rds-info", letters, "-o", "scq_vector,cpu"]).out.splitlines()
    assert text[2].split()[-4:] == ["SrcQPNo", "DstQPNo", "Scq_vector", "CPU"]
    row, = (x.split() for x in text[3:] if x.split()[:3] == [*ends, str(tos)])
    assert row[-4:-1] == [str(up[x]) for x in ("qp_num", "dst_qp_num", "scq_vector")], row
    assert f"qp_num={up['qp_num']}, dst_qp_num={up['dst_qp_num']}" in node.run([tools / "rds-info", letters, "-v"]).out


def test_the_cpu_is_that_of_the_last_completions(node, tools):
    """The tracepoints of completions report it, too."""
    tos = new_type()
    with traced(node, "rds_send_completed", "rds_recv_completed"):
        ping(tools, node, PAIR[1], PAIR[0], count=20, tos=tos)

        def last(ends):
            start = re.escape(f"<::ffff:{ends[0]},::ffff:{ends[1]},{tos}>")
            trace = node.run(["cat", f"{TRACING}/trace"]).out
            return re.findall(rf"\[(\d+)\].* rds_(?:send|recv)_completed: {start}", trace)[-1]

        def both():
            lines = view(node, "connections")
            return [(int(lines[f"{a} -> {b} tos {tos}"]["cpu"]), int(last((a, b)))) for a, b in (PAIR, PAIR[::-1])]

        # Some may have completed between the two.
        wait_until(lambda: all(shown == traced for shown, traced in both()), both)


def test_payload_and_retransmissions(node, guest):
    """Payload counts once at either end, also if it was sent again. A reset has its time and its
    reason."""
    seen = json.loads(node.run(["python3", guest / "replay.py", *PAIR, ports(), new_type()]).out)
    one, other = seen["ends"]
    assert (int(one["acked_bytes"]), int(other["received_bytes"])) == (seen["bytes"], seen["bytes"]), seen
    assert (other["acked_bytes"], one["received_bytes"]) == ("0", "0"), seen
    assert one["reason"] == USER_RESET and seen["from"] <= int(one["reset"]) <= seen["to"], seen
    assert int(one["up_secs"]) <= seen["to"] - seen["from"] + 1, seen


# Prints the connections while the wall clock is a day late, and then the time since the boot.
SET_CLOCK = f"""
import time
def turn(seconds):
    time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME) + seconds)
turn(86400)
try:
    print(open("{DIR}/connections").read())
finally:
    turn(-86400)
print("boot:", int(time.monotonic()))
"""


def test_the_time_up_does_not_follow_the_wall_clock(node, tools):
    tos = new_type()
    ping(tools, node, PAIR[1], PAIR[0], tos=tos)
    lines = node.run(["python3", "-c", SET_CLOCK]).out.splitlines()
    up, = (int(re.search(r"up_secs=(\d+)", x)[1]) for x in lines if x.startswith(f"{PAIR[0]} -> {PAIR[1]} tos {tos}:"))
    assert up <= int(lines[-1].split()[-1]), lines


def test_a_connection_that_is_not_up(node):
    nobody = "10.9.0.211"
    node.run(["python3", "-c", "from socket import *; s = socket(AF_RDS, SOCK_SEQPACKET); "
              f"s.bind(('{PAIR[0]}', 0)); s.sendto(b'', MSG_DONTWAIT, ('{nobody}', 4000))"])
    down = view(node, "connections")[f"{PAIR[0]} -> {nobody}"]
    assert down["state"] != "up" and down["ups"] == "0" and "device" not in down, down


def test_pools(node, tools):
    ping(tools, node, PAIR[1], PAIR[0])
    pools = view(node, "pools")
    devices = node.run("ls /sys/class/infiniband").out.split()
    assert {x.split()[0] for x in pools} == {*devices, "none"}
    for name, words in pools.items():
        numbers = {word: int(value) for word, value in words.items()}
        assert numbers["arenas"] >= 1 and (numbers["arenas"] == 1 or " send-" in name), (name, words)
        assert numbers["in_use"] <= numbers["most_in_use"], words
        assert numbers["in_use"] * numbers["buffer"] <= numbers["bytes"] <= numbers["limit"], words
        assert numbers["empty_shards"] <= numbers["shards"], words
    used = [name for name, words in pools.items() if words["in_use"] != "0"]
    assert any(re.fullmatch(rf"{x} recv-\d+", name) for name in used for x in devices), pools


@pytest.mark.parametrize("name", ["connections", "pools"])
def test_an_open_file_keeps_the_module(node, name):
    """An open file prevents the unloading. Otherwise its close would call code that has been
    unloaded."""
    result = node.run(f"exec 3<{DIR}/{name}; rmmod rds_rust", check=False)
    assert result.status != 0 and "in use" in result.err, str(result)
    must(node.unload())
    assert node.run(f"ls {DIR}", check=False).status != 0
    must(node.load())
    assert sorted(node.run(f"ls {DIR}").out.split()) == ["connections", "pools"]
