# SPDX-License-Identifier: GPL-2.0
"""Nodes with RDS: modules, soft RDMA devices, wires, and the checks at the end of a test."""

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
# Kinds of soft RDMA devices: RoCE and iWARP.
KINDS = ("rxe", "siw")
# Kernel parameters of detectors that are off by default. Those of the release kernel replace KASAN
# and kmemleak.
COUNT_MEMORY = "sysctl.vm.mem_profiling=1"
# A busy host may stop a processor of a guest for more than ten seconds, the default of a lockup.
LOCKUP_SECONDS = "watchdog_thresh=30"
DETECTORS = {
    "release": (COUNT_MEMORY, "slab_debug=FZP,kmalloc-*", LOCKUP_SECONDS),
    # Twenty processes that each create a namespace wait there for each other for over 20 seconds.
    "debug": ("kasan_multi_shot", LOCKUP_SECONDS, "sysctl.kernel.hung_task_timeout_secs=60"),
}
# A scan reads all memory, so one lab of the debug kernel scans for all labs. The others count
# memory by call site, as the release kernel does.
NO_KMEMLEAK = ("kmemleak=off", COUNT_MEMORY)
# MTU of RoCE fabrics: such Ethernet frames hold the largest MTU of InfiniBand, 4096 bytes.
MTU = 4200
# Allocations of Rust code are counted in the helpers of the kernel crate, where they are made.
ALLOCATED_BY_RUST = re.compile(r"^ *(\d+) +\d+ rust/helpers/\S+ func:(\w+)", re.M)
# The addresses of a machine's own veth pair.
PAIR = ("10.9.0.1", "10.9.0.2")
PAIR6 = ("fd09::1", "fd09::2")


@functools.cache
def make_print(what, flavor, *variables):
    out = subprocess.run(["make", "-s", "-C", str(TOP), f"print-{what}", f"FLAVOR={flavor}", *variables],
                         check=True, capture_output=True, text=True)
    return Path(out.stdout.strip())


@functools.cache
def faulty_driver(flavor):
    """Builds the soft-RoCE of tests/vm/faulty if necessary, and returns its path."""
    script = TOP / "scripts/faulty-device.sh"
    return subprocess.run([script, flavor], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def free_ports(count):
    """Returns free UDP ports of the loopback address: all are held until all are known."""
    socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    try:
        for s in socks:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in socks]
    finally:
        for s in socks:
            s.close()


def must(result):
    """Returns the Result of a command, which has to be successful."""
    if result.status != 0:
        raise NodeError(str(result))
    return result


class Machine(Node):
    """A node with one implementation of RDS, "rust" or "c".

    flavor: that of its kernel. The C modules have known defects that the debug kernel reports, so
    a peer that runs them boots the release kernel.
    kind: that of its RDMA devices.
    detectors: without them its kernel does no additional work, and has the soft devices of the
    kernel's own source, as a benchmark needs.
    dma: way of its soft-RoCE devices to memory (hardware.py). By default that of the environment,
    RDS_DMA, in a machine with detectors. Then the devices of a node with this module check each
    access to memory: its soft-RoCE is that of tests/vm/faulty."""

    # The modules of its soft RDMA devices.
    soft_devices = ("rdma_rxe", "siw")
    # All machines that were booted. Code that needs a part of them empties the list before.
    booted = []
    # An optional object that is notified of boots, loads and unloads: see blockcov/record.py.
    watcher = None

    def __init__(self, name, impl, flavor, rundir, kind="rxe", detectors=True, dma=None, cmdline=(), qemu=(),
                 **kwargs):
        assert impl in IMPLEMENTATIONS and kind in KINDS
        self._begin(impl, flavor, kind)
        if detectors and kind == "rxe" and not dma:
            dma = hardware.way_of_environment()
            self.checked = bool(dma) and impl == "rust"
        dma_qemu, dma_cmdline = hardware.with_dma(dma)
        self.dma = dma
        self.module = make_print("ko", flavor)
        # rxe_receiver() frees the packets of a lost connection with interrupts disabled and the
        # queue pair's state_lock held. Packets of virtio_net come from a page pool, which enables
        # softirqs when it takes them back (page_pool_put_unrefed_netmem). The debug kernel reports
        # that. If the softirq finds another packet for that queue pair, the machine hangs. e1000
        # has no page pool.
        kwargs.setdefault("nic", "e1000")
        cmdline = [*(DETECTORS[flavor] if detectors else hardware.NO_DETECTORS), *dma_cmdline, *cmdline]
        kernel = make_print("kdir", flavor)
        modules = make_print("mods", flavor) if detectors or dma else kernel / "mods"
        super().__init__(name, kernel, modules, rundir, cmdline=cmdline, qemu=[*dma_qemu, *qemu], **kwargs)

    def _begin(self, impl, flavor, kind):
        """Sets the state of a machine that was not booted yet."""
        self.impl, self.flavor, self.kind = impl, flavor, kind
        self.dma, self.checked = None, False
        # Violations of an earlier boot.
        self.violations = []
        self.netdevs = []
        self.networks = []
        # Bytes that Rust code owned before the module was loaded, by call site.
        self.allocated = None
        # The time limit for that memory to be free after an unload: a grace period may have to end.
        self.freed_seconds = 60
        self.built = None

    @property
    def debug(self):
        return self.flavor == "debug"

    def boot(self):
        """Boots, and sets up again the networks that the machine had."""
        self.booted.append(self)
        # Set if the kernel has issued a report that it issues only once per boot.
        self.spent = False
        if self.watcher:
            self.watcher.booting(self)
        super().boot()
        # The first device of each wire, and then the others.
        self.netdevs = [self._netdev(macs[0]) for macs, _, _ in self.wires]
        self.netdevs += [self._netdev(mac) for macs, _, _ in self.wires for mac in macs[1:]]
        # RDMA CM and the soft devices are loaded once per boot; tests load and unload RDS.
        self.run(["modprobe", "-a", *self.soft_devices])
        if self.checked:
            self.run(hardware.checking_driver(faulty_driver(self.flavor), self.dma))
        for commands in self.networks:
            self.run(commands)
        return self

    def kill(self):
        """Ends the guest as a power failure would. Its devices' violations stay known."""
        if self._ready and self.alive():
            # The guest may not answer any more.
            with suppress(NodeError):
                self.violations += self._violations()
        super().kill()

    def _netdev(self, mac):
        out = self.run(f"grep -l {mac} /sys/class/net/*/address").out
        return out.split("/")[-2]

    # RDS

    def load(self, impl=None, options=()):
        """Loads RDS, and this module with parameters.

        Returns the Result, so that a test can check a refusal."""
        self.impl = impl or self.impl
        if self.impl == "c":
            return self.run(["modprobe", "rds_rdma"], check=False)
        self.allocated = self.allocated_by_rust() if COUNT_MEMORY in self.cmdline else None
        self.built = self.module.stat().st_mtime
        if self.watcher:
            self.watcher.loading(self)
        # The module with KUnit suites runs them meanwhile, which takes minutes on the debug kernel
        # of a busy machine.
        result = self.run(["insmod", self.module, *options], check=False, timeout=600)
        if self.watcher:
            self.watcher.loaded(self)
        return result

    def unload(self):
        """Unloads RDS, and checks that this module has freed all memory.

        The kernel's log names the leaking call sites in C, and this function those in Rust."""
        if self.impl == "c":
            return self.run("rmmod rds_rdma && rmmod rds", check=False)
        result = self.run(["rmmod", "rds_rust"], check=False)
        if self.watcher and result.status == 0:
            self.watcher.unloaded(self)
        if result.status == 0 and self.allocated is not None:
            self._wait_until_freed()
        return result

    def allocated_by_rust(self):
        """Returns {call site: bytes} of the memory that Rust code owns."""
        out = self.run("grep rust/helpers/ /proc/allocinfo").out
        return {name: int(size) for size, name in ALLOCATED_BY_RUST.findall(out)}

    def _wait_until_freed(self):
        deadline = time.monotonic() + self.freed_seconds
        while True:
            now = self.allocated_by_rust()
            left = {x: now[x] - self.allocated.get(x, 0) for x in now if now[x] > self.allocated.get(x, 0)}
            if not left:
                return
            if time.monotonic() > deadline:
                raise Defect(f"{self.name}: bytes that Rust code has not given back at unload: {left}")
            time.sleep(0.1)

    def module_changed(self):
        """Returns True if the module was built again after it was loaded."""
        return self.built is not None and self.built != self.module.stat().st_mtime

    def loaded(self):
        """Returns the names of the loaded RDS modules."""
        present = self.run("cut -d' ' -f1 /proc/modules").out.split()
        return [x for x in ("rds_rust", "rds_rdma", "rds") if x in present]

    def forget(self, *options):
        """Reloads RDS, without its connections, and this module with parameters.

        C RDS in use does not survive its own unload, because its CM handlers may still run. So it
        takes a new boot."""
        if self.impl == "c":
            self.restart()
        else:
            must(self._unload_when_unused())
        must(self.load(options=options))

    def _unload_when_unused(self):
        """Unloads RDS. Operations and rings of io_uring may keep the sockets of a program that has
        exited for a while."""
        deadline = time.monotonic() + 60
        while True:
            result = self.unload()
            if result.status == 0 or "in use" not in result.err or time.monotonic() > deadline:
                return result
            time.sleep(0.1)

    # Networks

    def add_wire(self, index, host, mtu=MTU):
        """Gives wire `index` its addresses and an RDMA device; host is 1 or 2."""
        dev = self.netdevs[index]
        # Addresses first: the RDMA device adds them when it appears, and nothing has to wait.
        self._network(f"tc qdisc add dev {dev} root netem limit 10000 && "
                      f"ip link set {dev} mtu {mtu} up && "
                      f"ip addr add {wire_address(index, host)}/24 dev {dev} && "
                      f"ip addr add {wire_address6(index, host)}/64 dev {dev} nodad && "
                      f"rdma link add {self.kind}{index} type {self.kind} netdev {dev}")

    def _network(self, commands):
        self.run(commands)
        self.networks.append(commands)

    def add_pair(self, mtu=MTU):
        """Adds a veth pair with an RDMA device on each end, and with the addresses PAIR."""
        macs = [f"52:54:00:01:00:{i:02x}" for i in (0, 1)]
        links, addresses, devices = [f"link add rdsv0 address {macs[0]} type veth peer name rdsv1 address {macs[1]}"], [], []
        if self.kind == "siw":
            # TCP would reach the address of the other end through the loopback device, and siw
            # listens only on its own device. So the routes over the pair, which are for one address
            # each, have precedence.
            links += ["rule add pref 2 lookup local", "rule del pref 0",
                      "rule add pref 1 iif lo lookup main suppress_prefixlength 31"]
        for i in (0, 1):
            dev, other = f"rdsv{i}", 1 - i
            links.append(f"link set {dev} mtu {mtu} up")
            addresses += [
                f"addr add {PAIR[i]}/32 dev {dev}",
                # Both addresses on one end: IPv6 has no accept_local for own source addresses.
                f"addr add {PAIR6[i]}/128 dev rdsv0 nodad",
                f"route add {PAIR[other]}/32 dev {dev}",
                f"neigh replace {PAIR[other]} lladdr {macs[other]} dev {dev} nud permanent",
            ]
            devices.append(f"link add rdsx{i} type {self.kind} netdev {dev}")
        # One process for many commands: to start a process takes longer than a command.
        settings = " ".join(f"net.ipv4.conf.rdsv{i}.{x}" for i in (0, 1) for x in ("accept_local=1", "rp_filter=0"))
        self._network("\n".join(["set -e", batch("ip", links), f"sysctl -q {settings}", batch("ip", addresses),
                                 batch("rdma", devices)]))

    def add_peers(self, count, first=1, known=True):
        """Adds `count` addresses to each end of the pair, for new connections. They may exist.

        They are those of PAIR in other networks: 10.9.1.1 and 10.9.1.2 and so on. The kernel asks
        for their Ethernet addresses unless they are `known`. It then asks from the address of that
        network, as on a real one, so the peer knows that one."""
        lines = []
        macs = [self.read_file(f"/sys/class/net/rdsv{i}/address").strip() for i in (0, 1)]
        for k in range(first, first + count):
            addrs = [peer_address(k, i) for i in (0, 1)]
            for i in (0, 1):
                lines += [f"addr replace {addrs[i]}/{32 if known else 24} dev rdsv{i} noprefixroute",
                          f"route replace {addrs[1 - i]}/32 dev rdsv{i}"]
                if known:
                    lines.append(f"neigh replace {addrs[1 - i]} lladdr {macs[1 - i]} dev rdsv{i} nud permanent")
        self._network(batch("ip", lines))

    def set_loss(self, percent, index=0):
        """Sets the percentage of packets sent by this node that are lost.

        100 cuts the wire, and the carrier stays on. The queue is netem's from the start and is only
        changed. While tc replaces a queue by another one, a packet may be refused. rxe then moves
        the sending queue pair to the error state for good, even the queue pair of the CM."""
        self.run(f"tc qdisc replace dev {self.netdevs[index]} root netem limit 10000 loss {percent}%")

    def lost(self, index=0):
        """Returns the number of packets lost in this way since the machine booted."""
        return json.loads(self.run(f"tc -s -j qdisc show dev {self.netdevs[index]} root").out)[0]["drops"]

    def set_link(self, up, index=0):
        """Pulls the cable of a wire, or plugs it in: the guest sees its carrier go or come.

        Not "ip link set down": then rxe has to send without a route, which moves the queue pair of
        its CM to the error state. No connection can be made until the device is deleted."""
        self.monitor("set_link", name=f"w{index}", up=up)

    # Judgement

    def complaints(self, since=0):
        """Returns the kernel's reports of defects since a mark, except known ones: see klog.py."""
        found = klog.reports(self.log(since))
        if NO_KMEMLEAK[0] in self.cmdline:
            found = [x for x in found if not x.startswith("kmemleak: Kernel memory leak detector disabled")]
        ours = [x for x in found if not klog.is_elsewhere(x)]
        self.spent |= len(found) > len(ours)
        return ours

    def cm_failed(self):
        """Returns True if soft-RoCE's queue pair of the CM failed: no connection can be made."""
        if not self.alive() or self.kind != "rxe":
            return False
        with suppress(NodeError, ValueError):
            pairs = json.loads(self.run("rdma -j resource show qp", timeout=20).out or "[]")
            return any(x["type"] == "GSI" and x["state"] == "ERR" for x in pairs)
        return False

    def with_symbols(self, report):
        """Returns a kernel report with this module's source lines, added by a kernel script."""
        script = Path(self.kernel / "source/scripts/decode_stacktrace.sh")
        done = subprocess.run([script, self.kernel / "vmlinux", TOP, self.module.parent], input=report, text=True,
                              capture_output=True, check=False)
        return done.stdout if done.returncode == 0 and done.stdout else report

    def pins(self, seconds=60):
        """Returns a message if pages are still pinned this long after the last program ended.

        The message has the kernel's counts of pins; it is empty if no page is pinned."""
        deadline = time.monotonic() + seconds
        while True:
            self.write_file("/proc/sys/vm/stat_refresh", "1\n")
            pins = dict(re.findall(r"^(nr_foll_pin_\w+) (\d+)$", self.read_file("/proc/vmstat"), re.M))
            acquired, released = (pins[f"nr_foll_pin_{x}"] for x in ("acquired", "released"))
            if acquired == released or time.monotonic() > deadline:
                return "" if acquired == released else f"{acquired} were pinned and {released} given back"
            time.sleep(0.1)

    def bounced_slots(self):
        """Returns the number of bounce-buffer slots in use."""
        return int(self.read_file("/sys/kernel/debug/swiotlb/io_tlb_used"))

    def left_bounced(self):
        """Unloads RDS, and removes all devices of RDMA and the network. Returns the slots of bounce
        buffers in use then, if devices bounce."""
        if self.dma != hardware.BOUNCED or self.impl == "c":
            return 0
        self.stop_all()
        must(self._unload_when_unused())
        self.run("for d in $(ls /sys/class/infiniband); do rdma link del $d; done; "
                 "for d in /sys/class/net/*/; do ip link set $(basename $d) down; done")
        return self.bounced_slots()

    def _violations(self):
        if not self.checked:
            return []
        files = " ".join(f"{hardware.FAULTS}/strict/{x}" for x in hardware.VIOLATIONS)
        # A test may have removed the driver.
        counts = self.run(f"grep -H -v -x 0 {files}", check=False, timeout=20).out
        return counts.replace(f"{hardware.FAULTS}/strict/", "").split()

    def forbidden(self):
        """Returns kinds and numbers of the devices' violations since the first boot, such as
        accesses to memory that is not mapped. Only checked devices report any."""
        return self.violations + (self._violations() if self.alive() else [])

    def dma_errors(self):
        """Returns what the kernel's own checks of the DMA API have found, or nothing. Only the
        debug kernel has them. They end if they run out of memory."""
        if not self.debug:
            return {}
        wanted = {"error_count": "0", "disabled": "N"}
        found = {x: self.read_file(f"/sys/kernel/debug/dma-api/{x}").strip() for x in wanted}
        return found if found != wanted else {}

    @property
    def finds_leaks(self):
        """True if the kernel has kmemleak, and no parameter disables it."""
        return self.debug and NO_KMEMLEAK[0] not in self.cmdline

    def scan_leaks(self, timeout=600):
        """Returns kmemleak's reports, if the kernel has it.

        An object counts once it is 5 s old and its contents did not change between two scans that
        found it. There are three scans, as the first one may find it referenced."""
        if not self.finds_leaks:
            return ""
        return self.run("set -e; f=/sys/kernel/debug/kmemleak; echo scan >$f; sleep 6; echo scan >$f; echo scan >$f; cat $f",
                        timeout=timeout).out


def batch(program, lines):
    """Returns a shell command: several commands of ip or rdma in one process."""
    return "\n".join([f"{program} -b - <<END", *lines, "END"])


def peer_address(index, end):
    """Returns an address added by add_peers(); index 0 gives an address of PAIR."""
    return PAIR[end].replace("10.9.0.", f"10.9.{index}.")


def wire_address(index, host):
    return f"10.{10 + index}.0.{host}"


def wire_address6(index, host):
    return f"fd{10 + index:02d}::{host}"


def two_nodes(rundir, impls, flavor, spare=False, mtu=MTU, ways=(None, None), **kwargs):
    """Boots two nodes in parallel, joined by a wire. A C node has the release kernel.

    mtu: that of the wire.
    ways: those of the devices of each node to memory, see Machine.
    spare: there is a second wire, with two ports on node a and one on b. The tests configure it."""
    machines = []
    wires = 2 if spare else 1
    ports = free_ports(2 * wires)
    for i, impl in enumerate(impls):
        mine = [([f"52:54:00:00:{w:02x}:{i + 1:02x}"], ports[2 * w + i], ports[2 * w + 1 - i])
                for w in range(wires)]
        if spare and i == 0:
            mine[1][0].append("52:54:00:00:01:11")
        machines.append(Machine("ab"[i], impl, flavor if impl == "rust" else "release",
                                Path(rundir) / "ab"[i], wires=mine, dma=ways[i], **kwargs))
    boot_all(machines)
    for i, m in enumerate(machines):
        m.add_wire(0, i + 1, mtu)
    return machines


def one_node(rundir, impl, flavor, machine=Machine, **kwargs):
    m = machine("n", impl, flavor if impl == "rust" else "release", Path(rundir) / "n", **kwargs)
    m.boot()
    return m


def boot_all(machines):
    """Boots several machines in parallel; kills all of them if one does not come up."""
    with ThreadPoolExecutor(len(machines)) as pool:
        futures = [pool.submit(m.boot) for m in machines]
    errors = [f.exception() for f in futures if f.exception()]
    if errors:
        for m in machines:
            m.kill()
        raise errors[0]
