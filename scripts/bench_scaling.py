#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""make bench-scaling: measures set-up, messages and other costs with many connections.

There is one machine for each implementation, with one CPU whose clock counts instructions. It has
both ends of all connections. Documentation/scaling.md explains the rows.
"""

import argparse
import contextlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import bench
from bench import NAMES, PLUGIN, TOOL, number, say
from rdsvm import cluster, hardware
from rdsvm.node import NodeError

TOP = cluster.TOP
# Connections of one local address: see tools/rds-bench/src/scaling.rs.
GROUP = 10
COUNTS = (1, 10, 100, 300, 1000)
QUICK = (1, 10)
# A connection of C RDS takes 12 MiB for both ends.
MOST_OF_C = 100
MEMORY = "3072M"
# Wall-clock seconds for one run of the tool.
STEP_SECONDS = 900
# Largest accepted growth of a row that should not depend on the number of connections.
GROWTH = 1.1


@dataclass
class Row:
    """A row of the table.

    counted: the name of the report from whose marks the plugin counted the instructions. The value
    is those of one operation, and not the clock's.
    steady: the value must not grow with the number of connections."""

    name: str
    what: str
    unit: str = "instructions"
    counted: str | None = None
    steady: bool = False


ROWS = [
    Row("setup-time", "set-up of one more, from send to arrival, ns", "nanoseconds"),
    Row("setup", "set-up of one more", counted="setup"),
    Row("storm-time", "set-up of all at once, ns until all are up", "nanoseconds"),
    Row("storm", "set-up of all at once, for each", counted="storm"),
    Row("storm-failed", "    attempts to connect that failed", "attempts"),
    Row("memory", "memory of one more, KiB", "KiB"),
    Row("slab", "    of it slab", "KiB"),
    Row("pools", "    of it pools of the module", "KiB"),
    Row("rtt-one", "64 B round trip on one, the others idle", steady=True),
    Row("rtt-all", "64 B round trips on all in turn", steady=True),
    Row("rtt-turns", "64 B round trip, one socket, two peers in turn", steady=True),
    Row("bind", "bind()", steady=True),
    Row("close", "close()", steady=True),
    Row("close-unacked", "close() with a message not acknowledged", steady=True),
    Row("congestion", "recv() that ends congestion", steady=True),
    Row("congestion-all", "a port full and free again, all of it", counted="congestion", steady=True),
    Row("idle", "a second in which nothing is sent", counted="idle"),
]
BY_NAME = {x.name: x for x in ROWS}
# {name of a row in the tool's reports, measured with the clock: name of the row here}.
CLOCKED = {"setup": "setup-time", "storm": "storm-time", "idle": None}
# Rows of which the clock counts only a part, or also the time that the operation waits.
PARTLY = ("setup", "storm", "close-unacked", "congestion", "idle")


class Run:
    """One machine with one implementation."""

    def __init__(self, impl, args, rundir):
        self.impl, self.args, self.rundir = impl, args, Path(rundir) / impl
        self.counts_file = Path(rundir) / f"{impl}.counts"
        self.levels = [x for x in args.connections if impl == "rust" or x <= MOST_OF_C]
        # {row: {number of connections: value}}.
        self.values = {x.name: {} for x in ROWS}
        self.sections = 0

    def measure(self):
        say(f"{NAMES[self.impl]}: booting")
        qemu = [*hardware.COUNTING_CLOCK, "-plugin", f"{PLUGIN},count={self.counts_file}"]
        m = cluster.Machine(f"scaling-{self.impl}", self.impl, "release", self.rundir, cpus=1,
                            memory=MEMORY, cpu=hardware.COUNTED_CPU, detectors=False, qemu=qemu)
        m.module = self.args.ko or m.module
        try:
            m.boot()
            m.add_pair(mtu=hardware.COUNTED_MTU)
            # The last local address has connections to one more remote address.
            m.add_peers(-(-max(self.levels) // GROUP) + 1)
            self.load(m)
            known, pools = 0, self.counter(m, "ib_pool_bytes")
            for count in self.levels:
                self.step(m, count, ["--known", known] + (["--quick"] if self.args.quick else []))
                if pools is not None:
                    before, pools = pools, self.counter(m, "ib_pool_bytes")
                    self.values["pools"][count] = (pools - before) / 1024 / (count - known)
                known = count
            for count in self.levels:
                self.reset(m)
                self.step(m, count, ["--storm"])
                if (failed := self.counter(m, "conn_attempt_failed")) is not None:
                    self.values["storm-failed"][count] = failed
            if found := m.complaints() if self.impl == "rust" else []:
                raise NodeError(f"the kernel log is not clean:\n{found[0]}")
        finally:
            m.kill()

    def load(self, m):
        """Loads RDS and runs one row, so that the one-time state of a device exists already.

        That state is not part of a connection."""
        cluster.must(m.load())
        self.step(m, 0, [], ["--quick", "--rows", "rxe-64-rtt"])

    def reset(self, m):
        """Removes all connections."""
        if self.impl == "rust":
            cluster.must(m.unload())
        else:
            # C RDS crashes when it is unloaded while it has connections.
            m.restart()
            self.sections = 0
        self.load(m)

    def step(self, m, count, arguments, what=None):
        """Has the tool measure with `count` connections, or run `what` without a report."""
        argv = [TOOL, *(what or ["--connections", count, *arguments])]
        process = m.start(argv, name="rds-bench")
        for line in process.lines(STEP_SECONDS):
            report = json.loads(line)
            each = self.counted(report) if report["marked"] else None
            if not what:
                self.take(count, report, each)
        cluster.must(process.wait(STEP_SECONDS))
        if len(self.all_counted()) != self.sections:
            raise NodeError(f"{len(self.all_counted())} counts for {self.sections} rows: rds-bench and the "
                            "plugin for QEMU are not of the same version")

    def counted(self, report):
        """Returns the instructions of one operation, as counted by the plugin."""
        self.sections += 1
        # The file may have more counts already: the tool does not wait for this script.
        return self.all_counted()[self.sections - 1] / report["marked"]

    def all_counted(self):
        return [int(x) for x in self.counts_file.read_text(encoding="ascii").split()]

    def take(self, count, report, each):
        name = report["row"]
        if clocked := CLOCKED.get(name, name):
            self.values[clocked][count] = report["p50"]
            say(f"{NAMES[self.impl]}, {number(count)}: {BY_NAME[clocked].what.strip()}: "
                f"{number(report['p50'])}")
        rows = [x for x in ROWS if x.counted == name]
        for row in rows:
            self.values[row.name][count] = each
        # Plugin and clock must agree, except for the loop around the operations.
        if each and name not in PARTLY and not 0 <= each - report["mean"] <= each / 50 + 500:
            raise NodeError(f"{name}: {each:.0f} instructions by the plugin, "
                            f"{report['mean']:.0f} by the clock")

    def counter(self, m, name):
        """Returns a counter of this module; None for C RDS, which does not have it."""
        if self.impl != "rust":
            return None
        return json.loads(m.run(["python3", TOP / "tests/vm/guest/counters.py"]).out)[name]


def growth(row, values):
    """Returns the ratio of the cost with most connections to that with one address's connections.

    None if there are too few values."""
    few = [x for x in values if x <= GROUP]
    if not row.steady or not few or max(values) == max(few):
        return None
    return values[max(values)] / values[max(few)]


def results(runs):
    """Returns one dictionary for each row."""
    found = []
    for row in ROWS:
        entry = {"row": row.name, "what": row.what.strip(), "unit": row.unit}
        for impl, run in runs.items():
            values = run.values[row.name]
            if values:
                entry[impl] = {"connections": values, "growth": growth(row, values)}
        found.append(entry)
    return found


def print_table(found, counts):
    lines = [["connections", "", *(number(x) for x in counts), "growth"]]
    for row in found:
        what = BY_NAME[row["row"]].what
        for impl in (x for x in NAMES if x in row):
            values, ratio = row[impl]["connections"], row[impl]["growth"]
            lines.append([what, NAMES[impl], *(number(values.get(x)) for x in counts),
                          f"{ratio:.2f}" if ratio else ""])
            what = ""
    bench.print_columns(lines, left=(0, 1))
    print(f"\nUnit, if none is given: instructions of the guest; medians of messages, bind and close, means of "
          f"set-up.\nA connection has two ends, both on this node. A local address has {GROUP} of them. "
          f"Growth: from {GROUP}\nconnections to the most. C RDS: up to {MOST_OF_C}, as one takes 12 MiB.",
          flush=True)


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", default="", metavar="N,...",
                        help=f"numbers of connections, in ascending order [default: {','.join(map(str, COUNTS))}]")
    bench.add_arguments(parser)
    parser.add_argument("--quick", action="store_true", help="measure with few connections and samples")
    parser.add_argument("--strict", action="store_true",
                        help=f"fail if a number of this module grows by more than {GROWTH}")
    args = parser.parse_args(argv)
    bench.check(parser, args)
    args.connections = [int(x) for x in args.connections.split(",") if x] or list(
        QUICK if args.quick else COUNTS)
    if args.connections != sorted(set(args.connections)) or args.connections[0] < 1:
        parser.error("--connections takes numbers in ascending order")
    return args


def main(argv=None):
    args = parse(argv)
    runs, failed = bench.measure(Run, args)
    found = results(runs)
    print_table(found, args.connections)
    for row in found if args.strict else []:
        if (ratio := row.get("rust", {}).get("growth")) and ratio > GROWTH:
            print(f"error: {row['what']}: {ratio:.2f} times as much with "
                  f"{max(args.connections)} connections", file=sys.stderr)
            failed = True
    bench.write(args, found)
    return 1 if failed else 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
