# SPDX-License-Identifier: GPL-2.0
"""Defects that C RDS has or had: guest/bugs.py tries them, one case each."""

import json
import re
from pathlib import Path

import pytest
from rdsvm import cluster

pytestmark = pytest.mark.impls("rust")

GUEST = Path(__file__).with_name("guest")
# Rows of defects that tests of other files stand for.
ELSEWHERE = {
    "h09": "test_sysctl.py::test_ranges",
    "h36": "test_operations.py::test_operations[atomics]",
    "h52": "test_node.py::test_no_port_left",
    "h56": "test_operations.py::test_operations[transfers]",
    "h64": "test_fuzz.py::test_fuzz",
    "h65": "test_module.py::test_fifty_cycles",
    "h66": "test_operations.py::test_operations[removed]",
    "h83": "test_operations.py::test_faults",
    "h84": "test_operations.py::test_faults",
    "h89": "test_operations.py::test_operations[transfers]",
    "h91": "test_rogue.py::test_cancelled",
    "h93": "test_rogue.py::test_cancelled",
    "h94": "test_abi.py::test_abi",
    "h95": "test_rogue.py::test_requests",
    "l08": "test_limits.py::test_strangers_are_collected",
    "l09": "test_rogue.py::test_flood",
    "l15": "test_rogue.py::test_frames",
    "l23": "test_operations.py::test_operations[limits]",
    "l26": "test_rogue.py::test_flood",
    "l31": "test_module.py::test_unload_is_refused_while_a_socket_is_open",
    "l33": "test_operations.py::test_faults",
    "l34": "test_rogue.py::test_frames",
    "l35": "test_rogue.py::test_flood",
    "l36": "test_rogue.py::test_requests",
    "l37": "test_rogue.py::test_credits",
    "l38": "test_rogue.py::test_frames",
    "l41": "test_operations.py::test_operations[removed]",
    "l45": "test_operations.py::test_lost_registration",
    "l53": "test_rogue.py::test_frames",
}
CASES = [name for file in ("bugs.py", "bug_races.py", "bug_rdma.py")
         for name in re.findall(r"^@case\ndef (\w+)", (GUEST / file).read_text(), re.M)]


@pytest.mark.on_siw("release")
@pytest.mark.parametrize("case", CASES)
def test_bug(node, guest, case):
    result = node.run(["python3", guest / "bugs.py", case], check=False)
    assert [json.loads(x) for x in result.out.splitlines()] == [{"case": case, "value": None}], str(result)


def test_h42_no_ipv6(tmp_path, flavor, guest):
    """CVE-2026-68322: a kernel that has IPv6 and was told to do without."""
    node = cluster.one_node(tmp_path, "rust", flavor, cmdline=["ipv6.disable=1"])
    try:
        cluster.must(node.load())
        node.mark("loaded")
        result = node.run(["python3", guest / "no_ipv6.py"])
        assert json.loads(result.out) == {"::1": "ok", "::2": "EADDRNOTAVAIL", "fe80::1": "EADDRNOTAVAIL",
                                          "::ffff:1.2.3.4": "EADDRNOTAVAIL", "::ffff:127.0.0.1": "ok",
                                          "127.0.0.1": "ok", "message": "abc"}
        cluster.must(node.unload())
        assert not node.complaints(0)
        assert not (leaks := node.scan_leaks()), leaks
    finally:
        node.kill()
