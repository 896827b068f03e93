# SPDX-License-Identifier: GPL-2.0
"""A root of Debian with its own kernels, into which the packages of build/deb are installed, and
nodes that boot it.

The root is an overlay over the one of scripts/stock-root.sh, in a mount namespace of this run: make
test-stock."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

from debian import PACKAGES, Root
from rdsvm import klog
from rdsvm.cluster import boot_all, free_ports
from rdsvm.stock import StockMachine, install_agent, make_initrd


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


@pytest.fixture(scope="session")
def clean(tmp_path_factory):
    """The root as Debian has it, with the packages in /root."""
    lower = Path(subprocess.run([TOP / "scripts/stock-root.sh"], check=True, stdout=subprocess.PIPE,
                                text=True).stdout.strip())
    top = tmp_path_factory.mktemp("root")
    for name in ("upper", "work", "merged"):
        (top / name).mkdir()
    merged = top / "merged"
    # Gone with the namespace; in that of the machine it would stay.
    assert "RDS_STOCK_NAMESPACE" in os.environ, "run make test-stock, which makes a mount namespace"
    mount("-t", "overlay", "-o", f"lowerdir={lower},upperdir={top}/upper,workdir={top}/work", "overlay", merged)
    mount("-t", "proc", "proc", merged / "proc")
    mount("--rbind", "/dev", merged / "dev")
    # What is made of the kernels' Rust code is the same each time.
    crates = lower.parent / "stock-crates"
    crates.mkdir(exist_ok=True)
    (merged / "var/cache/rds_rust").mkdir()
    mount("--bind", crates, merged / "var/cache/rds_rust")
    for name in PACKAGES:
        (merged / "root" / name).write_bytes((TOP / "build/deb" / name).read_bytes())
    install_agent(merged)
    return Root(merged, (lower / ".kernels").read_text().split())


@pytest.fixture(scope="session")
def root(clean):
    """The same, with the packages installed, which builds the module for each kernel."""
    try:
        clean.run("apt-get", "install", "-y", "-q", "--no-install-recommends", *(f"/root/{x}" for x in PACKAGES))
    except AssertionError:
        # apt-get only names the file.
        clean.run("sh", "-c", "cat /var/lib/dkms/rds-rust/*/build/make.log")
        raise
    return clean


@pytest.fixture(scope="session", params=("7.2", "7.3"))
def release(request, root):
    """Each of the kernels."""
    found, = [x for x in root.kernels if re.match(rf"{re.escape(request.param)}\.", x)]
    return found


@pytest.fixture(scope="session")
def booted(root, release, tmp_path_factory):
    """Two nodes with that kernel, joined by a wire with soft-RoCE on it."""
    top = tmp_path_factory.mktemp(f"nodes-{release}")
    initrd = make_initrd(root.path, release, top / "initrd")
    ports = free_ports(2)
    machines = [StockMachine("ab"[i], root.path, release, initrd, top / "ab"[i],
                             wires=[([f"52:54:00:00:00:{i + 1:02x}"], ports[i], ports[1 - i])]) for i in (0, 1)]
    boot_all(machines)
    try:
        for i, machine in enumerate(machines):
            machine.add_wire(0, i + 1)
        yield machines
    finally:
        for machine in machines:
            machine.kill()


@pytest.fixture
def nodes(booted):
    """The nodes, without RDS before and after; their kernels report nothing meanwhile."""
    since = [len(x._lines) for x in booted]
    yield booted
    for machine in booted:
        machine.stop_all()
        machine.run("rm -f /etc/modprobe.d/test-*; for m in rds_rust rds_rdma rds; do rmmod $m 2>/dev/null; done; true")
    found = [x for machine, start in zip(booted, since) for x in klog.complaints(machine.log(start))]
    assert found == []
