# SPDX-License-Identifier: GPL-2.0
"""Two nodes that run Debian's own kernels with the packages installed. Tests load the module by the
names of RDS, send over soft-RoCE, and have C RDS beside it. They also check what an administrator
has forbidden."""

import pytest

from rdsvm.cluster import must, wire_address

A, B = (wire_address(0, x) for x in (1, 2))
OPEN = "python3 -c 'import socket; socket.socket(21, socket.SOCK_SEQPACKET)'"


@pytest.fixture
def pair(nodes):
    """Both with RDS, by its name."""
    for node in nodes:
        must(node.load())
        assert node.loaded() == ["rds_rust"]
    return nodes


def test_kernel(nodes, release):
    for node in nodes:
        assert node.run("uname -r").out.strip() == release
        assert "Debian" in node.read_file("/proc/version")


def test_ping(pair):
    a, b = pair
    for node, source, destination in ((a, A, B), (b, B, A)):
        out = node.run(f"rds-ping -c 20 -i 0.05 -I {source} {destination}").out
        assert len([x for x in out.splitlines() if " usec" in x]) >= 20, out
    must(a.unload())


@pytest.mark.parametrize("more", ("-q 4096 -a 512", "-q 256 -D 16K -I 4"), ids=("messages", "rdma"))
def test_stress(more, pair):
    """Each byte is verified, and an error would be the status."""
    a, b = pair
    passive = b.start(["rds-stress", "-r", B])
    passive.expect("waiting for incoming connection")
    done = a.run(f"rds-stress -r {A} -s {B} -t 2 -d 2 -T 5 -v {more}")
    assert passive.wait().status == 0
    assert "(average)" in done.out
    for node in pair:
        must(node.unload())
        assert node.loaded() == []


def test_c_rds_for_once(nodes):
    """As install.md says, and this module again."""
    a, _ = nodes
    a.run("modprobe --ignore-install rds && modprobe --ignore-install rds_rdma")
    assert a.loaded() == ["rds_rdma", "rds"]
    assert a.run("modprobe rds_rust", check=False).status != 0
    a.run("modprobe -r rds_rdma rds")
    must(a.load())
    assert a.loaded() == ["rds_rust"]
    a.run("modprobe -r rds")
    assert a.loaded() == []


def test_hardening(nodes):
    """Settings of an administrator that forbid the module have precedence over the packages."""
    a, _ = nodes
    a.write_file("/etc/modprobe.d/test-cis.conf", "install rds /bin/false\nblacklist rds\n")
    for name in ("rds", "rds_rdma"):
        assert a.run(f"modprobe {name}", check=False).status != 0
    assert a.run(OPEN, check=False).status != 0
    assert a.loaded() == []
    a.run("modprobe rds_rust")
    assert a.loaded() == ["rds_rust"]


def test_sockets_load_nothing(nodes):
    a, _ = nodes
    assert a.run(OPEN, check=False).status != 0 and a.loaded() == []
    a.write_file("/etc/modprobe.d/test-allow.conf", "alias net-pf-21 rds_rust\n")
    a.run(OPEN)
    assert a.loaded() == ["rds_rust"]
