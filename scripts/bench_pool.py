#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""make bench-pool: measures the cost to map receive buffers for a device, singly and by shard.

A machine with a PCI device behind an IOMMU, and with a clock that counts instructions, loads the
module with its KUnit suites. One of them (tests/kunit/pool_dma.rs) measures.
Documentation/recv-pool.md explains the columns.
"""

import argparse
import contextlib
import json
import re
import sys
import tempfile
from pathlib import Path

import ktap
from rdsvm import cluster, hardware
from rdsvm.node import NodeError

TOP = cluster.TOP
MODULE = TOP / "build/release-kunit/rds_rust.ko"
SUITE = "rds_pool_dma"
LINE = re.compile(rf"{SUITE} (ring=.*)")
MOST_CONNECTIONS = 1000
MEMORY_MIB = 3072
# Wall-clock seconds.
LOAD_SECONDS = 1800
RINGS = {"rds": "15 buffers of 4,352 bytes: a connection of this module",
         "svcrdma": "135 buffers of 4,096 bytes: as a connection of the kernel's NFS server has"}
WAYS = {"each": "one by one", "shard": "by shard"}


def measure(most, strict, rundir):
    """Returns the rows that the suite has printed, each as a dictionary."""
    machine = cluster.Machine("bench-pool", "rust", "release", rundir, cpus=1, cpu=hardware.COUNTED_CPU, detectors=False,
                              **add_clock(hardware.with_iommu(MEMORY_MIB, strict)))
    try:
        machine.boot()
        start = machine.mark("the suites start")
        cluster.must(machine.run(["insmod", MODULE, f"pool_dma_connections={most}"], check=False,
                                 timeout=LOAD_SECONDS))
        machine.mark("the suites end")
        log = machine.log(start)
        if found := machine.complaints(start):
            raise NodeError(f"the kernel log is not clean:\n{found[0]}")
    finally:
        machine.kill()
    failed = [name for name, outcome in ktap.cases(log).items()
              if SUITE in name and outcome != "passed"]
    rows = [parse_row(found[1]) for found in map(LINE.search, log) if found]
    if failed or not rows:
        raise NodeError(f"{SUITE}: {', '.join(failed) or 'no numbers'}:\n" + "\n".join(log))
    return rows


def add_clock(arguments):
    return {**arguments, "qemu": [*arguments["qemu"], *hardware.COUNTING_CLOCK]}


def parse_row(text):
    fields = dict(x.split("=") for x in text.split())
    row = {name: int(x) if x.isdigit() else x for name, x in fields.items()}
    row["setup_each"] = row.pop("setup") / row["connections"]
    return row


def mapping(row, rows):
    """Returns the instructions for the mappings of one connection.

    Set-up maps the shards, so their cost is the difference to the set-up of the way "each". That
    one allocates the same memory, and its own mappings are subtracted."""
    if row["way"] == "each":
        return row["mapping"] / row["connections"]
    other = next(x for x in rows if x["way"] == "each" and
                 all(x[name] == row[name] for name in ("ring", "connections")))
    return row["setup_each"] - (other["setup_each"] - mapping(other, rows))


def print_table(rows):
    head = ["connections", "way", "mappings", "IOVA ranges", "IOTLB 4 KiB", "IOTLB 64 KiB",
            "set-up", "of it mapping", "refill"]
    for ring, what in RINGS.items():
        lines = [head, ["-" * max(3, len(x)) for x in head]]
        for row in (x for x in rows if x["ring"] == ring):
            large = row["mappings"] if row["way"] == "shard" else row["pages"]
            numbers = (row["mappings"], row["ranges"], row["pages"], large, row["setup_each"],
                       mapping(row, rows), row["refill"])
            lines.append([f"{row['connections']:,}", WAYS[row["way"]],
                          *(f"{x:,.0f}" for x in numbers)])
        widths = [max(map(len, column)) for column in zip(*lines)]
        print(f"\n{what}\n")
        for line in lines:
            cells = (x.ljust(w) if i == 1 else x.rjust(w)
                     for i, (x, w) in enumerate(zip(line, widths)))
            print("| " + " | ".join(cells) + " |")
    print("\nSet-up is for a connection, refill for a buffer: instructions of the guest.", flush=True)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="measure with at most 10 connections")
    parser.add_argument("--strict", action="store_true",
                        help="let the IOMMU flush the IOTLB at each unmapping")
    parser.add_argument("--out", type=Path, help="write the rows to this file, as JSON")
    args = parser.parse_args(argv)
    if not MODULE.exists():
        parser.error(f"{MODULE} does not exist: run make modules KUNIT=y")
    with tempfile.TemporaryDirectory(prefix="rds-bench-pool-") as rundir:
        try:
            rows = measure(10 if args.quick else MOST_CONNECTIONS, args.strict, rundir)
        except NodeError as e:
            print(f"error: {e}", file=sys.stderr)
            return 1
    print_table(rows)
    if args.out:
        args.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
