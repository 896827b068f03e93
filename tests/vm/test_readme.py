# SPDX-License-Identifier: GPL-2.0
"""The commands of README.md for nodes without RDMA devices."""

import re

import pytest
from rdsvm.cluster import TOP, must

COMMANDS = re.compile(r"^    (.*?)(?: {2,}#.*)?$", re.M)
AFTERWARDS = "ip netns del peer"


@pytest.fixture
def no_devices(node):
    """A node that has RDS loaded, and no RDMA devices."""
    node.run("rdma link del rdsx0 && rdma link del rdsx1")
    yield node
    node.stop_all()
    node.run(AFTERWARDS, check=False)
    node.run("for i in 0 1; do rdma link add rdsx$i type rxe netdev rdsv$i; done")
    node.forget()


@pytest.mark.impls("rust")
@pytest.mark.kinds("rxe")
@pytest.mark.flavors("release")
def test_tcp_without_an_rdma_device(no_devices, tools):
    """RDS works without RDMA devices when the commands of README.md are typed one after the other,
    and what fails before them names the parameter."""
    node, ping = no_devices, f"{tools}/rds-ping -c 1 127.0.0.2 -I 10.9.0.1"
    section = (TOP / "README.md").read_text().partition("\n## Without an RDMA device\n")[2].partition("\n## ")[0]
    commands = COMMANDS.findall(section)
    assert commands[:2] == ["rmmod rds_rust", "modprobe rds_rust tcp=1"] and commands[-1] == AFTERWARDS
    refused = node.run(ping, check=False)
    assert refused.status and "tcp=1" in refused.err, refused
    # A test installs no module.
    script = "\n".join(commands[:-1]).replace("modprobe rds_rust", f"insmod {node.module}").replace("target/release", str(tools))
    out = must(node.run(f"set -e\n{script}", check=False)).out
    assert "3 sent, 3 received, 0 lost" in out
    # The tables of connections: of RDS, and of TCP.
    assert re.search(r"^ +192[.]0[.]2[.]1 +192[.]0[.]2[.]2 .* --C-$", out, re.M), out
    assert re.search(r"^ +192[.]0[.]2[.]1 +\d+ +192[.]0[.]2[.]2 +16385 ", out, re.M), out
    node.run(AFTERWARDS)
