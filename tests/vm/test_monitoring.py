# SPDX-License-Identifier: GPL-2.0
"""Compatibility with scripts of administrators. Tests run known shell lines for RDS, and look for
the users of the module (rds-info --holders). Others read the contents of a report, metrics, and the
table that is printed repeatedly."""

import json
import re
import subprocess

import pytest
from rdsvm.cluster import PAIR
from traffic import counters, late_reader, messages, new_type, ping, read_late, wait_for

pytestmark = pytest.mark.impls("rust")

A, B = PAIR
NOBODY = "10.9.0.212"
# A program with a message to a missing peer. The message waits until the program ends.
SENDER = ("import sys; from socket import *; s = socket(AF_RDS, SOCK_SEQPACKET); s.bind((sys.argv[1], 0)); "
          "s.sendto(b'', MSG_DONTWAIT, (sys.argv[2], 4000)); print('sent', flush=True); sys.stdin.read()")


def shell(node, tools, line):
    """Returns the output of a shell line, without surrounding spaces."""
    return node.run(["sh", "-c", f"PATH={tools}:$PATH; {line}"]).out.strip()


def info(node, tools, *options):
    return json.loads(node.run([tools / "rds-info", "--json", *options]).out)


class Scripts:
    """Lines of existing scripts, about connections of one type of service."""

    def __init__(self, node, tools, tos):
        self.node, self.tools, self.tos = node, tools, tos

    def __call__(self, line):
        return shell(self.node, self.tools, line)

    def stuck(self):
        """Returns the number of stuck connections, as a script that power-cycles nodes counts
        them."""
        return int(self('rds-info -I | grep "::" | grep -v ffff | wc -l'))

    def connected(self):
        """Returns the number of connected ones, as the same script counts them."""
        return int(self("rds-info -I | grep ffff | wc -l"))

    def next_numbers(self):
        """Returns NextTX and NextRX of the first connection with the type of service, by which a
        test counts messages."""
        return [int(self("rds-info -n | awk '{ if ($3 ~ /%d/) { print $%d; exit } }'" % (self.tos, column)))
                for column in (4, 5)]

    def counter(self, name):
        return int(self(f"rds-info -c | awk '$1==\"{name}\" {{print $2}}'"))

    def flags(self):
        return self("rds-info -n | awk '$3==%d {print $NF}'" % self.tos).split()

    def rows(self):
        """Returns the rows of rds-info -I."""
        return self("rds-info -I | awk '$3==%d'" % self.tos).splitlines()


@pytest.mark.kinds("rxe")
@pytest.mark.long
def test_scripts(node, tools, guest, load):
    """Golden output for connections that are up, at rest or stuck.

    On soft-iWARP the GIDs are Ethernet addresses, which these scripts do not know.
    """
    load("idle_secs=2")
    tos = new_type()
    scripts = Scripts(node, tools, tos)
    ping(tools, node, B, A, count=3, tos=tos)
    up = scripts.rows()
    # The column between these is the service level.
    assert sorted((*x.split()[:3], *x.split()[4:]) for x in up) == sorted(
        (*ends, str(tos), *(f"::ffff:{x}" for x in ends)) for ends in (PAIR, PAIR[::-1])), up
    numbers = scripts.next_numbers()
    assert min(numbers) >= 3
    # The connections are closed because they are idle, and look as before. C RDS never closes an
    # idle connection.
    wait_for(node, guest, lambda now: now["conn_reset"] >= 2)
    state = "cat /sys/kernel/debug/rds/connections | grep -c ' state=down '"
    assert scripts(state) == "2"
    assert (scripts.stuck(), scripts.connected()) == (0, 2)
    assert scripts.rows() == up and scripts.next_numbers() == numbers and scripts.flags() == ["--C-"] * 2
    assert [x["flags"] for x in info(node, tools, "-n")["connections"]] == [["connected", "resting"]] * 2
    # This connection waits for a peer.
    waiting = node.start(["python3", "-c", SENDER, A, NOBODY])
    waiting.expect("^sent$")
    wait_for(node, guest, lambda now: now["conn_attempt_failed"] >= 1)
    assert (scripts.stuck(), scripts.connected()) == (1, 2)
    assert scripts("rds-info -n | awk '$2==\"%s\" {print $NF}'" % NOBODY) == "-c--"
    waiting.finish()
    # The next message brings the connection up again.
    ping(tools, node, B, A, count=1, tos=tos)
    assert scripts.rows() == up and scripts.flags() == ["--C-"] * 2
    assert scripts.counter("recv_rdma_bytes") == counters(node, guest)["recv_rdma_bytes"] == 0
    # These are the commands that OSWatcher runs.
    for command in ("rds-info -I", "rds-info -n", "rds-info -k", "rds-info -c", f"rds-ping -c 1 -I {A} {B}"):
        assert scripts(command), command


@pytest.mark.kinds("rxe")
def test_an_attempt_ends_the_rest(node, tools, guest, load):
    """A connection at rest looks connected only until an attempt to use it fails."""
    load("idle_secs=2")
    tos = new_type()
    scripts = Scripts(node, tools, tos)
    ping(tools, node, B, A, tos=tos)
    wait_for(node, guest, lambda now: now["conn_reset"] >= 2)
    assert (scripts.stuck(), scripts.connected()) == (0, 2)
    there = node.read_file("/sys/class/net/rdsv1/address").strip()
    neighbour = f"ip neigh replace {B} dev rdsv0 nud permanent lladdr "
    node.run(f"{neighbour} 02:00:00:00:00:99")
    try:
        result = node.run([tools / "rds-ping", "-Q", tos, "-c", 1, "-W", 1, "-I", A, B], check=False)
        assert result.status == 1, str(result)
        wait_for(node, guest, lambda now: now["conn_attempt_failed"] >= 1)
        assert scripts.stuck() == 1 and scripts.connected() == 1
    finally:
        node.run(f"{neighbour} {there}")
    ping(tools, node, B, A, tos=tos)
    assert (scripts.stuck(), scripts.connected()) == (0, 2)


def test_gauges(flavor, node, tools, guest):
    """The gauges have the units that memory monitors expect: fragments of 16 KiB, and messages."""
    def calm(now):
        return now["ib_rx_total_frags"] == -(-now["ib_pool_bytes"] // 16384)

    ping(tools, node, B, A)
    before = wait_for(node, guest, calm)
    assert before["ib_rx_total_frags"] > 0
    count = messages(flavor, 400)
    send, recv = late_reader(guest, node, count, 8000, PAIR)
    send.expect(f"^sent {count}$")
    seen = wait_for(node, guest, lambda now: now["ib_rx_total_incs"] == before["ib_rx_total_incs"] + count)
    # At least the buffers of all count, in units of fragments.
    assert seen["ib_rx_total_frags"] * 16384 >= count * 8000
    kib = "rds-info -c | awk '$1 ~ /^ib_rx_total_frags/ {print $2 * 16}'"
    assert int(shell(node, tools, kib)) * 1024 >= count * 8000
    read_late(send, recv, count)
    wait_for(node, guest, lambda now: now["ib_rx_total_incs"] == before["ib_rx_total_incs"] and calm(now))
    # Unread messages go with their socket.
    send, recv = late_reader(guest, node, 5, 8000, PAIR)
    send.expect("^sent 5$")
    wait_for(node, guest, lambda now: now["ib_rx_total_incs"] == before["ib_rx_total_incs"] + 5)
    for process in (recv, send):
        process.stop()
    wait_for(node, guest, lambda now: now["ib_rx_total_incs"] == before["ib_rx_total_incs"])


def test_holders(node, tools, guest):
    """Holders are listed if they are bound or not, and also in another network namespace."""
    assert info(node, tools, "--holders") == {"holders": []}
    node.run("ip netns add other && ip -n other link set lo up")
    try:
        hold = ["python3", guest / "hold.py"]
        held = [node.start(x) for x in (hold, [*hold, A, 2], ["ip", "netns", "exec", "other", *hold, "127.0.0.1"])]
        for process in held:
            process.expect("^open$")
        found = info(node, tools, "--holders")["holders"]
        assert {x["command"] for x in found} == {"python3"} and len({x["inode"] for x in found}) == 4
        assert sorted((str(x["bound"]), bool(x["bound_port"])) for x in found) == [
            (A, True), (A, True), ("None", False), ("None", False)]
        for x in found:
            assert node.run(["readlink", f"/proc/{x['pid']}/fd/{x['fd']}"]).out.strip() == f"socket:[{x['inode']}]"
        rows = node.run([tools / "rds-info", "--holders"]).out.splitlines()
        assert rows[1:2] == ["RDS Socket Holders:"] and len(rows) == 3 + 4
        assert node.unload().status != 0
        # Users other than root may not inspect processes of others.
        other = node.run(["setpriv", "--reuid", "65534", "--clear-groups", tools / "rds-info", "--holders"], check=False)
        assert other.status == 1 and "run as root" in other.err, str(other)
        for process in held:
            process.finish()
        assert info(node, tools, "--holders") == {"holders": []}
    finally:
        node.run("ip netns del other")


# A program for Debian's Python, which has the parser. It prints [name, type, labels, value] of each
# metric.
PARSER = ("import json, sys; from prometheus_client.parser import text_string_to_metric_families as parse;"
          "print(json.dumps([[s.name, f.type, s.labels, s.value] for f in parse(sys.stdin.read()) for s in f.samples]))")


def metrics(node, tools):
    """Returns {(name, type): {labels: value}} of rds-info --prometheus, by the parser of
    Prometheus' client."""
    text = node.run([tools / "rds-info", "--prometheus"]).out
    done = subprocess.run(["/usr/bin/python3", "-c", PARSER], input=text, capture_output=True, text=True, check=True)
    found = {}
    for name, kind, labels, value in json.loads(done.stdout):
        values = found.setdefault((name, kind), {})
        key = frozenset(labels.items())
        assert key not in values, f"{name} has two values for {labels}"
        values[key] = value
    return found


@pytest.mark.long
def test_metrics(node, tools, guest):
    """The metrics are the counters, connections and queues of the tables."""
    tos = new_type()
    ping(tools, node, B, A, count=3, tos=tos)
    before, found, after = counters(node, guest), metrics(node, tools), counters(node, guest)
    none = frozenset()
    for name in ("send_pong", "recv_drop_no_sock", "conn_reset", "recv_ping"):
        assert before[name] <= found[f"rds_{name}_total", "counter"][none] <= after[name]
    assert found["rds_ib_pool_bytes", "gauge"][none] > 0
    # This module has no counter that rds-info does not know.
    assert not [x for x in found if x[1] not in ("counter", "gauge")]
    totals = [f"rds_connection_{x}_messages_total" for x in ("queued", "received")]
    assert len([x for x in found if x[1] == "counter" and x[0] not in totals]) + 6 == len(before)
    end = frozenset({"local": A, "peer": B, "tos": str(tos)}.items())
    assert found["rds_connection_up", "gauge"][end] == 1
    assert found["rds_connection_unacknowledged_bytes", "gauge"][end] == 0
    # Three pings and their pongs. A keepalive may come between them.
    assert min(found[x, "counter"][end] for x in totals) >= 3
    connected = frozenset({"transport": "infiniband", "state": "connected"}.items())
    assert found["rds_connections", "gauge"][connected] >= 2
    # This message waits for a peer that does not exist.
    waiting = node.start(["python3", "-c", SENDER, A, NOBODY])
    waiting.expect("^sent$")
    end = frozenset({"local": A, "peer": NOBODY, "tos": "0"}.items())
    found = metrics(node, tools)
    assert found["rds_connection_up", "gauge"][end] == 0
    assert found["rds_connection_unsent_messages", "gauge"][end] == 1
    assert found[totals[0], "counter"][end] >= 1 and found[totals[1], "counter"][end] == 0
    waiting.finish()


@pytest.mark.long
def test_drops(node, tools, guest):
    """A drop is shown with its meaning."""
    def drops(*options):
        found = json.loads(node.run([tools / "rds-info", "--drops", "--json", *options]).out)["drops"]
        return {x["name"]: (x["value"], x["meaning"]) for x in found}

    before = counters(node, guest)["recv_drop_no_sock"]
    # Closing the socket would cancel the message.
    sender = node.start(["python3", "-c", SENDER, A, B])
    wait_for(node, guest, lambda now: now["recv_drop_no_sock"] > before)
    sender.finish()
    assert drops()["recv_drop_no_sock"] == (before + 1, "Messages for a port to which no socket is bound.")
    every = drops("-v")
    assert every.keys() > drops().keys() and (0, every["conn_reject_forged"][1]) == every["conn_reject_forged"]
    row = f"{'recv_drop_no_sock':>32} {before + 1:>16}  Messages for a port"
    assert row in node.run([tools / "rds-info", "--drops"]).out


@pytest.mark.long
def test_watch(node, tools):
    """The table comes again with rates. A pipe gets no escapes; a terminal gets colours."""
    tos = new_type()
    # A connection has rates from its second output on.
    ping(tools, node, B, A, count=1, tos=tos)
    watch = node.start([tools / "rds-info", "--watch", "0.2"])
    watch.expect(r"(?s)Connections:.*Connections:")
    ping(tools, node, B, A, count=20, tos=tos)
    watch.expect(rf"(?m)^ *{A} +{B} +{tos} +connected +\d+ +\d+ +[1-9][\d.]* +[1-9][\d.]*$")
    watch.expect(r"(?m)^ +send_pong +\d+ +[1-9][\d.]*$")
    assert watch.stop(2).out and "\x1b" not in watch.out
    program = f"import pty; pty.spawn(['{tools}/rds-info', '--watch', '0.2'])"
    watch = node.start(["env", "-u", "NO_COLOR", "TERM=xterm", "python3", "-c", program])
    watch.expect("(?s)\x1b\\[H\x1b\\[J\x1b\\[1mConnections:\x1b\\[0m .*\x1b\\[H\x1b\\[J")
    watch.stop(9)
    # A reader that ends is no error.
    assert shell(node, tools, "rds-info --watch 0.1 2>&1 | head -1").startswith("Connections: ")


@pytest.mark.long
def test_report(node, tools, guest):
    """One archive has all parts of a report, and none of them has a memory key."""
    ping(tools, node, B, A)
    held = node.start(["python3", guest / "hold.py", A])
    held.expect("^open$")
    path = "/tmp/report.tar"
    result = node.run([tools / "rds-info", "--report", path])
    try:
        names = node.run(["tar", "-tf", path]).out.split()

        def read(name):
            return node.run(["tar", "-xOf", path, f"rds-report/{name}"]).out

        assert {f"rds-report/{x}" for x in (
            "version.txt", "kernel.txt", "tables.txt", "tables.json", "holders.txt", "module/rds_rust/refcnt",
            "module/rds_rust/parameters/idle_secs", "module/rds_rust/notes/.note.rds.release",
            "sysctl/ping_enable", "sysctl/ib/flow_control", "debugfs/connections", "debugfs/pools", "rdma/link.txt",
            "rdma/resource-show.txt", "rdma/resource-show-qp.txt", "kernel-log.txt", "missing.txt")} <= set(names)
        assert read("version.txt") == node.run([tools / "rds-info", "--version"]).out
        tables = json.loads(read("tables.json"))
        assert {(x["local"], x["peer"]) for x in tables["connections"]} >= {PAIR, PAIR[::-1]}
        assert tables["tcp"] is None and "RDS IB Connections:" in read("tables.txt")
        assert f"{A} -> {B}" in read("debugfs/connections") and "python3" in read("holders.txt")
        assert "rds_rust: Registered RDS/infiniband transport" in read("kernel-log.txt")
        for name in names:
            if "/rdma/" in name:
                assert not re.search("[rl]key", read(name.removeprefix("rds-report/"))), name
        # Missing parts are reported in both places.
        told = [x.removeprefix("rds-info: not in the report: ") for x in result.err.splitlines()]
        assert told == read("missing.txt").splitlines(), str(result)
        again = node.run([tools / "rds-info", "--report", path], check=False)
        assert again.status == 1 and "File exists" in again.err, str(again)
    finally:
        node.run(["rm", path])
    held.finish()
