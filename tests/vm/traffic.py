# SPDX-License-Identifier: GPL-2.0
"""Traffic between nodes: pings and verified streams, started and checked from the host, and checks
of their counters."""

import fnmatch
import itertools
import json
import re
import time
from contextlib import contextmanager
from pathlib import Path

from rdsvm.cluster import PAIR, must
from rdsvm.node import Defect, NodeError

ABI_PAGE = Path(__file__).resolve().parents[2] / "Documentation/abi.md"
# Streams of a test must not meet leftovers of the test before. Leftovers of much earlier tests are
# gone.
_ports = itertools.cycle(range(4000, 65536 - 63, 64))
# Types of service. The programs in guest/ name some of the lower ones.
_types = itertools.cycle(range(140, 256))
# Networks of two nodes. test_failover.py has the lower ones.
_networks = itertools.cycle(range(150, 250))
# Parameter of the module with which devices do not end connections on a loaded machine. By default
# they send each packet only twice.
PATIENT = "rds_ib_retry_count=7"
# The user for all that needs no privilege: pings, and one end of the verified streams. The other
# end runs as root.
USER = 1000
# Wire of two nodes on which they have no RDMA devices.
TCP_WIRE = 1
RDS_TCP_PORT = 16385


def start_tcp(node):
    """Loads RDS with its TCP transport."""
    if node.impl == "c":
        must(node.run(["modprobe", "rds_tcp"], check=False))
    else:
        node.forget("tcp=1")


def messages(flavor, count):
    """Returns the number of messages for a kernel. The debug kernel takes about six times as long
    for each."""
    return count // 4 if flavor == "debug" else count


def ports():
    """Returns the first of 64 ports that no test has used recently."""
    return next(_ports)


def new_type():
    """Returns a type of service that no test has used recently, so its connections are new."""
    return next(_types)


def new_addresses(guest, pair, version=4, lower=0):
    """Gives two nodes new addresses on their first wire and returns them. The addresses stay.

    All connections between them are new. C RDS would need a boot for new connections between old
    addresses. lower: the index of the node with the lower address.
    """
    network = next(_networks)
    found = []
    for index, m in enumerate(pair):
        number = 1 if index == lower else 2
        host = f"10.{network}.0.{number}" if version == 4 else f"fd{network:02x}::{number}"
        prefix = f"{host}/24" if version == 4 else f"{host}/64 nodad"
        m.run(f"ip addr add dev {m.netdevs[0]} {prefix}")
        # The RDMA core notices the address after a short delay.
        m.run(["python3", guest / "laddr.py", "bound", host])
        found.append(host)
    return found


def endpoint(host, port):
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def ping(tools, node, target, source=None, count=3, tos=None, interval="10ms"):
    """Sends pings and expects all answers."""
    command = [tools / "rds-ping", "-c", count, "-i", interval, "-W", "60", target]
    if source:
        command[1:1] = ["-I", source]
    if tos is not None:
        command[1:1] = ["-Q", tos]
    result = node.run(command, check=False, timeout=60 * count + 30, user=USER)
    assert result.status == 0, str(result)
    assert f"{count} sent, {count} received" in result.out, str(result)


def arguments_of(options):
    """Returns options of rds-verify as its arguments."""
    return list(itertools.chain.from_iterable(
        (f"--{name.replace('_', '-')}", value) for name, value in options.items()))


class Streams:
    """Verified streams in both directions between two ends, each (node, address)."""

    def __init__(self, tools, left, right, **options):
        self.ends = []
        self.nodes = {node.name: node for node, _ in (left, right)}
        port = ports()
        # After a lost CM request, C RDS accepts no other one for about a minute.
        options.setdefault("timeout", 300)
        arguments = arguments_of(options)
        # The two ends may be on one node, at one address.
        for (node, mine), (_, theirs), first, second, user in ((left, right, port, port + 32, USER),
                                                               (right, left, port + 32, port, None)):
            self.ends.append(node.start([tools / "rds-verify", "both",
                                         "--bind", endpoint(mine, first),
                                         "--to", endpoint(theirs, second), *arguments], user=user))

    def running(self):
        return all(p.running() for p in self.ends)

    def finish(self, timeout=900):
        """Waits for both ends. Each must have received every byte of the other in order."""
        results = [p.wait(timeout) for p in self.ends]
        shown = "\n".join(map(str, results))
        reports = [json.loads(r.out or "{}") for r in results]
        errors = [x["error"] for x in reports if x.get("error")]
        # Errors of these two kinds do not concern the received data.
        if any(not x.startswith(("no progress", "cannot send")) for x in errors):
            raise Defect(shown)
        assert all(r.status == 0 for r in results), f"{self.cm_queue_pairs()}\n{shown}"
        assert all(r["received"] for r in reports), shown
        return reports

    def cm_queue_pairs(self):
        """Returns the states of the CM's queue pairs. A queue pair that soft-RoCE has failed makes
        no more connections."""
        found = ((name, json.loads(node.run("rdma -j resource show qp").out or "[]"))
                 for name, node in self.nodes.items())
        states = [f"{name}: {', '.join(x['state'] for x in pairs if x['type'] == 'GSI') or 'none'}"
                  for name, pairs in found]
        return "queue pairs of the CM: " + "; ".join(states)


def under_load(tools, guest, left, right, node, netdev=None, packets=200, **options):
    """Starts streams. Returns when some packets have arrived at a node while messages are still to
    come.

    If all messages have arrived by then, it starts twice as many. netdev: the device where they
    arrive, if not that of the node's first wire.
    """
    while True:
        passed = node.start(["python3", guest / "packets.py", netdev or node.netdevs[0], packets])
        passed.expect("^ready$")
        streams = Streams(tools, left, right, **options)
        passed.wait(300, check=True)
        if streams.running():
            return streams
        streams.finish()
        options["count"] *= 2


def exchange(tools, left, right, **options):
    return Streams(tools, left, right, **options).finish()


def one_way(tools, sender, receiver, **options):
    """Sends a verified stream from one end, (node, address), to another one, which sends
    nothing."""
    (source, mine), (target, theirs) = sender, receiver
    port = ports()
    arguments = arguments_of(options)
    ends = [target.start([tools / "rds-verify", "recv", "--bind", endpoint(theirs, port), *arguments]),
            source.start([tools / "rds-verify", "send", "--bind", endpoint(mine, port),
                          "--to", endpoint(theirs, port), *arguments], user=USER)]
    for process in ends:
        process.wait(300, check=True)


def let_packets_pass(guest, node, netdev, count):
    """Returns when `count` more packets have arrived from a wire."""
    node.run(["python3", guest / "packets.py", netdev, count], timeout=300)


@contextmanager
def losing(machines, percent):
    """Makes the wires between these machines lose a percentage of the packets. At 100 the wire is
    cut."""
    for m in machines:
        m.set_loss(percent)
    try:
        yield
    finally:
        for m in machines:
            m.set_loss(0)


def first_log(machines, pattern, marks, timeout):
    """Waits until the kernel log of any of these machines matches after its mark."""
    deadline = time.monotonic() + timeout
    while True:
        for m, mark in zip(machines, marks):
            try:
                return m.wait_log(pattern, mark, timeout=1)
            except NodeError:
                if time.monotonic() > deadline:
                    raise


def slow_down(*ends, delay="20ms"):
    """Delays packets out of these network devices, each (node, name). Senders are then ahead of the
    acknowledgements, however fast the machine is."""
    for node, netdev in ends:
        node.run(f"tc qdisc replace dev {netdev} root netem delay {delay} limit 10000")


def lose_filtered(node, netdev, *filters):
    """Loses packets that go out through a network device. Returns a function that returns their
    number.

    The packets of the class 1:3 are lost. filters: of tc, with a class; other packets pass."""
    add = f"&& tc filter add dev {netdev} parent 1: protocol ip"
    node.run(f"tc qdisc replace dev {netdev} root handle 1: prio bands 3 priomap {'0 ' * 16}"
             f"&& tc qdisc add dev {netdev} parent 1:3 handle 3: netem loss 100%"
             f"{''.join(f'{add} {x}' for x in filters)}")

    def lost():
        found = json.loads(node.run(f"tc -s -j qdisc show dev {netdev}").out)
        return next(x["drops"] for x in found if x["kind"] == "netem")

    return lost


def queue_pairs(node, own, peer=""):
    """Returns the queue pairs of the connections from an address, as "rdma res show qp" lists them.
    A CM id may exist longer than its queue pair."""
    def is_on(end, host):
        return not host or end.startswith((f"{host}:", f"[{host}]:"))

    live = {(x["ifname"], x["lqpn"]): x for x in json.loads(node.run("rdma -j -dd res show qp").out)
            if x["state"] == "RTS"}
    names = [(x["ifname"], x["lqpn"]) for x in json.loads(node.run("rdma -j res show cm_id").out)
             if x.get("state") == "CONNECT" and is_on(x["src-addr"], own)
             and is_on(x["dst-addr"], peer)]
    return [live[x] for x in names if x in live]


def links_of(node, address):
    """Returns the RDMA devices of the connections from an address."""
    return {x["ifname"] for x in queue_pairs(node, address)}


def connection(node, local, peer, tos=0):
    """Returns the fields of a connection in debugfs, or nothing if there is no connection."""
    start = f"{local} -> {peer}{f' tos {tos}' if tos else ''}: "
    lines = node.read_file("/sys/kernel/debug/rds/connections").splitlines()
    found = [x.removeprefix(start) for x in lines if x.startswith(start)]
    return dict(x.split("=") for x in found[0].split()) if found else {}


# Fields of the traffic of a path in the table of paths, and their names in debugfs.
PATH_TRAFFIC = {"next_tx": "next_tx", "next_rx": "next_rx", "send_bytes": "acked_bytes",
                "recv_bytes": "received_bytes", "retransmissions": "retransmissions", "cpu": "cpu"}


def path_traffic(words):
    """Returns the traffic of a path as rds-info has it, from the words of its line in debugfs. A
    path that is not up has no CPU."""
    return {field: int(words[name]) if name in words else None for field, name in PATH_TRAFFIC.items()}


def times_up(node, local, peer):
    """Returns how often each end of a connection within a node came up. The counter of resets
    includes idle connections of other tests that are closed."""
    return [connection(node, *x)["ups"] for x in ((local, peer), (peer, local))]


def forget_each_other(tools, pair, target):
    """Reloads RDS on both nodes. Neither has anything to send to the other, and each knows the
    other's hardware address."""
    ping(tools, pair[0], target)
    for m in pair:
        must(m.unload())
    for m in pair:
        must(m.load())


def new_devices(node, guest):
    """Removes the devices of the pair and adds them again. Their numbering restarts, and a
    soft-RoCE device whose address has moved works again."""
    for i in (0, 1):
        node.run(f"rdma link del rdsx{i} && rdma link add rdsx{i} type {node.kind} netdev rdsv{i}")
    for address in PAIR:
        node.run(["python3", guest / "laddr.py", "bound", address])


def wait_until(look, shown=None, timeout=60):
    """Polls a function until its result is true, and returns that. Only for what is no event.

    shown: a function whose result says why the wait was in vain."""
    deadline = time.monotonic() + timeout
    while not (seen := look()):
        assert time.monotonic() < deadline, f"waited in vain: {shown() if shown else seen}"
        time.sleep(0.05)
    return seen


def wait_for_state(node, local, peer, *states):
    """Waits until a connection is in one of these states, and returns which."""
    def state():
        return connection(node, local, peer).get("state")

    return wait_until(lambda: (seen := state()) in states and seen,
                      lambda: f"the connection of {local} to {peer} is {state()}, not {states}")


def counters(node, guest):
    """Returns the counters of RDS_INFO_COUNTERS by name."""
    return json.loads(node.run(["python3", guest / "counters.py"]).out)


def unchanged(before, now, *names):
    """Checks that none of these counters has changed."""
    assert not (rose := {x: now[x] - before[x] for x in names if now[x] != before[x]}), rose


def stay_zero(names):
    """Returns those of the counters that always stay 0 according to Documentation/abi.md."""
    table = ABI_PAGE.read_text().partition("\nThese stay 0:\n")[2].partition("\n## ")[0]
    patterns = re.findall(r"`([a-z0-9_*]+)`", "".join(x.split("|")[1] for x in table.splitlines() if x.count("|") > 2))
    assert all(fnmatch.filter(names, x) for x in patterns), patterns
    return sorted({name for x in patterns for name in fnmatch.filter(names, x)})


def wait_for(node, guest, condition):
    """Waits until the counters satisfy a condition, and returns them.

    A single program reads them, because a process for each check would be a load that slows others.
    The condition is evaluated at least twice a second, as it may depend on other things, too.
    """
    watch = node.start(["python3", guest / "watch.py"])
    seen, deadline = {}, time.monotonic() + 240
    for line in watch.lines():
        seen |= json.loads(line)
        if condition(seen):
            watch.finish()
            return seen
        if time.monotonic() > deadline:
            break
    raise AssertionError(f"waited in vain, the counters are {seen}: {watch.err}")


def silence_limit(seconds, *nodes):
    """Sets the time for which peers of these nodes may be silent."""
    return setting("keepalive_secs", seconds, *nodes)


def flow_control(*nodes):
    """Enables flow control on new connections of these nodes whose peers also have it."""
    return setting("ib/flow_control", 1, *nodes)


@contextmanager
def setting(name, value, *nodes):
    path = f"/proc/sys/net/rds/{name}"
    before = [m.read_file(path) for m in nodes]
    for m in nodes:
        m.write_file(path, str(value))
    try:
        yield
    finally:
        for m, was in zip(nodes, before):
            m.write_file(path, was)


@contextmanager
def with_addresses(*ends):
    """Adds an address to the network device of each node for a while. Each end is (node, device,
    address)."""
    for m, netdev, address in ends:
        m.run(f"ip addr add {address}/64 dev {netdev} nodad")
    yield
    for m, netdev, address in ends:
        m.run(f"ip addr del {address}/64 dev {netdev}")


def there_and_back(guest, left, right):
    """Sends a message from left to right and back. Each is (node, network device, address)."""
    (a, near, source), (b, far, target) = left, right
    port = ports()
    program = ["python3", guest / "link_local.py"]
    echo = b.start([*program, far, "echo", target, port])
    echo.expect("^bound")
    a.run([*program, near, "ask", source, port, target])
    echo.wait(check=True)


def late_reader(guest, node, count, size, ends):
    """Starts a sender and a receiver that does not read yet, on one node. Returns both."""
    program, port = guest / "late_reader.py", ports()
    recv = node.start(["python3", program, "recv", ends[1], port, count, size])
    recv.expect("ready")
    send = node.start(["python3", program, "send", ends[0], port + 1, ends[1], port, count, size])
    return send, recv


def read_late(send, recv, count):
    """Makes the receiver of late_reader() read, and waits for both ends."""
    recv.write("read\n")
    recv.expect(f"^all {count}$", timeout=600)
    send.expect(f"^sent {count}$")
    send.write("done\n")
    for process in (send, recv):
        process.wait(check=True)
