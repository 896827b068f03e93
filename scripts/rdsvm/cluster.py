# SPDX-License-Identifier: GPL-2.0
"""Nodes as RDS sees them: modules, soft RDMA devices, wires, and the checks at the end of a test."""

import json
import re
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import klog
from .node import Node, NodeError

TOP = Path(__file__).resolve().parents[2]
IMPLEMENTATIONS = ("rust", "c")
# Of soft RDMA devices: RoCE and iWARP.
KINDS = ("rxe", "siw")
# The addresses of a machine's own veth pair.
PAIR = ("10.9.0.1", "10.9.0.2")
PAIR6 = ("fd09::1", "fd09::2")


def make_print(what, flavor):
    out = subprocess.run(["make", "-s", "-C", str(TOP), f"print-{what}", f"FLAVOR={flavor}"],
                         check=True, capture_output=True, text=True)
    return Path(out.stdout.strip())


def free_ports(count):
    """UDP ports of the loopback address that nobody has: all are held until all are known."""
    socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    try:
        for s in socks:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in socks]
    finally:
        for s in socks:
            s.close()


def must(result):
    """The Result of a command that has to succeed."""
    if result.status != 0:
        raise NodeError(str(result))
    return result


class Machine(Node):
    """A node with one implementation of RDS, "rust" or "c".

    flavor is that of its kernel. The C modules have known defects that the debug kernel reports,
    so a peer that runs them boots the release kernel. kind is that of its RDMA devices."""

    # All that were booted; whoever wants to know of some empties it before.
    booted = []

    def __init__(self, name, impl, flavor, rundir, kind="rxe", **kwargs):
        assert impl in IMPLEMENTATIONS and kind in KINDS
        self.impl, self.flavor, self.kind = impl, flavor, kind
        self.module = make_print("ko", flavor)
        # rxe_receiver() frees the packets of a lost connection with interrupts disabled and the queue
        # pair's state_lock held. virtio_net's come from a page pool, which enables softirqs on the way
        # (page_pool_put_unrefed_netmem): the debug kernel reports that, and where the softirq finds another
        # packet for that queue pair, the machine hangs for good. e1000 has no page pool.
        kwargs.setdefault("nic", "e1000")
        super().__init__(name, make_print("kdir", flavor), rundir, **kwargs)
        self.netdevs = []
        self.networks = []

    @property
    def debug(self):
        return self.flavor == "debug"

    def boot(self):
        """Boots, and sets up again the networks that the machine had."""
        self.booted.append(self)
        # It has reported something that it reports once.
        self.spent = False
        super().boot()
        # The first of each wire, and then the others.
        self.netdevs = [self._netdev(macs[0]) for macs, _, _ in self.wires]
        self.netdevs += [self._netdev(mac) for macs, _, _ in self.wires for mac in macs[1:]]
        # RDMA CM and the soft devices come and go with the machine, RDS with the tests.
        self.run(["modprobe", "-a", "rdma_rxe", "siw"])
        for commands in self.networks:
            self.run(commands)
        return self

    def _netdev(self, mac):
        out = self.run(f"grep -l {mac} /sys/class/net/*/address").out
        return out.split("/")[-2]

    # RDS

    def load(self, impl=None, options=()):
        """Loads RDS, ours with module parameters. Returns the Result, so that a test can look at a
        refusal."""
        self.impl = impl or self.impl
        if self.impl == "c":
            return self.run(["modprobe", "rds_rdma"], check=False)
        return self.run(["insmod", self.module, *options], check=False)

    def unload(self):
        if self.impl == "c":
            return self.run("rmmod rds_rdma && rmmod rds", check=False)
        return self.run(["rmmod", "rds_rust"], check=False)

    def loaded(self):
        """The RDS modules that are loaded."""
        present = self.run("cut -d' ' -f1 /proc/modules").out.split()
        return [x for x in ("rds_rust", "rds_rdma", "rds") if x in present]

    def forget(self, *options):
        """Loads RDS anew, without its connections, and ours with module parameters. C RDS in use does not survive its
        own unload (its CM handlers may still run), so there it takes a new boot."""
        if self.impl == "c":
            self.restart()
        else:
            must(self.unload())
        must(self.load(options=options))

    # Networks

    def add_wire(self, index, host, mtu=1500):
        """Gives wire `index` its addresses and an RDMA device; host is 1 or 2."""
        dev = self.netdevs[index]
        # Addresses first: the RDMA device takes them up when it appears, with nothing to wait for.
        self._network(f"tc qdisc add dev {dev} root netem limit 10000 && "
                      f"ip link set {dev} mtu {mtu} up && "
                      f"ip addr add {wire_address(index, host)}/24 dev {dev} && "
                      f"ip addr add {wire_address6(index, host)}/64 dev {dev} nodad && "
                      f"rdma link add {self.kind}{index} type {self.kind} netdev {dev}")

    def _network(self, commands):
        self.run(commands)
        self.networks.append(commands)

    def add_pair(self):
        """A veth pair in this kernel with an RDMA device on each end: PAIR's two addresses."""
        lines = ["ip link add rdsv0 type veth peer name rdsv1"]
        if self.kind == "siw":
            # TCP would reach the other end's address through the loopback device, and siw listens on
            # its own device only: the routes over the pair, which are for one address each, go first.
            lines += ["ip rule add pref 2 lookup local", "ip rule del pref 0",
                      "ip rule add pref 1 iif lo lookup main suppress_prefixlength 31"]
        for i in (0, 1):
            dev, other = f"rdsv{i}", 1 - i
            lines += [
                f"sysctl -q net.ipv4.conf.{dev}.accept_local=1 net.ipv4.conf.{dev}.rp_filter=0",
                f"ip link set {dev} up",
                f"ip addr add {PAIR[i]}/32 dev {dev}",
                # Both on one end: IPv6 has no accept_local for a packet from an own address.
                f"ip -6 addr add {PAIR6[i]}/128 dev rdsv0 nodad",
                f"ip route add {PAIR[other]}/32 dev {dev}",
                f"mac{i}=$(cat /sys/class/net/{dev}/address)",
            ]
        for i in (0, 1):
            lines.append(f"ip neigh replace {PAIR[1 - i]} lladdr $mac{1 - i} dev rdsv{i} "
                         "nud permanent")
            lines.append(f"rdma link add rdsx{i} type {self.kind} netdev rdsv{i}")
        self._network("set -e; " + "\n".join(lines))

    def add_peers(self, count):
        """More addresses on the ends of the pair, for connections that there were not yet: in the
        place of PAIR in other networks, 10.9.1.1 and 10.9.1.2 and so on."""
        lines = ["set -e"]
        for i in (0, 1):
            lines.append(f"mac{i}=$(cat /sys/class/net/rdsv{i}/address)")
        # One process for all of them: to start one takes longer than what it does.
        lines.append("ip -batch - <<END")
        for k in range(1, count + 1):
            addrs = [peer_address(k, i) for i in (0, 1)]
            for i in (0, 1):
                lines += [f"addr add {addrs[i]}/32 dev rdsv{i}",
                          f"route add {addrs[1 - i]}/32 dev rdsv{i}",
                          f"neigh replace {addrs[1 - i]} lladdr $mac{1 - i} dev rdsv{i} nud permanent"]
        self._network("\n".join([*lines, "END"]))

    def set_loss(self, percent, index=0):
        """How many of the packets that this node sends get lost. With all of them the wire is cut, and
        the carrier stays.

        The queue is netem's from the start, and only changed. While tc puts another one in its place a
        packet may be refused, and rxe fails a queue pair for good that was about to send, be it the
        one of the CM."""
        self.run(f"tc qdisc replace dev {self.netdevs[index]} root netem limit 10000 loss {percent}%")

    def lost(self, index=0):
        """How many packets were lost that way since the machine booted."""
        return json.loads(self.run(f"tc -s -j qdisc show dev {self.netdevs[index]} root").out)[0]["drops"]

    def set_link(self, up, index=0):
        """Pulls the cable of a wire, or puts it back: the guest sees its carrier go or come.

        Not "ip link set down": rxe fails the queue pair of its CM for good when it has to send
        without a route, and no connection can be made until the device is deleted."""
        self.monitor("set_link", name=f"w{index}", up=up)

    # Judgement

    def complaints(self, since=0):
        """The kernel's reports of defects since a mark, but for those of its own that are known: see klog.py."""
        found = klog.reports(self.log(since))
        ours = [x for x in found if not klog.is_elsewhere(x)]
        self.spent |= len(found) > len(ours)
        return ours

    def pins(self):
        """What the kernel counts of pinned pages if some are still pinned 10 s after the last program went, else
        nothing."""
        deadline = time.monotonic() + 10
        while True:
            self.write_file("/proc/sys/vm/stat_refresh", "1\n")
            pins = dict(re.findall(r"^(nr_foll_pin_\w+) (\d+)$", self.read_file("/proc/vmstat"), re.M))
            acquired, released = (pins[f"nr_foll_pin_{x}"] for x in ("acquired", "released"))
            if acquired == released or time.monotonic() > deadline:
                return "" if acquired == released else f"{acquired} were pinned and {released} given back"
            time.sleep(0.1)

    @property
    def finds_leaks(self):
        """Whether the kernel has kmemleak."""
        return self.debug

    def scan_leaks(self, timeout=600):
        """kmemleak's reports, if the kernel has it. An object counts once it is 5 s old and its
        contents did not change between two scans."""
        if not self.finds_leaks:
            return ""
        return self.run("set -e; f=/sys/kernel/debug/kmemleak; echo scan >$f; sleep 6; echo scan >$f; "
                        "echo scan >$f; cat $f", timeout=timeout).out


def peer_address(index, end):
    """What add_peers() has made: the addresses of index 0 are PAIR."""
    return PAIR[end].replace("10.9.0.", f"10.9.{index}.")


def wire_address(index, host):
    return f"10.{10 + index}.0.{host}"


def wire_address6(index, host):
    return f"fd{10 + index:02d}::{host}"


def two_nodes(rundir, impls, flavor, spare=False, **kwargs):
    """Boots two nodes joined by a wire, side by side. A C node's kernel is the release one.

    spare: there is a second wire, with two ports on node a and one on b. What is on it is up to the
    tests."""
    machines = []
    wires = 2 if spare else 1
    ports = free_ports(2 * wires)
    for i, impl in enumerate(impls):
        mine = [([f"52:54:00:00:{w:02x}:{i + 1:02x}"], ports[2 * w + i], ports[2 * w + 1 - i])
                for w in range(wires)]
        if spare and i == 0:
            mine[1][0].append("52:54:00:00:01:11")
        machines.append(Machine("ab"[i], impl, flavor if impl == "rust" else "release",
                                Path(rundir) / "ab"[i], wires=mine, **kwargs))
    boot_all(machines)
    for i, m in enumerate(machines):
        m.add_wire(0, i + 1)
    return machines


def one_node(rundir, impl, flavor, **kwargs):
    m = Machine("n", impl, flavor if impl == "rust" else "release", Path(rundir) / "n", **kwargs)
    m.boot()
    return m


def boot_all(machines):
    """Boots several machines at a time; kills all of them if one does not come up."""
    with ThreadPoolExecutor(len(machines)) as pool:
        futures = [pool.submit(m.boot) for m in machines]
    errors = [f.exception() for f in futures if f.exception()]
    if errors:
        for m in machines:
            m.kill()
        raise errors[0]
