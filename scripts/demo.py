#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""make demo: two nodes with rds_rust ping each other over soft-RoCE, and over TCP.

Two wires join the nodes. One has soft-RoCE devices, the other has no RDMA device.

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
ROCE_WIRE, TCP_WIRE = 0, 1
START = time.monotonic()


def say(text):
    print(f"== {text} ({time.monotonic() - START:.0f} s)", flush=True)


def prepare(flavor):
    """Builds the requirements of the demonstration; make reports its progress."""
    for target in ("modules", "tools"):
        subprocess.run(["make", "-s", "-C", TOP, target, f"FLAVOR={flavor}"], check=True)


def ping(node, name, source, target):
    """Shows the pings; returns 0 if all were answered."""
    print(f"\n  {name}: rds-ping {target}")
    process = node.start([TOP / "build/tools/release/rds-ping", "-c", PINGS, "-i", "0.2",
                          "-I", source, target])
    result = process.wait(120)
    for line in (result.out + result.err).splitlines():
        print(f"    {line}")
    return result.status


def ping_both_ways(nodes, wire):
    """Returns True if all pings over this wire were answered."""
    ends = [wire_address(wire, x) for x in (1, 2)]
    return not any([ping(nodes[0], "node a", *ends), ping(nodes[1], "node b", *ends[::-1])])


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
            say("booting two nodes in QEMU, joined by two wires; this takes about 10 s")
            machines = two_nodes(rundir, ("rust", "rust"), flavor, spare=True)
            say("loading rds_rust.ko on both (insmod rds_rust.ko tcp=1)")
            for m in machines:
                must(m.load(options=["tcp=1"]))
            say("on the first wire both have a soft-RoCE device (rdma link add rxe0): RDS over RDMA")
            answered = ping_both_ways(machines, ROCE_WIRE)
            say("on the second wire they have addresses and no RDMA device: RDS over TCP")
            for i, m in enumerate(machines, 1):
                netdev = m.netdevs[TCP_WIRE]
                m.run(f"ip addr add {wire_address(TCP_WIRE, i)}/24 dev {netdev} && ip link set {netdev} up")
            answered &= ping_both_ways(machines, TCP_WIRE)
            print("\n  Connections")
            for m in machines:
                show_connections(m, f"node {m.name}")
            print()
            if not answered:
                say("some pings were not answered; the ends of the kernel logs:")
                for m in machines:
                    print(f"node {m.name}:\n" + "\n".join(m.log()[-30:]))
                return 1
            say(f"all {4 * PINGS} pings were answered, half of them over each transport")
            return 0
        except NodeError as e:
            print(f"error: {e}", file=sys.stderr)
            return 1
        finally:
            for m in machines:
                m.kill()


if __name__ == "__main__":
    sys.exit(main())
