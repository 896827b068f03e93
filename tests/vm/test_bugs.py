# SPDX-License-Identifier: GPL-2.0
"""Defects that C RDS has or had. guest/bugs.py has one case for each.

Documentation/c-rds-defects.md describes the defect of each id.
"""

import json
import re
from pathlib import Path

import pytest
from rdsvm import cluster

# Each case guards against the defect in its name.
pytestmark = [pytest.mark.impls("rust"), pytest.mark.kept]

GUEST = Path(__file__).with_name("guest")
# Rows of defects that tests in other files cover.
ELSEWHERE = {
    "h09": "test_sysctl.py::test_ranges",
    "h20": "test_tcp_paths.py::test_one_path_is_cut",
    "h22": "test_links.py::test_a_device_comes_and_goes",
    "h24": "test_tcp_netns.py::test_end_half_open[syn-recv]",
    "h27": "test_tcp_netns.py::test_end_with_writers_of_settings",
    "h28": "test_tcp_netns.py::test_both_of_two_end",
    "h29": "test_tcp_netns.py::test_ping_both_ways",
    "h31": "test_rogue.py::test_many_requests",
    "h32": "test_links.py::test_a_link_flaps",
    "h36": "test_operations.py::test_device_with_masks",
    "h40": "test_faults.py::test_some_steps_of_a_connection",
    "h41": "test_tcp_netns.py::test_end_with_writers_of_settings",
    "h42": "test_bugs.py::test_h42_no_ipv6",
    "h47": "test_tcp_netns.py::test_end_half_open[established]",
    "h54": "test_operations.py::test_each_step",
    "h56": "test_operations.py::test_operations[transfers]",
    "h58": "test_tcp_paths.py::test_sockets_use_several_paths",
    "h61": "test_tcp_paths.py::test_unload_under_traffic",
    "h64": "test_fuzz.py::test_fuzz",
    "h65": "test_module.py::test_cycles",
    "h66": "test_operations.py::test_operations[removed]",
    "h68": "test_tcp_netns.py::test_end_half_open[syn-sent]",
    "h71": "test_pair.py::test_many_sockets",
    "h74": "test_tcp_paths.py::test_sockets_use_several_paths",
    "h75": "test_tcp.py::test_resets_under_traffic",
    "h80": "test_reset.py::test_under_traffic",
    "h82": "test_tcp_netns.py::test_loop",
    "h83": "test_operations.py::test_faults",
    "h84": "test_operations.py::test_faults",
    "h85": "test_rogue.py::test_requests",
    "h87": "test_tcp.py::test_streams[mixed]",
    "h88": "test_pair.py::test_wire_cut",
    "h89": "test_operations.py::test_operations[transfers]",
    "h91": "test_rogue.py::test_cancelled",
    "h93": "test_rogue.py::test_cancelled",
    "h94": "test_abi.py::test_abi",
    "h95": "test_rogue.py::test_requests",
    "h96": "test_tcp.py::test_strangers",
    "h97": "test_tcp_netns.py::test_end_half_open[syn-recv]",
    "h98": "test_dead_peer.py::test_module_is_unloaded",
    "l01": "test_tcp_memory.py::test_incomplete_messages_return_their_buffers",
    "l06": "test_tcp.py::test_a_peer_that_has_room_does_not_wait",
    "l07": "test_tcp_memory.py::test_accepting_finds_no_memory",
    "l08": "test_limits.py::test_strangers_are_collected",
    "l09": "test_rogue.py::test_pings",
    "l10": "test_tcp_netns.py::test_end_half_open[established]",
    "l13": "test_node.py::test_no_port_left",
    "l15": "test_rogue.py::test_frames",
    "l17": "test_tcp_netns.py::test_end_under_traffic",
    "l18": "test_tcp_netns.py::test_end_under_traffic",
    "l20": "test_rogue.py::test_frames[harmless]",
    "l23": "test_operations.py::test_operations[limits]",
    "l26": "test_rogue.py::test_flood[unread]",
    "l31": "test_module.py::test_unload_is_refused_while_a_socket_is_open",
    "l32": "test_module.py::test_unload_is_refused_while_a_socket_is_open",
    "l33": "test_operations.py::test_faults",
    "l34": "test_rogue.py::test_frames",
    "l35": "test_rogue.py::test_flood[in-part]",
    "l36": "test_rogue.py::test_requests",
    "l37": "test_rogue.py::test_credits",
    "l38": "test_rogue.py::test_frames",
    "l39": "test_rogue.py::test_frames[harmless]",
    "l40": "test_operations.py::test_device_that_refuses_masks",
    "l41": "test_operations.py::test_operations[removed]",
    "l42": "test_sysctl.py::test_work_requests",
    "l45": "test_operations.py::test_lost_registration",
    "l51": "test_tcp_netns.py::test_namespace_of_a_user",
    "l53": "test_rogue.py::test_frames",
    "l54": "test_module.py::test_unload_leaves_nothing",
}
# Rows that the case of another row also covers.
WITHIN = {
    "h02": "h55_sizes_of_rdma",
    "h03": "h55_sizes_of_rdma",
    "h05": "h04_congestion_of_oneself",
    "h08": "h07_address_without_rdma",
    "h15": "h25_memory_regions_of_no_transport",
    "h17": "h12_padding",
    "h26": "h25_memory_regions_of_no_transport",
    "h30": "h25_memory_regions_of_no_transport",
    "h33": "h21_zero_copy",
    "h34": "h21_zero_copy",
    "h38": "h12_padding",
    "h50": "h49_binds_and_senders",
    "h52": "l14_refused_binds",
    "h59": "h16_namespaces_that_end",
    "h60": "h16_namespaces_that_end",
    "h63": "h16_namespaces_that_end",
    "h69": "h21_zero_copy",
    "h76": "l43_whole_addresses",
    "h79": "h55_sizes_of_rdma",
    "l04": "h43_same_address_elsewhere",
    "l05": "h43_same_address_elsewhere",
    "l21": "h55_sizes_of_rdma",
    "l22": "h55_sizes_of_rdma",
    "l27": "l02_messages_of_no_bytes",
    "l48": "h90_socket_that_goes_before_its_regions",
    "l49": "h77_nothing_of_others",
}
# All rows about the socket layer, congestion, tables or network namespaces, except those of the TCP
# transport.
SOCKETS = """h01 h04 h05 h06 h07 h08 h09 h10 h11 h12 h16 h17 h18 h19 h21 h23 h33 h34 h38 h39 h42 h43 h46 h49 h50 h51 h52 h53
             h57 h59 h60 h63 h64 h69 h70 h72 h73 h77 h78 h81 h94
             l02 l03 l04 l05 l11 l13 l14 l24 l25 l27 l28 l29 l30 l31 l44 l46 l49 l50""".split()
# All rows about memory regions, RDMA and atomic operations.
REGIONS = """h02 h03 h13 h14 h15 h25 h26 h30 h35 h36 h45 h54 h55 h56 h62 h65 h67 h79 h83 h84 h86 h89 h90 h92
             l12 l21 l22 l23 l40 l41 l45 l47 l48""".split()
# All other rows about connections: the state machine, the CM and what peers send, the InfiniBand
# transport, failover, and the unloading of the module. Congestion is among the socket rows.
CONNECTIONS = """h22 h31 h32 h40 h66 h71 h76 h80 h85 h88 h91 h93 h95 h98
                 l08 l09 l15 l20 l26 l32 l33 l34 l35 l36 l37 l38 l39 l42 l43 l53 l54""".split()
# The remaining rows are about the TCP transport alone: its sockets, its listeners (also those of
# namespaces that end), and its several paths to a peer.
TCP = """h20 h24 h27 h28 h29 h37 h41 h44 h47 h48 h58 h61 h68 h74 h75 h82 h87 h96 h97
         l01 l06 l07 l10 l16 l17 l18 l19 l51 l52""".split()
# Rows of the TCP transport without a test that make test runs, with the reason.
UNTESTED = {
    "h37": "a function that this module does not call",
    "h44": "a window of a few instructions while a device goes",
    "h48": "a lock order with MPTCP, which the test kernels do not have",
    "l52": "test_tcp.py::test_strangers_leave_room, which make test-long runs",
    **dict.fromkeys(("l16", "l19"), "a race between paths, and no detector of data races")}
# Rows that run on the release kernel only, with the reason.
RELEASE_ONLY = {
    "l13": "as many sockets take minutes on the debug kernel",
    "h88": "lost messages, which streams notice on each kernel",
    "h42": "a NULL pointer, which each kernel reports, and a boot of its own",
    "h75": "a NULL pointer, which each kernel reports",
    **dict.fromkeys(("h96", "l06"), "sockets of strangers, which are counted on each kernel"),
    **dict.fromkeys(("l09", "l26", "l35"), "bounds, which are counted on each kernel, and minutes on this one")}


def cases_of(file):
    return re.findall(r"^@case\ndef (\w+)", (GUEST / file).read_text(), re.M)


RACES = [*cases_of("bug_races.py"), "h07_address_without_rdma", "h46_resets_at_once"]
CASES = [*cases_of("bugs.py"), *cases_of("bug_races.py"), *cases_of("bug_rdma.py")]


@pytest.mark.parametrize("case", [
    pytest.param(x, marks=pytest.mark.race if x in RACES else ()) for x in CASES])
def test_bug(node, guest, case):
    # Some cases take minutes on the debug kernel when other machines run.
    result = node.run(["python3", guest / "bugs.py", case], check=False, timeout=600)
    assert [json.loads(x) for x in result.out.splitlines()] == [{"case": case, "value": None}], str(result)


@pytest.mark.flavors("release")
def test_h42_no_ipv6(tmp_path, flavor, guest):
    """CVE-2026-68322: a kernel that has IPv6 but was booted with IPv6 disabled."""
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
