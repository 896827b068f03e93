#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""make demo: two nodes with rds_rust, joined by a wire, ping each other over soft-RoCE.

Exits 0 only if every ping was answered.
"""

import os
import subprocess
import sys
import tempfile
import time

from rdsvm.cluster import TOP, must, two_nodes, wire_address
from rdsvm.node import NodeError

PINGS = 5
START = time.monotonic()


def say(text):
    print(f"== {text} ({time.monotonic() - START:.0f} s)", flush=True)


def prepare(flavor):
    """Builds the requirements of the demonstration; make reports its progress."""
    for target in ("modules", "tools"):
        subprocess.run(["make", "-s", "-C", TOP, target, f"FLAVOR={flavor}"], check=True)


def ping(node, name, source, target):
    """Shows the pings as they arrive; returns the number of unanswered ones."""
    print(f"\n  {name}: rds-ping {target}")
    process = node.start([TOP / "build/tools/release/rds-ping", "-c", PINGS, "-i", "0.2",
                          "-I", source, target])
    result = process.wait(120)
    for line in (result.out + result.err).splitlines():
        print(f"    {line}")
    return result.status


def show_connections(node, name):
    listing = TOP / "tests/vm/guest/connections.py"
    for line in node.run(["python3", listing, name]).out.splitlines():
        print(f"  {line}")


def main():
    flavor = os.environ.get("FLAVOR", "release")
    say("building the test kernel, rds_rust.ko and rds-ping, as far as they are not there yet")
    try:
        prepare(flavor)
    except subprocess.CalledProcessError:
        return 1
    machines = []
    with tempfile.TemporaryDirectory(prefix="rds-demo-") as rundir:
        try:
            say("booting two nodes in QEMU, joined by a wire; this takes about 10 s")
            machines = a, b = two_nodes(rundir, ("rust", "rust"), flavor)
            say("loading rds_rust.ko on both (insmod)")
            for m in machines:
                must(m.load())
            say("both nodes have a soft-RoCE device on the wire (rdma link add rxe0); pinging")
            failures = ping(a, "node a", wire_address(0, 1), wire_address(0, 2))
            failures += ping(b, "node b", wire_address(0, 2), wire_address(0, 1))
            print("\n  Connections")
            for m in machines:
                show_connections(m, f"node {m.name}")
            print()
            if failures:
                say("some pings were not answered; the ends of the kernel logs:")
                for m in machines:
                    print(f"node {m.name}:\n" + "\n".join(m.log()[-30:]))
                return 1
            say(f"all {2 * PINGS} pings were answered")
            return 0
        except NodeError as e:
            print(f"error: {e}", file=sys.stderr)
            return 1
        finally:
            for m in machines:
                m.kill()


if __name__ == "__main__":
    sys.exit(main())
