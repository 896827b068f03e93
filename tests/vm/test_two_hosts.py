# SPDX-License-Identifier: GPL-2.0
"""tools/two-hosts.sh, the test of real adapters, on soft devices."""

import pytest
from rdsvm import cluster
from rdsvm.cluster import PAIR

pytestmark = [pytest.mark.impls("rust"), pytest.mark.kinds("rxe"), pytest.mark.flavors("release")]

SCRIPT = cluster.TOP / "tools/two-hosts.sh"
NEW_DEVICE = "rdma link del rdsx0; sleep 1; rdma link add rdsx0 type rxe netdev rdsv0"


def run(node, tools, *options):
    """Returns the Result of the script and the lines of its report."""
    folder = node.rundir / "report"
    node.run(f"rm -rf {folder}")
    result = node.run([SCRIPT, "-b", tools, "-n", 40, "-s", 1, *options, *PAIR, folder], check=False, timeout=900)
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
