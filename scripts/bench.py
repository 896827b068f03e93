#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""make bench: measures the cost of operations on RDS sockets with C RDS and with this module.

The machines run one after the other, with one CPU whose clock counts instructions. So the numbers
repeat, whatever else this computer does. Documentation/performance.md explains each row.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import perftest
from insntrace import trace
from rdsvm import cluster, hardware
from rdsvm.node import NodeError

TOP = cluster.TOP
TOOL = TOP / "build/tools/release/rds-bench"
PLUGIN = TOP / "build/tools/insntrace.so"
NAMES = {"c": "C", "rust": "Rust"}
PEERS = 16
# Wall-clock seconds. A row takes a few seconds, and some rows take dozens with a profile.
ROW_SECONDS = 300
PROFILE_SAMPLES = 30
# Largest accepted growth over the committed counts. Two runs agree within about 1 %.
MOST_GROWTH = 0.05
START = time.monotonic()


@dataclass
class Row:
    """A row of the table.

    floor: the row with the cost of the same in the kernel without RDS.
    within: the goal is the number of the row `floor` plus this.
    impls: the implementations that can do it.
    verbs: the perftest operation that measures it, if TOOL does not.
    mean: samples differ by the state that each finds, so their median is random; the mean counts.
    varies: the scheduler decides about switches to the worker. Builds that differ in a few lines
        differ by up to a tenth, so no count is committed.
    """

    name: str
    what: str
    goal: float | None = None
    floor: str | None = None
    within: float | None = None
    impls: tuple = ("c", "rust")
    verbs: perftest.Operation | None = None
    mean: bool = False
    varies: bool = False


def operation(name, what, *verbs, within=None):
    """Returns two rows: an operation on memory of the peer, and the same one with verbs.

    C RDS ends few of these operations well."""
    floor = f"verbs-{name}"
    return [Row(name, f"RDMA, {what}", floor=floor, within=within, impls=("rust",)),
            Row(floor, f"verbs, {what}", impls=("rust",), verbs=perftest.Operation(*verbs))]


def over_tcp(name, what, within, varies=False):
    """Returns two rows: messages over TCP, and the same bytes over plain TCP."""
    floor = f"stream-{name}"
    return [Row(floor, f"plain TCP, {what}"),
            Row(f"tcp-{name}", f"TCP, {what}", floor=floor, within=within, varies=varies)]


ROWS = [
    Row("empty-call", "empty system call"),
    Row("udp-bind", "UDP bind()"),
    Row("unix-64-rtt", "AF_UNIX 64 B round trip"),
    Row("unix-8k", "AF_UNIX 8 KiB one way"),
    Row("bind-fresh", "bind(), address without a connection", 700, "udp-bind"),
    Row("bind-used", "bind(), address with a connection", 700, "udp-bind"),
    Row("loop-64-rtt", "loopback 64 B round trip", 7_000, "unix-64-rtt"),
    Row("loop-8k", "loopback 8 KiB one way", 18_000, "unix-8k"),
    Row("rxe-64-rtt", "rxe 64 B round trip", 66_000),
    Row("rxe-4k-rtt", "rxe 4 KiB round trip", 162_000),
    Row("rxe-64k-rtt", "rxe 64 KiB round trip", 1_850_000),
    Row("rxe-64", "rxe 64 B one way, 64 in flight", 19_000),
    Row("rxe-8k", "rxe 8 KiB one way, 16 in flight", 120_000),
    *over_tcp("64-rtt", "64 B round trip", 0.15, varies=True),
    *over_tcp("4k-rtt", "4 KiB round trip", 0.15, varies=True),
    *over_tcp("64k-rtt", "64 KiB round trip", 0.05),
    *over_tcp("64", "64 B one way, 64 in flight", -0.10, varies=True),
    *over_tcp("8k", "8 KiB one way, 16 in flight", 0.0),
    *over_tcp("1m", "1 MiB one way", 0.03),
    Row("tcp-setup", "first message to a new peer over TCP, ns", varies=True),
    Row("tcp-memory", "memory of an idle connection over TCP, KiB"),
    Row("region-64k", "registration and end of 64 KiB, mean", impls=("rust",), mean=True),
    *operation("write-64k", "64 KiB written", "ib_write_bw", 64 << 10, 100, within=0.40),
    *operation("read-64k", "64 KiB read", "ib_read_bw", 64 << 10, 100, within=0.40),
    *operation("write-1m", "1 MiB written", "ib_write_bw", 1 << 20, 20, within=0.15),
    *operation("read-1m", "1 MiB read", "ib_read_bw", 1 << 20, 20, within=0.15),
    *operation("fetch-add", "fetch and add", "ib_atomic_bw", 8, 1000),
    Row("memory", "memory of an idle connection, KiB", 768),
    Row("setup", "first message to a new peer, ns", 15_000_000),
    Row("setup-unknown", "first message to a new peer, neighbour unknown, ns", varies=True),
    Row("close", "close() of a bound socket"),
    # The table of C RDS takes 32,768 sockets.
    Row("bind-many", "bind(), 200,000 sockets bound", 700, "udp-bind", impls=("rust",)),
    Row("close-many", "close(), 200,000 sockets bound", impls=("rust",)),
    Row("close-queued", "close(), behind 1,000 messages of others"),
    Row("close-queued-many", "close(), behind 100,000 messages of others"),
    Row("bind-crowded", "bind() and close(), 50,000 ports of the address taken", impls=("rust",)),
    Row("bind-last", "bind() and close(), one port of the address free, mean", impls=("rust",), mean=True),
]
MEANS = {x.name for x in ROWS if x.mean}
# Ways of --dma to memory. Peers never use a bounce buffer, so nothing can be registered there.
DMA = {"lazy": hardware.TRANSLATED, "strict": hardware.STRICT, "bounced": hardware.BOUNCED}
# Rows of --dma: those that a device takes part in.
ON_DMA = [x.name for x in ROWS if x.name.startswith("rxe-")]
# Rows that need the transport over TCP, and the network for it.
ON_TCP = {x.name for x in ROWS if x.name.startswith(("tcp-", "stream-"))}


def say(text):
    print(f"== [{time.monotonic() - START:4.0f} s] {text}", file=sys.stderr, flush=True)


def number(value):
    return "" if value is None else f"{value:,.0f}"


def figure(report):
    """Returns the cost of a row: the median of its samples, or their mean."""
    return report["mean" if report["row"] in MEANS else "p50"]


class Run:
    """One machine with one implementation, its measurements, and its kernel's version."""

    kernel = None

    def __init__(self, impl, args, rundir):
        self.impl, self.args, self.rundir = impl, args, Path(rundir)
        self.reports = {}

    def measure(self):
        say(f"{NAMES[self.impl]}: booting")
        m = self.machine()
        try:
            m.boot()
            self.kernel = cluster.must(m.run("uname -r")).out.strip()
            m.add_pair(mtu=hardware.COUNTED_MTU)
            m.add_peers(PEERS)
            m.add_peers(PEERS, first=PEERS + 1, known=False)
            mine = [x for x in self.args.rows if self.impl in x.impls]
            others, tcp = ([x for x in mine if (x.name in ON_TCP) == on] for on in (False, True))
            # The profile needs the module at one place.
            if tcp and (self.args.profile or not others):
                self.load_tcp(m)
                self.rows(m, mine)
            else:
                cluster.must(m.load())
                self.rows(m, others)
                if tcp:
                    cluster.must(m.unload())
                    self.load_tcp(m)
                    self.rows(m, tcp)
            if found := m.complaints() if self.impl == "rust" else []:
                raise NodeError(f"the kernel log is not clean:\n{found[0]}")
            if self.args.profile:
                self.profile(m)
        finally:
            m.kill()

    def machine(self):
        qemu = [*hardware.COUNTING_CLOCK]
        if self.args.profile:
            qemu += ["-plugin", f"{PLUGIN},out={self.rundir}/{self.impl}"]
        m = cluster.Machine(f"bench-{self.impl}", self.impl, "release", self.rundir / self.impl,
                            cpus=1, cpu=hardware.COUNTED_CPU, detectors=False, qemu=qemu,
                            dma=DMA.get(self.args.dma))
        m.kernel = self.args.kdir or m.kernel
        m.module = self.args.ko or m.module
        return m

    def load_tcp(self, m):
        """Loads RDS with TCP. Another namespace is the peer, at the end of a wire."""
        macs = ["52:54:00:02:00:00", "52:54:00:02:00:01"]
        ends = [("tcp0", "", 1), ("tcp1", "-n peer", 2)]
        commands = ["set -e", "ip netns add peer",
                    f"ip link add tcp0 address {macs[0]} type veth peer name tcp1 address {macs[1]} netns peer"]
        for dev, space, host in ends:
            commands.append(f"ip {space} link set {dev} up")
            networks = range(PEERS + 1)
            for i in networks:
                commands += [f"ip {space} addr add 10.8.{i}.{host}/24 dev {dev}",
                             f"ip {space} neigh replace 10.8.{i}.{3 - host} lladdr {macs[2 - host]} dev {dev} nud permanent"]
        m.run("\n".join(commands))
        cluster.must(m.load(options=["tcp=1"]))
        if self.impl == "c":
            m.run("modprobe rds_tcp")

    def rows(self, m, mine):
        for row in mine:
            if row.verbs:
                self.report(perftest.measure(m, row.name, row.verbs, self.args.quick))
        rows = [x.name for x in mine if not x.verbs]
        if not rows:
            return
        argv = [TOOL, "--peers", PEERS, "--rows", ",".join(rows)]
        argv += ["--quick"] if self.args.quick else []
        argv += ["--samples", PROFILE_SAMPLES] if self.args.profile and not self.args.quick else []
        process = m.start(argv, name="rds-bench")
        for line in process.lines(ROW_SECONDS):
            self.report(json.loads(line))
        cluster.must(process.wait(ROW_SECONDS))

    def report(self, report):
        self.reports[report["row"]] = report
        what = next(x.what for x in ROWS if x.name == report["row"])
        say(f"{NAMES[self.impl]}: {what}: {number(figure(report))}")

    def profile(self, m):
        """Writes a file for each row that has a profile, and prints the first lines of it."""
        symbols = trace.Symbols(m.run("cat /proc/kallsyms").out)
        marked = [x for x in self.reports.values() if x["marked"]]
        self.args.profile.mkdir(parents=True, exist_ok=True)
        for section, report in enumerate(marked):
            made = trace.Profile(f"{self.rundir}/{self.impl}.{section}", symbols, report["marked"])
            parts = [made.by_module(), made.table(), made.tree()]
            if self.impl == "rust":
                text = m.run("cat /sys/module/rds_rust/sections/.text").out
                source = trace.Source(m.module, int(text, 16))
                parts.insert(2, made.by_line("rds_rust", source))
            path = self.args.profile / f"{report['row']}.{self.impl}.txt"
            path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
            print(f"\n{report['row']}, {NAMES[self.impl]} (all of it: {path})\n"
                  f"{made.table(20)}\n{made.by_module()}", flush=True)


def results(runs, base):
    """Returns one dictionary for each measured row."""
    found, figures = [], {name: figure(x) for run in runs.values() for name, x in run.reports.items()}
    for row in ROWS:
        c, rust = (runs[x].reports.get(row.name) if x in runs else None for x in NAMES)
        if not (c or rust):
            continue
        took = [x and figure(x) for x in (c, rust)]
        goal = row.goal
        if row.within is not None and row.floor in figures:
            goal = figures[row.floor] * (1 + row.within)
        found.append({
            "row": row.name, "what": row.what, "unit": (c or rust)["unit"], "c": c, "rust": rust,
            "ratio": took[1] / took[0] if all(took) else None, "goal": goal, "floor": row.floor,
            "met": took[1] <= goal if goal and rust else None, "before": base.get(row.name),
        })
    return found


def read_base(path):
    """Returns ({row: cost with this module}, kernel) from a file of --out or --counts."""
    read = json.loads(path.read_text(encoding="utf-8"))
    if "counts" in read:
        return read["counts"], read["kernel"]
    return {x["row"]: figure(x["rust"]) for x in read["rows"] if x["rust"]}, read.get("kernel")


def counts(found):
    """Returns {row: cost with this module}, in the form of tests/vm/counts.json.

    Rows that have nothing to do with RDS are left out, and those that vary."""
    without = {x.floor for x in ROWS} | {x.name for x in ROWS if x.varies} | {"empty-call"}
    return {x["row"]: figure(x["rust"]) for x in found if x["rust"] and x["row"] not in without}


def grown(measured, base):
    """Yields a line for each row that exceeds its limit or has no committed count."""
    for row, count in measured.items():
        if row not in base:
            yield f"{row}: no count is committed"
        elif count > base[row] * (1 + MOST_GROWTH):
            yield f"{row}: {number(count)}, {100 * (count / base[row] - 1):.1f} % more than {number(base[row])}"


def print_columns(lines, left):
    """Prints rows of cells in aligned columns; `left`: the columns that are aligned left."""
    widths = [max(len(x) for x in column) for column in zip(*lines)]
    print()
    for line in lines:
        cells = [x.ljust(w) if i in left else x.rjust(w)
                 for i, (x, w) in enumerate(zip(line, widths))]
        print("  ".join(cells).rstrip())


def print_table(found, base):
    columns = ["operation", "C", "Rust", "Rust/C", "goal", "", "floor"]
    if base:
        columns += ["Rust before", "change"]
    floors = {x["row"]: figure(x["c"] or x["rust"]) for x in found}
    lines = [columns]
    for x in found:
        c, rust = (x[i] and figure(x[i]) for i in NAMES)
        met = {None: "", True: "met", False: "missed"}[x["met"]]
        line = [x["what"], number(c), number(rust), f"{x['ratio']:.2f}" if x["ratio"] else "",
                number(x["goal"]), met, number(floors.get(x["floor"]))]
        if base:
            before = x["before"]
            line += [number(before), f"{100 * (rust / before - 1):+.1f} %" if before and rust else ""]
        lines.append(line)
    print_columns(lines, left=(0, 5))
    print("\nUnit, if none is given: instructions of the guest (median).", flush=True)


def add_arguments(parser):
    """Adds the arguments of all benchmarks that run machines of both implementations."""
    parser.add_argument("--impls", default="c,rust", help="implementations to measure: c, rust or c,rust [default: both]")
    parser.add_argument("--out", type=Path, help="write the results to this file, as JSON")
    parser.add_argument("--ko", type=Path, help="module to measure [default: the one that is built here]")


def add_rows(parser, rows):
    """Adds --rows."""
    parser.add_argument("--rows", default="",
                        help=f"rows to measure, comma-separated [default: all]: {', '.join(x.name for x in rows)}")


def wanted_rows(parser, args, rows):
    """Returns the names in --rows, all of which must be of `rows`."""
    wanted, names = set(filter(None, args.rows.split(","))), [x.name for x in rows]
    if wrong := wanted - set(names):
        parser.error(f"no rows: {', '.join(sorted(wrong))}; the rows are {', '.join(names)}")
    return wanted


def check(parser, args, tools=(TOOL, PLUGIN)):
    """Checks the arguments of add_arguments(), and that the tools of the measurement exist."""
    for path in tools:
        if not path.exists():
            parser.error(f"{path} does not exist: run make tools")
    args.impls = args.impls.split(",")
    if not set(args.impls) <= set(NAMES):
        parser.error("--impls takes c, rust, or c,rust")


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    add_rows(parser, ROWS)
    add_arguments(parser)
    parser.add_argument("--base", type=Path, help="compare with this file of --out or --counts")
    parser.add_argument("--counts", type=Path, help="write the numbers of each row of this module to this file, as JSON")
    parser.add_argument("--strict", action="store_true",
                        help=f"fail if a row took {100 * MOST_GROWTH:.0f} %% more than in --base")
    parser.add_argument("--profile", type=Path, metavar="DIR",
                        help="count the instructions of each function, into files in DIR")
    parser.add_argument("--dma", choices=DMA, help="measure on soft-RoCE with the DMA API: behind an IOMMU in lazy or "
                        f"strict mode, or with bounce buffers [default rows: {', '.join(ON_DMA)}]")
    parser.add_argument("--quick", action="store_true", help="take only a few samples of each row")
    parser.add_argument("--kdir", type=Path, help="build of another kernel to measure on, with the same configuration")
    args = parser.parse_args(argv)
    if args.strict and not args.base:
        parser.error("--strict needs --base")
    wanted = wanted_rows(parser, args, ROWS) or set(ON_DMA if args.dma else ())
    check(parser, args)
    wanted |= {x.floor for x in ROWS if x.name in wanted and not args.profile}
    args.rows = [x for x in ROWS if not wanted or x.name in wanted]
    return args


def measure(make_run, args):
    """Measures each implementation: returns ({implementation: run}, True if one failed)."""
    runs, failed = {}, False
    with tempfile.TemporaryDirectory(prefix="rds-bench-") as rundir:
        for impl in args.impls:
            runs[impl] = make_run(impl, args, rundir)
            try:
                runs[impl].measure()
            except NodeError as e:
                print(f"error: {NAMES[impl]}: {e}", file=sys.stderr)
                failed = True
    return runs, failed


def write(args, found, **beside):
    """Writes the rows to the file of --out, with `beside`: facts that concern all rows."""
    if args.out:
        args.out.write_text(json.dumps({**beside, "rows": found}, indent=1) + "\n", encoding="utf-8")


def main(argv=None):
    args = parse(argv)
    base, base_kernel = read_base(args.base) if args.base else ({}, None)
    runs, failed = measure(Run, args)
    found = results(runs, base)
    if found:
        print_table(found, base)
    kernel = next((x.kernel for x in runs.values()), None)
    if base and base_kernel != kernel:
        print(f"Different kernels: Linux {kernel} now, Linux {base_kernel} in the compared file.", flush=True)
    write(args, found, kernel=kernel)
    measured = counts(found)
    if args.counts:
        read = {"kernel": kernel, "counts": measured}
        args.counts.write_text(json.dumps(read, indent=1) + "\n", encoding="utf-8")
    for line in grown(measured, base) if args.strict else ():
        print(f"error: {line}", file=sys.stderr)
        failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
