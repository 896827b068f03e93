# SPDX-License-Identifier: GPL-2.0
"""tools/two-hosts.sh, the test of real adapters, on soft devices."""

import pytest
from rdsvm import cluster
from rdsvm.cluster import PAIR, wire_address
from traffic import counters

pytestmark = [pytest.mark.impls("rust"), pytest.mark.kinds("rxe"), pytest.mark.flavors("release")]

SCRIPT = cluster.TOP / "tools/two-hosts.sh"
NEW_DEVICE = "rdma link del rdsx0; sleep 1; rdma link add rdsx0 type rxe netdev rdsv0"
# Port of the commands for the other host.
COMMANDS = 4999


def run(node, tools, *options, ends=PAIR):
    """Returns the Result of the script and the lines of its report."""
    folder = node.rundir / "report"
    node.run(f"rm -rf {folder}")
    result = node.run([SCRIPT, "-b", tools, "-n", 40, "-s", 1, *options, *ends, folder], check=False, timeout=900)
    print(result)
    return result, node.read_file(f"{folder}/report.txt").splitlines()


@pytest.mark.long("release")
def test_two_adapters_of_one_host(node, tools):
    result, report = run(node, tools, "-x", NEW_DEVICE)
    assert result.status == 0
    passed = [x for x in report if x.startswith("PASS")]
    assert report[-1] == f"{len(passed)} passed, 0 failed"
    for step in ("pings back", "messages of 1 MiB", "atomics", f"disturbance -x {NEW_DEVICE}", "the kernel log there"):
        assert f"PASS  {step}" in passed


def test_a_silent_host(node, tools):
    """Without an answer the test ends at once, and fails."""
    result, report = run(node, tools, "-r", "false")
    assert result.status == 1
    assert report[-1] == "1 passed, 1 failed"


@pytest.fixture
def arping(pair, guest):
    """Installs an arping on node a, as machines have none."""
    path = "/run/bin/arping"
    # The script passes -q -c 2 -A -I DEVICE ADDRESS.
    pair[0].run(f"echo '#!/bin/sh\nexec python3 {guest}/announce.py $6 $7' >{path} && chmod +x {path}")
    yield
    pair[0].run(f"rm {path}")


@pytest.mark.long("release")
@pytest.mark.pairs("rust-rust")
def test_disturbances_of_an_interface(wires, arping, tools, guest):
    """Traffic goes on while an interface is down, and while an address is on another one.

    Wire 0 is for the commands, as another network of the two hosts is."""
    a, b = wires.pair
    ends = [x.host for x in wires.addresses(1, 1)]
    remote = ["python3", guest / "remote.py"]
    commands = [wire_address(0, 2), COMMANDS]
    b.start([*remote, "serve", *commands]).expect("^ready$")
    moved = counters(a, guest)["ib_addr_moved"]
    options = ["-l", wires.port(a, 1), "-f", wires.port(a, 2)]
    result, report = run(a, tools, "-r", " ".join(map(str, [*remote, "run", *commands])), *options, ends=ends)
    assert result.status == 0
    passed = [x for x in report if x.startswith("PASS")]
    assert report[-1] == f"{len(passed)} passed, 0 failed"
    for how, port in zip(options[::2], options[1::2]):
        for step in (f"disturbance {how} {port}", f"traffic during disturbance {how} {port}, 1",
                     f"traffic after disturbance {how} {port}"):
            assert f"PASS  {step}" in passed
    # There and back.
    assert counters(a, guest)["ib_addr_moved"] >= moved + 2
