# SPDX-License-Identifier: GPL-2.0
"""Tests on one node: loopback, and two soft RDMA devices on the ends of a veth pair."""

import re
import time

import pytest
from rdsvm.cluster import PAIR, PAIR6
from slow_reader import run_slow_reader
from traffic import USER, exchange, ping, there_and_back, with_addresses

LOOPS = [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("127.0.0.1", "127.8.9.10")]
PAIRS = [PAIR, PAIR[::-1], PAIR6, (PAIR[0], PAIR[0])]


@pytest.mark.smoke
@pytest.mark.on_siw
@pytest.mark.parametrize("ends", LOOPS + PAIRS, ids="-".join)
def test_ping(node, tools, ends):
    source, target = ends
    ping(tools, node, target, source)


def test_user_of_pings_has_no_privilege(node):
    """The user of pings has no privileges. One end of the streams has the same user."""
    told = node.run(["/bin/cat", "/proc/self/status"], user=USER).out
    assert re.search(rf"^Uid:(\t{USER}){{4}}$", told, re.M) and re.search(r"^Groups:\s*$", told, re.M), told
    assert re.findall(r"^Cap(?:Inh|Prm|Eff|Amb):\t(\w+)$", told, re.M) == 4 * ["0" * 16], told


def test_second_of_a_guest(node):
    """A second in the guest is at least a second of the host, so no time limit in the guest ends
    early."""
    start = time.monotonic()
    node.run(["sleep", "1"])
    assert time.monotonic() - start >= 0.99


def test_ping_takes_its_time(node, tools):
    start = time.monotonic()
    ping(tools, node, "127.0.0.1", interval="0.5")
    assert time.monotonic() - start >= 1


@pytest.mark.smoke
@pytest.mark.on_siw
@pytest.mark.parametrize("ends", LOOPS + [PAIR, PAIR6, (PAIR[1], PAIR[1])], ids="-".join)
def test_traffic(node, tools, ends):
    left, right = ends
    exchange(tools, (node, left), (node, right), count=300)


@pytest.mark.parametrize("ends", [LOOPS[0], PAIR], ids="-".join)
def test_fragment_boundaries(node, tools, ends):
    left, right = ends
    exchange(tools, (node, left), (node, right), count=64, sizes="boundary")


@pytest.mark.parametrize("ends", [LOOPS[0], PAIR], ids="-".join)
def test_many_sockets(node, tools, ends):
    left, right = ends
    exchange(tools, (node, left), (node, right), count=50, sockets=8, sizes="1..20000")


@pytest.mark.impls("rust")
def test_slow_reader(node, guest):
    """C RDS is not tested: its two ends in one kernel do not notify each other of the end of a
    congestion."""
    run_slow_reader(guest, (node, PAIR[0]), (node, PAIR[1]))


@pytest.mark.impls("rust")
@pytest.mark.parametrize("host", ("127.0.0.1", pytest.param("::1", marks=pytest.mark.long)))
def test_slow_reader_on_loopback(node, guest, host):
    """C RDS has no back-pressure on loopback."""
    run_slow_reader(guest, (node, host), (node, host))


@pytest.mark.race
@pytest.mark.impls("rust")
@pytest.mark.kinds("rxe")
def test_stuck_reader(node, guest):
    """This runs on loopback, so the kind of devices does not matter."""
    assert node.run(["python3", guest / "stuck_reader.py"], timeout=600).out == "all\n"


@pytest.mark.race
@pytest.mark.impls("rust")
@pytest.mark.kinds("rxe")
def test_readers(node, guest):
    """C RDS is not tested: it wakes all waiters of a socket, whatever they wait for."""
    assert node.run(["python3", guest / "readers.py", "127.0.0.1"], timeout=600).out == "all\n"


# C RDS keeps a congestion map for each address of its sockets.
@pytest.mark.flavors("release")
@pytest.mark.impls("rust")
@pytest.mark.kinds("rxe")
def test_full_ports_with_tcp(node, guest, load):
    """Any user can select TCP for millions of loopback addresses. Full ports there take no
    congestion maps, and hold senders back all the same. There is no connection to another node."""
    load("tcp=1")
    allocated = node.run(["python3", guest / "full_on_loopback.py", 300], timeout=300).out
    assert int(allocated) < 100, "maps would be 300"


@pytest.mark.impls("rust")
@pytest.mark.on_siw
def test_link_local(node, guest):
    ends = (node, "rdsv0", "fe80::771"), (node, "rdsv1", "fe80::772")
    with with_addresses(*ends):
        there_and_back(guest, *ends)


# KASAN keeps freed memory for a while.
@pytest.mark.flavors("release")
@pytest.mark.impls("rust")
def test_receivers_that_are_gone(node, guest):
    """A sender does not keep the sockets that once held it back."""
    result = node.run(["python3", guest / "receivers.py"], timeout=300)
    assert int(result.out) < 500, "1,000 were closed"


# On the debug kernel this number of sockets takes minutes. The table of C RDS is full earlier.
@pytest.mark.flavors("release")
@pytest.mark.impls("rust")
@pytest.mark.kinds("rxe")
def test_no_port_left(node, guest):
    """There are more sockets than the table of C RDS takes for the whole machine. The next socket
    gets no port on this address; other addresses have ports."""
    assert int(node.run(["python3", guest / "ports.py"], timeout=300).out) > 60000


# No message reaches a device.
@pytest.mark.impls("rust")
@pytest.mark.kinds("rxe")
def test_noise(node, tools):
    """Failed requests of one program do not suppress log lines about a connection."""
    mark = node.mark("noise")
    node.run(["python3", "-c", "import socket\n"
              "s = socket.socket(socket.AF_RDS, socket.SOCK_SEQPACKET, 0)\n"
              "for _ in range(100):\n"
              "    try:\n        s.bind(('192.0.2.1', 0))\n"
              "    except OSError:\n        pass\n"])
    node.wait_log("no transport has the address 192[.]0[.]2[.]1", mark)
    node.start([tools / "rds-ping", "-c", "1", "-I", PAIR[0], "127.0.0.1"])
    node.wait_log(f"{PAIR[0]} -> 127.0.0.1: cannot connect", mark)
