# SPDX-License-Identifier: GPL-2.0
"""Nodes as RDS sees them: modules, soft RDMA devices, wires, and the checks at the end of a test."""

import functools
import json
import re
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from . import hardware, klog
from .node import Defect, Node, NodeError

TOP = Path(__file__).resolve().parents[2]
IMPLEMENTATIONS = ("rust", "c")
# Of soft RDMA devices: RoCE and iWARP.
KINDS = ("rxe", "siw")
# Kernel parameters of detectors that are off unless they are asked for. Those of the release kernel stand in for KASAN
# and kmemleak.
COUNT_MEMORY = "sysctl.vm.mem_profiling=1"
# A busy host may leave a processor of a guest waiting for longer than the ten seconds that a lockup has by default.
LOCKUP_SECONDS = "watchdog_thresh=30"
DETECTORS = {
    "release": (COUNT_MEMORY, "slab_debug=FZP,kmalloc-*", LOCKUP_SECONDS),
    # Twenty processes that each make a namespace wait for longer than 20 seconds for each other there.
    "debug": ("kasan_multi_shot", LOCKUP_SECONDS, "sysctl.kernel.hung_task_timeout_secs=60"),
}
# A scan looks at all memory, so one lab of the debug kernel does it for all. The others count memory by call site, as
# the release kernel does.
NO_KMEMLEAK = ("kmemleak=off", COUNT_MEMORY)
# Ethernet frames as RoCE fabrics have them, which hold the largest MTU of InfiniBand, 4096 bytes.
MTU = 4200
# Allocations of Rust code are counted where the kernel crate's helpers make them.
ALLOCATED_BY_RUST = re.compile(r"^ *(\d+) +\d+ rust/helpers/\S+ func:(\w+)", re.M)
# The addresses of a machine's own veth pair.
PAIR = ("10.9.0.1", "10.9.0.2")
PAIR6 = ("fd09::1", "fd09::2")


@functools.cache
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
    so a peer that runs them boots the release kernel. kind is that of its RDMA devices. Without detectors its kernel
    does nothing but what is asked of it, on the soft devices of the kernel's source, as a benchmark needs."""

    # The modules of its soft RDMA devices.
    soft_devices = ("rdma_rxe", "siw")
    # All that were booted; whoever wants to know of some empties it before.
    booted = []
    # Seconds of processors that each boot took until the first command.
    boots = []
    # It is told of boots, loads and unloads, if there is one: see blockcov/record.py.
    watcher = None

    def __init__(self, name, impl, flavor, rundir, kind="rxe", detectors=True, cmdline=(), **kwargs):
        assert impl in IMPLEMENTATIONS and kind in KINDS
        self.impl, self.flavor, self.kind = impl, flavor, kind
        self.module = make_print("ko", flavor)
        # rxe_receiver() frees the packets of a lost connection with interrupts disabled and the queue
        # pair's state_lock held. virtio_net's come from a page pool, which enables softirqs on the way
        # (page_pool_put_unrefed_netmem): the debug kernel reports that, and where the softirq finds another
        # packet for that queue pair, the machine hangs for good. e1000 has no page pool.
        kwargs.setdefault("nic", "e1000")
        cmdline = [*(DETECTORS[flavor] if detectors else hardware.NO_DETECTORS), *cmdline]
        kernel = make_print("kdir", flavor)
        modules = make_print("mods", flavor) if detectors else kernel / "mods"
        super().__init__(name, kernel, modules, rundir, cmdline=cmdline, **kwargs)
        self.netdevs = []
        self.networks = []
        # Bytes that Rust code had before the module was loaded, by call site.
        self.allocated = None
        self.built = None

    @property
    def debug(self):
        return self.flavor == "debug"

    def boot(self):
        """Boots, and sets up again the networks that the machine had."""
        self.booted.append(self)
        # It has reported something that it reports once.
        self.spent = False
        if self.watcher:
            self.watcher.booting(self)
        super().boot()
        self.boots.append(round(self.cpu_seconds(), 2))
        # The first of each wire, and then the others.
        self.netdevs = [self._netdev(macs[0]) for macs, _, _ in self.wires]
        self.netdevs += [self._netdev(mac) for macs, _, _ in self.wires for mac in macs[1:]]
        # RDMA CM and the soft devices come and go with the machine, RDS with the tests.
        self.run(["modprobe", "-a", *self.soft_devices])
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
        self.allocated = self.allocated_by_rust() if COUNT_MEMORY in self.cmdline else None
        self.built = self.module.stat().st_mtime
        if self.watcher:
            self.watcher.loading(self)
        result = self.run(["insmod", self.module, *options], check=False)
        if self.watcher:
            self.watcher.loaded(self)
        return result

    def unload(self):
        """Unloads RDS. Memory that ours has not given back by then is a defect: the kernel's log names the call sites
        in C, and this those in Rust."""
        if self.impl == "c":
            return self.run("rmmod rds_rdma && rmmod rds", check=False)
        result = self.run(["rmmod", "rds_rust"], check=False)
        if self.watcher and result.status == 0:
            self.watcher.unloaded(self)
        if result.status == 0 and self.allocated is not None:
            self._wait_until_freed()
        return result

    def allocated_by_rust(self):
        """{call site: bytes} of the memory that Rust code has."""
        out = self.run("grep rust/helpers/ /proc/allocinfo").out
        return {name: int(size) for size, name in ALLOCATED_BY_RUST.findall(out)}

    def _wait_until_freed(self):
        # A grace period may have to end first.
        deadline = time.monotonic() + 10
        while True:
            now = self.allocated_by_rust()
            left = {x: now[x] - self.allocated.get(x, 0) for x in now if now[x] > self.allocated.get(x, 0)}
            if not left:
                return
            if time.monotonic() > deadline:
                raise Defect(f"{self.name}: bytes that Rust code has not given back at unload: {left}")
            time.sleep(0.1)

    def module_changed(self):
        """Whether the module was built since it was loaded."""
        return self.built is not None and self.built != self.module.stat().st_mtime

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

    def add_wire(self, index, host, mtu=MTU):
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

    def add_pair(self, mtu=MTU):
        """A veth pair in this kernel with an RDMA device on each end: PAIR's two addresses."""
        macs = [f"52:54:00:01:00:{i:02x}" for i in (0, 1)]
        links, addresses, devices = [f"link add rdsv0 address {macs[0]} type veth peer name rdsv1 address {macs[1]}"], [], []
        if self.kind == "siw":
            # TCP would reach the other end's address through the loopback device, and siw listens on
            # its own device only: the routes over the pair, which are for one address each, go first.
            links += ["rule add pref 2 lookup local", "rule del pref 0",
                      "rule add pref 1 iif lo lookup main suppress_prefixlength 31"]
        for i in (0, 1):
            dev, other = f"rdsv{i}", 1 - i
            links.append(f"link set {dev} mtu {mtu} up")
            addresses += [
                f"addr add {PAIR[i]}/32 dev {dev}",
                # Both on one end: IPv6 has no accept_local for a packet from an own address.
                f"addr add {PAIR6[i]}/128 dev rdsv0 nodad",
                f"route add {PAIR[other]}/32 dev {dev}",
                f"neigh replace {PAIR[other]} lladdr {macs[other]} dev {dev} nud permanent",
            ]
            devices.append(f"link add rdsx{i} type {self.kind} netdev {dev}")
        # One process for many of them: to start one takes longer than what it does.
        settings = " ".join(f"net.ipv4.conf.rdsv{i}.{x}" for i in (0, 1) for x in ("accept_local=1", "rp_filter=0"))
        self._network("\n".join(["set -e", batch("ip", links), f"sysctl -q {settings}", batch("ip", addresses),
                                 batch("rdma", devices)]))

    def add_peers(self, count, first=1):
        """More addresses on the ends of the pair, for connections that there were not yet: in the
        place of PAIR in other networks, 10.9.1.1 and 10.9.1.2 and so on."""
        lines = []
        macs = [self.read_file(f"/sys/class/net/rdsv{i}/address").strip() for i in (0, 1)]
        for k in range(first, first + count):
            addrs = [peer_address(k, i) for i in (0, 1)]
            for i in (0, 1):
                lines += [f"addr add {addrs[i]}/32 dev rdsv{i}",
                          f"route add {addrs[1 - i]}/32 dev rdsv{i}",
                          f"neigh replace {addrs[1 - i]} lladdr {macs[1 - i]} dev rdsv{i} nud permanent"]
        self._network(batch("ip", lines))

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
        if NO_KMEMLEAK[0] in self.cmdline:
            found = [x for x in found if not x.startswith("kmemleak: Kernel memory leak detector disabled")]
        ours = [x for x in found if not klog.is_elsewhere(x)]
        self.spent |= len(found) > len(ours)
        return ours

    def cm_failed(self):
        """Whether soft-RoCE has failed the queue pair of the CM, so that no connection can be made any more."""
        if not self.alive() or self.kind != "rxe":
            return False
        with suppress(NodeError, ValueError):
            pairs = json.loads(self.run("rdma -j resource show qp", timeout=20).out or "[]")
            return any(x["type"] == "GSI" and x["state"] == "ERR" for x in pairs)
        return False

    def with_symbols(self, report):
        """A report of the kernel with the source lines of this module, found by the kernel's own script."""
        script = Path(self.kernel / "source/scripts/decode_stacktrace.sh")
        done = subprocess.run([script, self.kernel / "vmlinux", TOP, self.module.parent], input=report, text=True,
                              capture_output=True, check=False)
        return done.stdout if done.returncode == 0 and done.stdout else report

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
        """Whether the kernel has kmemleak, and was not told to leave it off."""
        return self.debug and NO_KMEMLEAK[0] not in self.cmdline

    def scan_leaks(self, timeout=600):
        """kmemleak's reports, if the kernel has it. An object counts once it is 5 s old and its
        contents did not change between two scans that found it: three in all, as the first may find it referenced."""
        if not self.finds_leaks:
            return ""
        return self.run("set -e; f=/sys/kernel/debug/kmemleak; echo scan >$f; sleep 6; echo scan >$f; echo scan >$f; cat $f",
                        timeout=timeout).out


def batch(program, lines):
    """A command of the shell: several of ip or rdma in one process."""
    return "\n".join([f"{program} -b - <<END", *lines, "END"])


def peer_address(index, end):
    """What add_peers() has made: the addresses of index 0 are PAIR."""
    return PAIR[end].replace("10.9.0.", f"10.9.{index}.")


def wire_address(index, host):
    return f"10.{10 + index}.0.{host}"


def wire_address6(index, host):
    return f"fd{10 + index:02d}::{host}"


def two_nodes(rundir, impls, flavor, spare=False, mtu=MTU, **kwargs):
    """Boots two nodes joined by a wire, side by side. A C node's kernel is the release one. mtu: that of the wire.

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
        m.add_wire(0, i + 1, mtu)
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
