# SPDX-License-Identifier: GPL-2.0
"""Local addresses: the answers of bind(), their changes, and the calls of the RDMA CM that they
cost."""

import errno
import json

import pytest
from rdsvm.cluster import PAIR, PAIR6, must
from traffic import links_of, ping

pytestmark = pytest.mark.impls("rust")

# The number of sockets that the monitoring of a rack opens in one interval.
BURST = 4224
NONE = errno.EADDRNOTAVAIL


@pytest.fixture
def laddr(node, guest):
    """Runs a command of guest/laddr.py and returns its output."""
    def run(*arguments, netns=None):
        command = ["python3", guest / "laddr.py", *arguments]
        if netns:
            command[:0] = ["ip", "netns", "exec", netns]
        result = node.run(command, check=False, timeout=900)
        assert result.status == 0, str(result)
        return json.loads(result.out.splitlines()[-1])

    return run


@pytest.fixture
def bare(node):
    """A network device without an RDMA device."""
    node.run("ip link add bare0 type dummy && ip link set bare0 up")
    yield "bare0"
    node.run("ip link del bare0")


def codes(seen):
    return {errno.errorcode.get(int(x), x) for x in seen}


@pytest.mark.long
def test_burst_asks_the_cm_once(node, laddr):
    hosts = [*PAIR, *PAIR6]
    must(node.unload())
    laddr("probes_on")
    must(node.load())
    laddr("bursts", BURST, *hosts)
    calls = laddr("probes_off")
    for host in hosts:
        assert calls.get(host, 0) == 1, calls
    assert max(calls[x] for x in calls if x not in ("ids", "0.0.0.0", "::")) == 1, calls
    # Each id was created for a bind.
    assert calls.pop("ids") == sum(calls.values())


@pytest.mark.race
@pytest.mark.long("release", "debug")
def test_addresses_come_and_go(node, laddr):
    prefixes = ("10.9.0.77/32", "fd09::77/128", "fe80::77/64")
    seen = laddr("cycles", 5 if node.debug else 20, "rdsv0", *prefixes)
    assert codes(seen) == {"0", "EADDRNOTAVAIL"}, seen


@pytest.mark.race
def test_device_comes_and_goes(node, laddr):
    seen = laddr("removals", 3 if node.debug else 10, node.kind, "rdsx0", "rdsv0", PAIR[0], *PAIR6)
    assert codes(seen) == {"0", "EADDRNOTAVAIL"}, seen
    must(node.unload())
    must(node.load())
    assert laddr("one", PAIR[0]) == 0


def test_link_local_addresses_have_a_scope(laddr, node, bare):
    seen = laddr("scopes", "rdsv0", "rdsv1", bare, "fe80::78/64")
    assert seen == {"rdsv0": 0, "rdsv1": "EADDRNOTAVAIL", bare: "EADDRNOTAVAIL",
                    "none": "EINVAL", "unknown": "EADDRNOTAVAIL", "gone": "EADDRNOTAVAIL"}


@pytest.mark.long
def test_moved_address_is_served_by_its_new_device(node, laddr, tools):
    """Each time the peer is the end of the pair that does not have the address."""
    moved = "10.9.0.79"
    for i, peer in ((0, PAIR[1]), (1, PAIR[0])):
        node.run(f"ip addr add {moved}/32 dev rdsv{i} && "
                 f"ip route add {moved}/32 dev rdsv{1 - i} && "
                 f"ip neigh replace {moved} lladdr $(cat /sys/class/net/rdsv{i}/address) "
                 f"dev rdsv{1 - i} nud permanent")
        laddr("bound", moved)
        ping(tools, node, peer, moved)
        assert f"rdsx{i}" in links_of(node, moved)
        node.run(f"ip route del {moved}/32 dev rdsv{1 - i}; ip neigh del {moved} dev rdsv{1 - i}; "
                 f"ip addr del {moved}/32 dev rdsv{i}")
        assert laddr("one", moved) == NONE
    node.forget()


@pytest.mark.long
def test_unknown_addresses_cost_the_cm_nothing(node, laddr):
    seen = laddr("unknown", 2000 if node.debug else 10000, PAIR[0])
    assert seen == {"results": [NONE], "calls": {"ids": 0}, "known": 0, "then": {"ids": 0}}


@pytest.mark.long
def test_more_addresses_than_can_be_kept(laddr, bare):
    seen = laddr("bare", 1200, bare, PAIR[0])
    assert seen["results"] == [NONE]
    assert seen["known"] == [0] * 10
    # A negative answer is remembered, too.
    assert all(count == 1 for host, count in seen["few"].items() if host != "ids"), seen["few"]


@pytest.mark.race
@pytest.mark.long("release", "debug")
def test_binds_after_an_event_share_one_lookup(laddr, bare, node):
    seen = laddr("shared", 5 if node.debug else 20, bare, PAIR[0])
    # There are two events, so the CM may be asked after the first one and after the second one.
    assert 1 <= seen["worst"] <= 2, seen
    assert codes(seen["seen"]) == {"0"}, seen


def test_addresses_by_route(laddr, node):
    seen = laddr("routed", "10.77.0.0/16", "rdsv0", "10.77.0.1,10.77.3.4", PAIR[0])
    # RoCE has GIDs of assigned addresses only. On iWARP the CM needs a route.
    there = 0 if node.kind == "siw" else NONE
    assert seen == {"results": [there], "after": [NONE], "known": 0}


def test_tentative_address(laddr):
    seen = laddr("tentative", "fd09::99/128", "rdsv0")
    assert seen == {"first": NONE, "gone": NONE}


def test_other_namespace(node, laddr):
    node.run("ip netns add other && ip -n other link set lo up")
    try:
        assert laddr("one", PAIR[0], netns="other") == NONE
        # An event in that namespace changes nothing in this one, and the address has no RDMA device
        # there.
        seen = laddr("quiet_calls", PAIR[0], "ip", "-n", "other", "addr", "add", f"{PAIR[0]}/32",
                     "dev", "lo")
        assert seen == {"result": 0, "calls": {"ids": 0}}
        assert laddr("one", PAIR[0], netns="other") == NONE
        node.run(f"ip -n other addr add {PAIR6[0]}/128 dev lo nodad")
        assert laddr("one", PAIR6[0], netns="other") == NONE
        assert laddr("one", PAIR6[0]) == 0
    finally:
        node.run("ip netns del other")


def test_events_after_which_the_cm_is_asked(node, laddr, bare):
    """An event has to be noticed: a control for the tests that expect no calls."""
    seen = laddr("quiet_calls", PAIR[0], "ip", "addr", "add", "198.18.0.1/32", "dev", bare)
    assert seen["result"] == 0
    assert seen["calls"].get(PAIR[0]) == 1, seen
    seen = laddr("quiet_calls", PAIR[0], "ip", "addr", "add", "2001:db8::1/128", "dev", bare,
                 "nodad")
    assert seen["calls"].get(PAIR[0]) == 1, seen
    seen = laddr("quiet_calls", PAIR[0], "ip", "link", "set", bare, "down")
    assert seen["calls"].get(PAIR[0], 0) >= 1, seen


@pytest.mark.long("release", "debug")
def test_siw(node, laddr):
    """iWARP has no address table: an address of the network device is an address of the RDMA
    device."""
    node.run("ip link add rdsw0 type veth peer name rdsw1 && ip link set rdsw0 up && "
             "ip link set rdsw1 up && ip addr add 10.19.0.1/32 dev rdsw0 && "
             "rdma link add rdsw type siw netdev rdsw0")
    try:
        assert laddr("one", "10.19.0.1") == 0
        prefixes = ("10.19.0.77/32", "fd19::77/128", "fe80::7777/64")
        seen = laddr("cycles", 3 if node.debug else 10, "rdsw0", *prefixes)
        assert codes(seen) == {"0", "EADDRNOTAVAIL"}, seen
        # The same holds for an address that a route makes local, so such an address must not be
        # remembered.
        seen = laddr("routed", "10.78.0.0/16", "rdsw0", "10.78.0.1,10.78.3.4", "10.19.0.1")
        assert seen == {"results": [0], "after": [NONE], "known": 0}
        node.run("rdma link del rdsw")
        assert laddr("one", "10.19.0.1") == NONE
    finally:
        node.run("rdma link del rdsw; ip link del rdsw0", check=False)
