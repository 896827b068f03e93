# SPDX-License-Identifier: GPL-2.0
"""rds-info, rds-ping and rds-stress: their output compared with the traffic, and their detection of
errors."""

import ipaddress
import json
import re

import pytest
from rdsvm.cluster import PAIR, PAIR6, wire_address
from traffic import counters, exchange, late_reader, new_type, ping, ports, read_late, wait_until

# The release kernel tests user tools as well as the debug kernel does. The short tests also check
# the module.
pytestmark = pytest.mark.long

A, B = wire_address(0, 1), wire_address(0, 2)
LOOP = ("127.0.0.1", "127.0.0.1")

# All tables, with their letters and titles.
LETTERS = {
    "ib": ("-I", "RDS IB Connections"), "tcp": ("-T", "TCP Connections"), "counters": ("-c", "Counters"),
    "sockets": ("-k", "RDS Sockets"), "connections": ("-n", "RDS Connections"),
    "recv": ("-r", "Receive Message Queue"), "send": ("-s", "Send Message Queue"),
    "retrans": ("-t", "Retransmit Message Queue"), "paths": ("-p", "RDS Paths")}

CONNECTIONS = "      LocalAddr      RemoteAddr  Tos           NextTX           NextRX Flgs"
STRESS = "tsks   tx/s   rx/s  tx+rx K/s    mbi K/s    mbo K/s tx us/c   rtt us cpu %"


def tables_of(node):
    """Returns the tables that exist. That of TCP belongs to a missing transport, and C RDS of Linux
    has none of paths."""
    return set(LETTERS) - ({"tcp"} if node.impl == "rust" else {"tcp", "paths"})


def info(node, tools, *options, check=True):
    """Returns the tables as JSON."""
    return json.loads(node.run([tools / "rds-info", "--json", *options], check=check).out)


def connection(node, tools, local, peer, tos=0, options=("-n",)):
    found = [x for x in info(node, tools, *options)["connections"]
             if (x["local"], x["peer"], x["tos"]) == (local, peer, tos)]
    assert len(found) == 1, found
    return found[0]


def without_probes(node):
    """Ends the connections of earlier tests. Their receive rings may have grown, and would send
    probes until they are small again."""
    if node.impl == "rust":
        node.forget()


@pytest.mark.short
def test_info_shows_every_table(node, tools):
    """rds-info shows all tables when no letter is given. A missing table is not an error."""
    there = tables_of(node)
    result = node.run([tools / "rds-info"])
    titles = {x.removesuffix(":") for x in result.out.splitlines() if re.fullmatch(r"\w[\w ]*:", x)}
    assert titles == {LETTERS[x][1] for x in there}
    assert result.err.count("this kernel has no table of") == len(LETTERS) - len(there)
    tables = info(node, tools)
    assert set(tables) == set(LETTERS)
    assert {x for x, rows in tables.items() if rows is not None} == there


@pytest.mark.parametrize("table", LETTERS)
def test_info_shows_one_table(node, tools, table):
    """A missing table is not an error, as in Oracle's tool."""
    letter, title = LETTERS[table]
    result = node.run([tools / "rds-info", letter])
    if table in tables_of(node):
        assert result.out.startswith(f"\n{title}:\n") and not result.err, str(result)
        assert list(info(node, tools, letter)) == [table]
    else:
        assert not result.out and "this kernel has no table of" in result.err, str(result)
        assert info(node, tools, letter) == {table: None}


def test_info_counts_pings(node, tools, guest):
    without_probes(node)
    ping(tools, node, PAIR[1], source=PAIR[0])

    def look():
        ends = [connection(node, tools, *x) for x in (PAIR, PAIR[::-1])]
        assert all("connected" in x["flags"] and x["transport"] == "infiniband" for x in ends)
        pings = {x["name"]: x["value"] for x in info(node, tools, "-c")["counters"]}
        return [(x["next_tx"], x["next_rx"]) for x in ends], (pings["recv_ping"], pings["send_pong"])

    before, pings_before = look()
    ping(tools, node, PAIR[1], source=PAIR[0], count=5)
    after, pings_after = look()
    assert [[y - x for x, y in zip(*ends)] for ends in zip(before, after)] == [[5, 5]] * 2
    assert [y - x for x, y in zip(pings_before, pings_after)] == [5, 5]
    # Connections of other tests may change the counters, too.
    first = counters(node, guest)
    shown = {x["name"]: x["value"] for x in info(node, tools, "-c")["counters"]}
    last = counters(node, guest)
    assert list(shown) == list(first)
    assert all(min(first[x], last[x]) <= shown[x] <= max(first[x], last[x]) for x in shown), (first, shown, last)


def test_info_has_the_columns_of_oracle(node, tools):
    tos = new_type()
    ping(tools, node, PAIR[1], source=PAIR[0], tos=tos)
    there = connection(node, tools, *PAIR, tos)
    lines = node.run([tools / "rds-info", "-n"]).out.splitlines()
    assert lines[:3] == ["", "RDS Connections:", CONNECTIONS]
    rows = [x.split() for x in lines[3:]]
    expected = [*PAIR, str(tos), str(there["next_tx"]), str(there["next_rx"]), "--C-"]
    assert expected in rows, rows
    assert all(len(x) == len(CONNECTIONS) for x in lines[2:])
    lines = node.run([tools / "rds-info", "-c"]).out.splitlines()
    assert lines[2].split() == ["CounterName", "Value"]
    assert all(len(x) == 49 and len(x.split()) == 2 for x in lines[2:])


def test_info_shows_ipv6(node, tools):
    """-a shows the connections of both families. For these C RDS does not report the type of
    service."""
    for ends in (PAIR, PAIR6):
        ping(tools, node, ends[1], source=ends[0])
    for ends in (PAIR, PAIR6):
        found = [x for x in info(node, tools, "-an")["connections"] if (x["local"], x["peer"]) == ends]
        # Connections of other types of service may be listed, too.
        assert ["connected"] in [x["flags"] for x in found]
    assert not any(":" in x["local"] for x in info(node, tools, "-n")["connections"])
    assert PAIR6[0] in node.run([tools / "rds-info", "-an"]).out


def test_info_shows_sockets_and_messages(node, tools, guest):
    """Unread messages are in the table with their sizes and ports."""
    without_probes(node)
    send, recv = late_reader(guest, node, 5, 3000, PAIR)
    send.expect("^sent 5$")

    def unread():
        return [x for x in info(node, tools, "-r")["recv"] if x["bytes"] == 3000]

    wait_until(lambda: len(unread()) == 5, unread)
    waiting = unread()
    assert {(x["local"], x["peer"]) for x in waiting} == {PAIR[::-1]}
    assert {x["seq"] for x in waiting} == set(range(waiting[0]["seq"], waiting[0]["seq"] + 5))
    sockets = {(x["bound"], x["bound_port"]): x for x in info(node, tools, "-k")["sockets"]}
    reader = sockets[PAIR[1], waiting[0]["local_port"]]
    assert reader["rcvbuf"] > 1 << 29 and reader["inode"] > 0
    assert (PAIR[0], waiting[0]["peer_port"]) in sockets
    read_late(send, recv, 5)


@pytest.mark.short
def test_info_reads_large_tables(node, tools, guest):
    """rds-info reads tables that are larger than its first buffer."""
    held = node.start(["python3", guest / "hold.py", PAIR[0], 700])
    held.expect("^open$")
    bound = [x for x in info(node, tools, "-k")["sockets"] if x["bound"] == PAIR[0]]
    assert len({x["bound_port"] for x in bound}) == len({x["inode"] for x in bound}) == 700
    held.finish()


def gid_of(node, index):
    """Returns the GID of an end of the pair: its address, or on iWARP its Ethernet address."""
    if node.kind == "rxe":
        return f"::ffff:{PAIR[index]}"
    ethernet = node.run(f"cat /sys/class/net/rdsv{index}/address").out.strip()
    return str(ipaddress.IPv6Address(bytes.fromhex(ethernet.replace(":", "")) + bytes(10)))


def test_info_shows_queue_pairs(node, tools):
    ping(tools, node, PAIR[1], source=PAIR[0])
    # Other tests have left connections of other types of service.
    found = [x for x in info(node, tools, "-I")["ib"] if (x["local"], x["peer"], x["tos"]) == (*PAIR, 0)]
    assert len(found) == 1
    gids = [gid_of(node, i) for i in (0, 1)]
    assert [found[0]["local_gid"], found[0]["peer_gid"]] == gids
    assert found[0]["send_wr"] > 0 and found[0]["recv_wr"] > 0
    lines = node.run([tools / "rds-info", "-Iv"]).out
    assert f"send_wr={found[0]['send_wr']}, recv_wr={found[0]['recv_wr']}" in lines
    lines = node.run([tools / "rds-info", "-Io", "Cache_Allocs,rx_poll_cnt,what"]).out.splitlines()
    assert lines[2].split()[-5:] == ["SrcQPNo", "DstQPNo", "Cache", "Allocs", "Rx_poll_cnt"]
    # Columns that only Oracle's kernel fills are 0. C RDS fills the first one, too, once it has
    # allocated buffers beside its caches.
    assert {x.split()[-1] for x in lines[3:]} == {"0"}
    if node.impl == "rust":
        assert {x.split()[-2] for x in lines[3:]} == {"0"}
    else:
        assert {tuple(x.split()[-4:-2]) for x in lines[3:]} == {("0", "0")}
        assert "qp_num" not in found[0]


@pytest.mark.impls("rust")
def test_info_shows_all_namespaces(node, tools, guest):
    """-N shows the tables of each namespace, beginning with the caller's. C RDS is not tested: its
    table of sockets has those of all namespaces."""
    ping(tools, node, PAIR[1], source=PAIR[0])
    node.run("ip netns add other && ip -n other link set lo up")
    try:
        number = int(node.run("ip netns exec other stat -Lc %i /proc/self/ns/net").out)
        own = int(node.run("stat -Lc %i /proc/self/ns/net").out)
        held = node.start(["ip", "netns", "exec", "other", "python3", guest / "hold.py", "127.0.0.1", 3])
        held.expect("^open$")
        spaces = info(node, tools, "-NkpT")["namespaces"]
        assert [(x["namespace"], x["home"]) for x in spaces] == [(own, True), (number, False)]
        sockets = [[x["bound"] for x in space["sockets"]] for space in spaces]
        assert sockets[1] == ["127.0.0.1"] * 3 and "127.0.0.1" not in sockets[0]
        assert [x["tcp"] for x in spaces] == [None, None]
        assert PAIR in [(x["local"], x["peer"]) for x in spaces[0]["paths"]] and spaces[1]["paths"] == []
        lines = node.run([tools / "rds-info", "-Nk"]).out.splitlines()
        at = [lines.index(f"# Network namespace {x}") for x in (f"{own} (home namespace)", number)]
        assert at[0] < at[1] and sum(" 127.0.0.1 " in x for x in lines[at[1]:]) == 3
        held.finish()
    finally:
        node.run("ip netns del other")


# A row of a histogram: from, to, number.
BAR = re.compile(r"^ +(\d+) - +(\d+) us +(\d+) +[\d.]+% #*$", re.M)


def check_latencies(text, count=None):
    """Checks percentiles and the histogram of round trips, of which there are `count`."""
    shown, = re.findall(r"^(?:round trip|RTT) p50/p90/p99/p99\.9/max (.*) us$", text, re.M)
    values = [float(x) for x in shown.split("/")]
    assert values == sorted(values) and 0 < values[0] and len(values) == 5
    rows = [[int(x) for x in row] for row in BAR.findall(text)]
    total = sum(n for *_, n in rows)
    assert total == count if count else total > 0, text
    assert all(end == begin for (_, end, _), (begin, *_) in zip(rows, rows[1:])), text
    assert rows[-1][0] <= values[-1] <= rows[-1][1] * 1.01, text


def test_ping_with_a_histogram(node, tools):
    """Only options change the lines that scripts read. Nothing of a progress bar is in a pipe."""
    command = [tools / "rds-ping", "-i", 0, "-I", PAIR[0]]
    plain = node.run([*command, "-c", 3, PAIR[1]])
    assert [x.partition(":")[0].strip() for x in plain.out.splitlines()][:3] == ["1", "2", "3"]
    assert len(plain.out.splitlines()) == 6 and not plain.err
    result = node.run([*command, "-c", 300, "-qH", PAIR[1]])
    lines = result.out.splitlines()
    assert lines[0] == f"--- rds-ping {PAIR[1]} ---" and "300 sent, 300 received" in lines[1], result.out
    assert lines[2].startswith("round trip min/avg/max ") and not result.err
    check_latencies(result.out, 300)


class Stress:
    """rds-stress between two ends, each (node, address). The first is active."""

    def __init__(self, tools, active, passive, *options, seconds=3, under=()):
        (node, own), (other, peer) = active, passive
        self.seconds, self.port = seconds, ports()
        base = [*under, tools / "rds-stress", "-p", self.port]
        self.passive = other.start([*base, "-r", peer])
        self.passive.expect("^waiting for incoming connection")
        # After a lost CM request, C RDS accepts no other one for about a minute.
        self.active = node.start([*base, "-r", own, "-s", peer, "-T", seconds, "--timeout", 200, *options])

    def averages(self):
        """Waits for the end and returns the numbers in the last line of each end."""
        found = []
        for process in (self.active, self.passive):
            result = process.wait(timeout=400)
            assert result.status == 0, str(result)
            lines = result.out.splitlines()
            assert STRESS in lines, str(result)
            assert lines[-1].endswith("  (average)"), str(result)
            found.append([float(x) for x in lines[-1].split()[:-1]])
            assert len(found[-1]) == len(STRESS.replace(" K/s", "").replace(" us", "").replace(" %", "").split())
        return found


def check_both_ways(averages, tasks, size):
    """Checks that both ends sent and received, at a rate that their numbers of requests explain."""
    for number, tx, rx, rate, mbi, mbo, _, rtt, cpu in averages:
        assert number == tasks and tx > 0 and rx > 0 and rtt > 0
        assert (mbi, mbo, cpu) == (0, 0, -1)
        # Each request has a request and an ack in each direction.
        assert rate * 1024 >= (tx + rx) * size


@pytest.mark.parametrize("ends", [
    LOOP, PAIR, *(pytest.param(x, marks=pytest.mark.long("release", "debug")) for x in (("::1", "::1"), PAIR6))], ids="-".join)
def test_stress(node, tools, ends):
    left, right = ends
    stress = Stress(tools, (node, left), (node, right), "-t", 2, "-d", 3, "-q", "5000")
    check_both_ways(stress.averages(), 2, 5000)


def test_stress_with_latencies(node, tools):
    """--latencies adds columns behind those of Oracle, and lines behind the average, on its own
    end."""
    stress = Stress(tools, (node, PAIR[0]), (node, PAIR[1]), "-t", 2, "-d", 3, "--latencies")
    active, passive = [x.wait(timeout=400) for x in (stress.active, stress.passive)]
    assert active.status == passive.status == 0, f"{active}{passive}"
    assert STRESS in passive.out.splitlines() and passive.out.endswith("  (average)\n")
    assert f"{STRESS}    p50 us    p99 us    max us" in active.out.splitlines()
    rows = [[float(x) for x in line.removesuffix("  (average)").split()]
            for line in active.out.splitlines() if line.startswith("   2 ")]
    assert len(rows) >= 3 and {len(x) for x in rows} == {12}, active.out
    assert all(p50 <= p99 <= longest for *_, p50, p99, longest in rows), active.out
    *_, rtt, _, p50, p99, longest = rows[-1]
    assert 0 < p50 and rtt <= longest * 1.01, active.out
    check_latencies(active.out)


RUST_ONLY = pytest.mark.impls("rust")


def check_operations(averages, size, ways=2):
    """Checks that both ends moved bytes, in `ways` of the two directions. The ends themselves
    compare their numbers."""
    for _, tx, rx, _, mbi, mbo, *_ in averages:
        assert tx + rx > 0
        assert (mbi > 0) + (mbo > 0) == ways, averages
        # Each request has an operation, in or out, except those whose operation had not ended.
        assert (mbi + mbo) * 1024 >= (tx + rx) * size * 0.5, averages


@RUST_ONLY
@pytest.mark.parametrize("options", (
    "-q 256 -D 16K -I 4 -t 2 -d 3", "-D 1001 -I 3 --rdma-alignment 5 --rdma-use-once 0 -d 2",
    *(pytest.param(x, marks=pytest.mark.long("release", "debug")) for x in (
        "-q 256 -D 64K", "-D 32K --rdma-cache-mrs 1 -d 4", "-D 8K -M 1 -d 2", "-D 8K -M 2 -d 2")),
    # On the debug kernel no operation of that size ends within the time of the test.
    pytest.param("-D 1M --rdma-use-get-mr 1", marks=pytest.mark.flavors("release"))))
def test_stress_with_rdma(node, tools, options):
    """Writes and reads of any shape, in any region, transfer the right data."""
    words = options.split()
    averages = Stress(tools, (node, PAIR[0]), (node, PAIR[1]), *words).averages()
    buffers = int(words[words.index("-I") + 1]) if "-I" in words else 1
    size = words[words.index("-D") + 1]
    size = int(size[:-1]) << {"K": 10, "M": 20}[size[-1]] if size[-1] in "KM" else int(size)
    check_operations(averages, size * buffers)


# On the debug kernel no operation of that size ends within the time of the test.
@RUST_ONLY
@pytest.mark.on_siw("release")
@pytest.mark.flavors("release")
def test_stress_with_rdma_of_an_ordinary_user(node, tools):
    """The usual limit of locked memory, 8 MiB, is enough for each process of Oracle's rds-stress
    with these options. Its tasks are processes, and here they are threads of one."""
    tasks, usual = 4, 8 << 20
    under = ("prlimit", f"--memlock={tasks * usual}", "setpriv", "--reuid", 1001, "--regid", 1001, "--clear-groups")
    stress = Stress(tools, (node, PAIR[0]), (node, PAIR[1]), "-t", tasks, "-d", 8, "-D", "64K", under=under)
    check_operations(stress.averages(), 65536)


@RUST_ONLY
@pytest.mark.kinds("rxe")
@pytest.mark.parametrize("options", (
    "--atomics -D 4K -d 3", *(pytest.param(x, marks=pytest.mark.long("release", "debug")) for x in (
        "--atomics -t 2 -d 3", "--atomics --rdma-cache-mrs 1"))))
def test_stress_with_atomics(node, tools, options):
    """Additions return the old value and leave the sum, alone and between transfers."""
    stress = Stress(tools, (node, PAIR[0]), (node, PAIR[1]), *options.split())
    check_operations(stress.averages(), 8)


@RUST_ONLY
def test_stress_with_rdma_one_way(node, tools):
    """Reads of memory that only the active end offers transfer bytes out of it."""
    stress = Stress(tools, (node, PAIR[0]), (node, PAIR[1]), "-o", "-D", "8K", "-M", 1)
    active, passive = stress.averages()
    assert active[4] == 0 < active[5] and passive[5] == 0 < passive[4]


@RUST_ONLY
@pytest.mark.short
@pytest.mark.on_siw
def test_stress_refuses_operations(node, tools):
    """Both ends report which operations are not possible, and what to do instead."""
    cases = [(LOOP, "-D 4K", "RDMA is between addresses of RDMA devices"), (PAIR, "-D 2M", "up to 1048576 bytes")]
    if node.kind == "siw":
        cases.append((PAIR, "--atomics", "iWARP devices have no atomic operations"))
    for ends, options, words in cases:
        stress = Stress(tools, (node, ends[0]), (node, ends[1]), *options.split())
        active = stress.active.wait(timeout=100)
        assert active.status == 1 and words in active.err, str(active)
        if "2M" in options:
            stress.passive.stop(2)
            continue
        passive = stress.passive.wait(timeout=100)
        assert passive.status == 1 and words in passive.err, str(passive)


@pytest.mark.long
def test_stress_with_options(node, tools, flavor):
    """Large messages go one way, on another connection, without the rows of each second."""
    # On the debug kernel a message of 1 MiB may take longer than the test.
    size = 1 << (16 if flavor == "debug" else 20)
    stress = Stress(tools, (node, PAIR[0]), (node, PAIR[1]), "-o", "-z", "-c", "-R", "-v", "--show-params",
                    "-Q", 8, "-q", size, "-a", "1K")
    active, passive = stress.averages()
    assert active[1] > 0 and active[2] == 0
    assert passive[1] == 0 and passive[2] > 0
    assert 0 < active[-1] <= 100 and passive[-1] == -1
    rows = [x for x in stress.active.out.splitlines() if x.startswith("   1 ")]
    assert len(rows) == 1
    assert f"  Req size   {size}" in stress.active.out
    assert connection(node, tools, *PAIR, tos=8)["next_tx"] > 1


@pytest.mark.parametrize("ends", [LOOP, pytest.param(PAIR, marks=pytest.mark.long("release", "debug"))], ids="-".join)
def test_stress_for_scripts(node, tools, ends):
    """--show-perfdata prints its rows. Each round trip is reported as an outlier and in the
    histogram."""
    options = "--show-perf --show-histogram --show-outliers 0 --use-cong 0 --disable-inq"
    stress = Stress(tools, (node, ends[0]), (node, ends[1]), *options.split(), seconds=6)
    results = [x.wait(timeout=400) for x in (stress.active, stress.passive)]
    names = [x["name"] for x in info(node, tools, "-c")["counters"]]
    for result in results:
        assert result.status == 0, str(result)
        header, *rows = [x[2:].split(",") for x in result.out.splitlines() if x.startswith("::")]
        assert header[0] == "nr_tasks:count" and header[-1] == "intr:count"
        assert [x.rpartition(":")[0] for x in header[11:-5]] == names
        assert len(rows) >= 2 and {len(x) for x in rows} == {len(header)}
        traffic = []
        for row in rows:
            values = dict(zip(header, map(float, row)))
            assert (values["nr_tasks:count"], values["req_size:bytes"]) == (1, 1024)
            traffic.append([values[x] for x in ("req_sent:count", "rtt:microseconds", "recv_delivered:count")])
            assert 0 < sum(map(float, row[-5:-1])) <= 100.001
        # A processor that pauses may leave a row without traffic.
        assert all(max(x) > 0 for x in zip(*traffic)), traffic
        assert sum(x.endswith("  (average)") for x in result.out.splitlines()) == 1 and STRESS not in result.out
    active, passive = results
    found = re.findall(r"^\[ *(\d+) - *(\d+)\] \t\t +(\d+) \t\t \(", active.out, re.M)
    assert [int(x) for x, _, _ in found] == [1 << x for x in range(16)]
    outliers = [int(x, 16) for x in re.findall("^Found RTT = 0x([0-9a-f]+)$", active.err, re.M)]
    assert sum(int(x) for *_, x in found) == len(outliers) > 0
    assert "RTT" not in passive.out and not passive.err


@RUST_ONLY
@pytest.mark.parametrize("ends", [LOOP, pytest.param(PAIR, marks=pytest.mark.long("release", "debug"))], ids="-".join)
@pytest.mark.parametrize("monitor", (1, 0))
def test_stress_waits_for_room(node, tools, guest, ends, monitor):
    """Ports become full repeatedly, and all requests are answered, for each way to report that
    there is room. C RDS is not tested: its two ends in one kernel do not notify each other."""
    # Without this capability, a buffer gets at most the limit that is set here.
    under = ("setpriv", "--bounding-set", "-net_admin")
    options = ("-t", 2, "-d", 8, "-q", "32K", "--use-cong-monitor", monitor)
    before = counters(node, guest)["cong_send_error"]
    most = node.run("sysctl -n net.core.rmem_max").out.strip()
    node.run("sysctl -q net.core.rmem_max=16384")
    try:
        stress = Stress(tools, (node, ends[0]), (node, ends[1]), *options, under=under)
        check_both_ways(stress.averages(), 2, 32768)
    finally:
        node.run(f"sysctl -q net.core.rmem_max={most}")
    assert counters(node, guest)["cong_send_error"] > before


@RUST_ONLY
@pytest.mark.parametrize("how", ("--abort-after", "SIGINT"))
def test_stress_is_aborted(node, tools, how):
    """Each task cancels its messages to each other task, and reports that. The other end ends
    normally."""
    options = ["--cancel-sent-to", "-t", 2, "-d", 4, "--show-histogram"]
    if how == "--abort-after":
        options += [how, 4]
    stress = Stress(tools, (node, PAIR[0]), (node, PAIR[1]), *options, seconds=300)
    if how == "SIGINT":
        # An end has no average before it has begun to count, which each end does for itself.
        for end in (stress.active, stress.passive):
            end.expect("cpu %")
        stress.active.send_signal(2)
    active, passive = [x.wait(timeout=100) for x in (stress.active, stress.passive)]
    assert active.status == 1 and "the test was aborted" in active.err, str(active)
    assert how != "--abort-after" or how in active.err
    found = re.findall(r"^RDS_CANCEL_SENT_TO\((.*):(\d+)\)\[(\d+)\] took \d+ msec$", active.out, re.M)
    assert sorted((x, int(y) - stress.port) for x, y, _ in found) == [(PAIR[1], 1)] * 2 + [(PAIR[1], 2)] * 2
    assert len({x for *_, x in found}) == 2 and "(average)" not in active.out
    assert active.out.count("RTT histogram") == 1
    assert passive.status == 0 and passive.out.endswith("  (average)\n"), str(passive)
    assert "RDS_CANCEL" not in passive.out
    # Cancelled and other messages leave nothing behind.
    exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=10)


@pytest.mark.short
def test_stress_resets_a_connection(node, tools, guest):
    """rds-stress resets a connection as administrators of Oracle's kernels do. C RDS in Linux
    cannot do that, and the tool reports it."""
    ping(tools, node, PAIR[1], source=PAIR[0])
    before = counters(node, guest)["conn_reset"]
    command = [tools / "rds-stress", "-r", PAIR[0], "-s", PAIR[1], "--reset"]
    result = node.run(command, check=node.impl == "rust")
    assert not result.out
    if node.impl == "rust":
        assert counters(node, guest)["conn_reset"] > before
        ping(tools, node, PAIR[1], source=PAIR[0])
    else:
        assert result.status == 1 and "cannot reset connections" in result.err, str(result)


@pytest.mark.long
def test_stress_and_the_kernel_count_the_same(node, tools, guest):
    """The kernel delivers one message for each that the two ends count, and no other."""
    before = counters(node, guest)
    stress = Stress(tools, (node, PAIR[0]), (node, PAIR[1]), "-V")
    stress.averages()
    delivered = counters(node, guest)["recv_delivered"] - before["recv_delivered"]
    traced = [x for p in (stress.active, stress.passive) for x in p.err.splitlines()]
    assert sum(" from " in x for x in traced) == sum(" to " in x for x in traced) == delivered > 0


@pytest.mark.long
def test_stress_until_interrupted(node, tools):
    """SIGINT to the active end makes both ends finish normally."""
    stress = Stress(tools, (node, PAIR[0]), (node, PAIR[1]), seconds=0)
    for end in (stress.active, stress.passive):
        end.expect("(?s)cpu %.*-1.00$")
    stress.active.send_signal(2)
    stress.averages()


@pytest.mark.long
def test_stress_notices_a_foreign_message(node, tools, guest):
    """Both ends fail and report the reason."""
    stress = Stress(tools, (node, PAIR[0]), (node, PAIR[1]), seconds=300)
    stress.active.expect("cpu %")
    program = (f"from rds import Sock\nwith Sock(('{PAIR[0]}', 0)) as s:\n"
               f"    s.send(b'x' * 1024, ('{PAIR[1]}', {stress.port + 1}))\n    input()")
    other = node.start(["python3", "-c", program], env={"PYTHONPATH": str(guest)})
    results = [x.wait(timeout=100) for x in (stress.passive, stress.active)]
    assert [x.status for x in results] == [1, 1]
    assert "foreign data" in results[0].err
    assert "the other end failed" in results[1].err and "foreign data" in results[1].err
    other.write("\n")
    other.wait(check=True)


@pytest.mark.long
def test_stress_notices_that_the_other_end_is_gone(node, tools):
    stress = Stress(tools, (node, PAIR[0]), (node, PAIR[1]), seconds=300)
    stress.active.expect("cpu %")
    stress.passive.stop(9)
    result = stress.active.wait(timeout=100)
    assert result.status == 1 and "the other end" in result.err


@pytest.mark.long
def test_stress_refuses(node, tools):
    """rds-stress explains in words why it refuses something."""
    for options, words in ((("-s", PAIR[1], "--async"), "RDS_CMSG_ASYNC_SEND"),
                           (("-s", PAIR[1], "-D", "64K", "--rdma-use-fence", 0), "cannot be verified"),
                           (("-s", PAIR[1], "-p", ports()), "is a passive rds-stress waiting there?"),
                           (("-r", "10.99.0.1"), "cannot listen")):
        result = node.run([tools / "rds-stress", *options], check=False)
        assert result.status == 1 and words in result.err, str(result)
    # The passive end cannot bind, and notifies the active one.
    port = ports()
    held = node.start(["python3", "-c", "import socket\ns = socket.socket(socket.AF_RDS, socket.SOCK_SEQPACKET)\n"
                       f"s.bind(('{PAIR[1]}', {port + 1}))\nprint('open', flush=True)\ninput()"])
    held.expect("^open$")
    passive = node.start([tools / "rds-stress", "-p", port, "-r", PAIR[1]])
    passive.expect("^waiting")
    result = node.run([tools / "rds-stress", "-p", port, "-r", PAIR[0], "-s", PAIR[1]], check=False)
    assert result.status == 1 and "the other end failed: cannot bind" in result.err, str(result)
    assert passive.wait().status == 1
    held.write("\n")
    held.wait(check=True)


@pytest.mark.long
@pytest.mark.parametrize("active", ("a", pytest.param("b", marks=pytest.mark.long("release", "debug"))))
def test_stress_between_nodes(pair, tools, active):
    ends = [(pair[0], A), (pair[1], B)]
    if active == "b":
        ends.reverse()
    stress = Stress(tools, *ends, "-t", 2, "-d", 4, "-q", "8K", "-a", "100")
    check_both_ways(stress.averages(), 2, 8192)
    exchange(tools, *ends, count=10)


@pytest.mark.long
@pytest.mark.kinds("rxe")
@pytest.mark.pairs("rust-c")
def test_stress_over_tcp(pair, tools, tcp):
    """Oracle's program for load runs over TCP as it does over RDMA, with this module at one end and
    C RDS at the other."""
    stress = Stress(tools, *zip(pair, tcp(0)), "-t", 2, "-d", 4, "-q", "8K", "-a", "100")
    check_both_ways(stress.averages(), 2, 8192)


@pytest.mark.long
@pytest.mark.pairs("rust-rust")
def test_stress_with_rdma_between_nodes(patient, tools):
    options = ("-t", 2, "-d", 4, "-q", "256", "-D", "64K")
    check_operations(Stress(tools, (patient[0], A), (patient[1], B), *options).averages(), 65536)
