#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""make bench-sharing: counts the cache lines that operations on two CPUs share.

There is one machine with two CPUs for each implementation. It runs the two operations of a pair one
after the other, each on its own CPU. A plugin for QEMU records their accesses to memory.
Documentation/performance.md explains the rows.
"""

import argparse
import contextlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import bench
from bench import NAMES, say
from insntrace import sharing, trace
from rdsvm import cluster, hardware
from rdsvm.node import NodeError

TOP = cluster.TOP
PLUGIN = TOP / "build/tools/insnlines.so"
GUEST = TOP / "tests/vm/guest/sharing.py"
CPUS = 2
# Operations of each CPU before the first marked one, and marked ones.
WARM_UP = 8
ROUNDS = 16
QUICK_ROUNDS = 3
# Wall-clock seconds for all rows.
RUN_SECONDS = 900
# Folders whose code is named by its caller: locks and lists, for example.
GENERIC = ("kapi/sync/", "bindings/")
# Lines of a row that are printed with the names of their functions.
SHOWN = 20


@dataclass
class Row:
    """A row of the table.

    goal: the largest number of lines, shared ones or (written) those that both CPUs write.
    impls: the implementations that can do it."""

    name: str
    what: str
    goal: int | None = None
    written: bool = False
    impls: tuple = ("c", "rust")


ROWS = [
    Row("send-two-peers", "64 B sent to two peers", 0, written=True),
    Row("send-one-peer", "64 B sent to one peer", 6, written=True),
    Row("recv", "64 B received on two connections"),
    Row("bind", "bind() and close(), one address", 2),
    Row("bind-lookup", "bind() and close(); a look-up, by a loopback message"),
    Row("lookup", "two look-ups, by loopback messages"),
    Row("region", "registration and end of 64 KiB", 4, impls=("rust",)),
]


class Run:
    """One machine with one implementation, and its numbers."""

    kernel = None

    def __init__(self, impl, args, rundir):
        self.impl, self.args, self.rundir = impl, args, Path(rundir)
        self.out = self.rundir / f"{impl}.lines"
        # {row: {view: numbers, "lines": descriptions}}.
        self.rows = {}

    def measure(self):
        say(f"{NAMES[self.impl]}: booting")
        m = cluster.Machine(f"sharing-{self.impl}", self.impl, "release", self.rundir / self.impl, cpus=CPUS,
                            detectors=False, qemu=["-plugin", f"{PLUGIN},out={self.out}"])
        m.module = self.args.ko or m.module
        try:
            m.boot()
            self.kernel = cluster.must(m.run("uname -r")).out.strip()
            m.add_pair(mtu=hardware.COUNTED_MTU)
            m.add_peers(CPUS)
            cluster.must(m.load())
            reports = self.run(m)
            symbols = m.run("cat /proc/kallsyms").out
            source = None
            if self.impl == "rust":
                text = m.run("cat /sys/module/rds_rust/sections/.text").out
                source = trace.Source(m.module, int(text, 16), skip=GENERIC)
                if found := m.complaints():
                    raise NodeError(f"the kernel log is not clean:\n{found[0]}")
        finally:
            m.kill()
        self.read(reports, symbols, source)

    def run(self, m):
        rows = [x.name for x in self.args.rows if self.impl in x.impls]
        rounds = QUICK_ROUNDS if self.args.quick else ROUNDS
        process = m.start(["python3", GUEST, WARM_UP, rounds, *rows], name="sharing.py")
        reports = [json.loads(x) for x in process.lines(RUN_SECONDS)]
        cluster.must(process.wait(RUN_SECONDS))
        return reports

    def read(self, reports, text, source):
        """Computes the numbers of each row from the files of the plugin."""
        symbols, data = trace.Symbols(text), sharing.Data(text)
        blocks = sharing.read_blocks(f"{self.out}.blocks", symbols)
        section = 0
        for report in reports:
            rounds = []
            each = report["steps"] * CPUS
            for _ in range(report["rounds"]):
                rounds.append([sharing.Footprint(f"{self.out}.{section + i}", blocks, symbols,
                                                 sharing.MODULES[self.impl], CPUS) for i in range(each)])
                section += each
            self.rows[report["row"]] = row = numbers(rounds, data, source)
            say(f"{NAMES[self.impl]}: {report['row']}: {row['own']['shared']['p50']} lines")


def numbers(rounds, data, source):
    """Returns the numbers of each view, and descriptions of the shared lines of RDS itself."""
    found = {}
    for view in sharing.VIEWS:
        lines = [sharing.shared(x, view) for x in rounds]
        found[view] = sharing.count(lines)
        if view == "own":
            label = sharing.labels({t for some in lines for x in some for t in x.touches}, source)
            found["lines"] = sharing.describe(lines, data, label)
    return found


def results(runs):
    """Returns one dictionary for each measured row."""
    found = []
    for row in ROWS:
        c, rust = (runs[x].rows.get(row.name) if x in runs else None for x in NAMES)
        if not (c or rust):
            continue
        of = "written" if row.written else "shared"
        met = rust["own"][of]["p50"] <= row.goal if rust and row.goal is not None else None
        found.append({"row": row.name, "what": row.what, "unit": "lines", "c": c, "rust": rust,
                      "goal": row.goal, "of": of, "met": met})
    return found


def print_table(found):
    lines = [["operations on two CPUs", *(f"{NAMES[impl]}{view}" for impl in NAMES
                                          for view in ("", " written", " +callees", " +background")), "goal", ""]]
    for row in found:
        cells = []
        for impl in NAMES:
            of = row[impl]
            cells += [of["own"]["shared"], of["own"]["written"], of["callees"]["shared"],
                      of["background"]["shared"]] if of else [None] * 4
        goal = "" if row["goal"] is None else f"{row['goal']} {row['of']}"
        lines.append([row["what"], *(bench.number(x and x["p50"]) for x in cells), goal,
                      {None: "", True: "met", False: "missed"}[row["met"]]])
    bench.print_columns(lines, left=(0, len(lines[0]) - 1))
    print("\nCache lines that one CPU writes and another one reads or writes (median of rounds): accesses of RDS\n"
          "in system calls. Written: those that both CPUs write. +callees: with accesses of what RDS calls.\n"
          "+background: with accesses of RDS in softirqs and workers.", flush=True)
    for row in found:
        for impl in (x for x in NAMES if row[x]):
            print_lines(row, impl)


def print_lines(row, impl):
    print(f"\n{row['what']}, {NAMES[impl]}:")
    if not row[impl]["lines"]:
        print("  none")
    for x in row[impl]["lines"][:SHOWN]:
        name = f"{x['name']}: " if x["name"] else ""
        each = "a line" if x["lines"] == x["rounds"] else f"{x['lines']} lines"
        how = ", both write" if x["written"] == x["lines"] else f", both write {x['written']}" if x["written"] else ""
        print(f"  {name}{each} in {x['rounds']} rounds{how}\n      written by {names(x['writers'])}")
        if x["readers"]:
            print(f"      read by {names(x['readers'])}")


def names(functions):
    return ", ".join(trace.short(x) for x in functions)


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    bench.add_rows(parser, ROWS)
    bench.add_arguments(parser)
    parser.add_argument("--quick", action="store_true", help="measure a few rounds only")
    parser.add_argument("--strict", action="store_true", help="fail if this module misses a goal")
    args = parser.parse_args(argv)
    wanted = bench.wanted_rows(parser, args, ROWS)
    args.rows = [x for x in ROWS if not wanted or x.name in wanted]
    bench.check(parser, args, (PLUGIN,))
    return args


def main(argv=None):
    args = parse(argv)
    runs, failed = bench.measure(Run, args)
    found = results(runs)
    if found:
        print_table(found)
    bench.write(args, found, kernel=next((x.kernel for x in runs.values()), None))
    for row in found if args.strict else []:
        if row["met"] is False:
            print(f"error: {row['what']}: more than {row['goal']} lines are {row['of']}", file=sys.stderr)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
