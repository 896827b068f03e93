# SPDX-License-Identifier: GPL-2.0
"""Congestion: ports that are full, programs that are notified, and ports that have room again."""

import pytest
from probes import Probes
from rdsvm.cluster import PAIR, PAIR6, wire_address
from slow_reader import run_slow_reader
from traffic import counters, new_type, ports

A, B = wire_address(0, 1), wire_address(0, 2)


@pytest.mark.impls("rust")
@pytest.mark.on_siw("release")
@pytest.mark.parametrize("ends", [PAIR, pytest.param(PAIR6, marks=pytest.mark.long), ("127.0.0.1", "127.0.0.1")],
                         ids="-".join)
def test_reported_ports(node, guest, ends):
    """C RDS is not tested: its two ends in one kernel do not notify each other of the end of a
    congestion."""
    result = node.run(["python3", guest / "cong_monitor.py", *ends, ports()], timeout=300)
    assert result.out == "all\n"


def test_slow_reader(pair, guest):
    """The sender is notified of the right port, for each implementation of the receiver."""
    a, b = pair
    run_slow_reader(guest, (a, A), (b, B), monitor=True)


@pytest.mark.impls("rust")
@pytest.mark.parametrize("ends", [PAIR, ("127.0.0.1", "127.0.0.1")], ids="-".join)
def test_limits(node, guest, ends):
    """A port is full when one message exceeds its limit. It has room again when less than half of
    the limit is in use."""
    result = node.run(["python3", guest / "hysteresis.py", *ends, ports()], timeout=120)
    assert result.out == "all\n"


@pytest.mark.parametrize("first", ("hello", "hear"))
@pytest.mark.parametrize("full", ("a", "b"))
def test_port_that_was_full_before(pair, guest, full, first):
    """A new connection begins with the congestion map, whichever end asked for it."""
    (to_node, target), (from_node, source) = sorted(zip(pair, (A, B)), key=lambda end: end[0].name != full)
    program, port, tos = guest / "full_port.py", ports(), new_type()
    ask = from_node.start(["python3", program, "ask", source, port, tos, target, port, first,
                           *["reset"] * (from_node.impl == "rust")])
    ask.expect("^ready$")
    reader = to_node.start(["python3", program, "full", target, port, tos, *[source, port] * (first == "hear")])
    reader.expect("^full$")
    ask.write("ask\n")
    ask.expect("^held back$")
    reader.write("read\n")
    reader.expect("^the last$")
    for program in (reader, ask):
        program.write("done\n")
        program.wait(check=True)


@pytest.mark.impls("rust")
def test_failed_read(node, guest):
    """Peers still regard the port as full after a failed read."""
    result = node.run(["python3", guest / "failed_read.py", *PAIR, ports()], timeout=300)
    assert result.out == "all\n"


@pytest.mark.race
@pytest.mark.impls("rust")
def test_one_at_a_time(node, guest):
    """One message does not congest a program that asks for twice the payload as its buffer, as
    programs of C RDS do."""
    before = counters(node, guest)["cong_update_queued"]
    result = node.run(["python3", guest / "one_at_a_time.py", *PAIR, ports()], timeout=120)
    assert result.out == "all\n"
    assert counters(node, guest)["cong_update_queued"] == before


@pytest.mark.impls("rust")
@pytest.mark.parametrize("ends", [PAIR, ("127.0.0.1", "127.0.0.1")], ids="-".join)
def test_sends_of_a_ring(node, guest, ends):
    """io_uring always tries without waiting first. It returns ENOBUFS to the program, and polls
    after EAGAIN."""
    result = node.run(["python3", guest / "uring_full.py", *ends, ports()], timeout=300)
    assert result.out == "all\n"


@pytest.mark.race
@pytest.mark.impls("rust")
@pytest.mark.parametrize("ends", [PAIR, ("127.0.0.1", "127.0.0.1")], ids="-".join)
def test_woken_sockets(node, guest, ends):
    """The sockets that a port has held back are woken once each. No other sockets are woken."""
    # More than the softirq that receives the map wakes itself.
    wrband, held_back = 0x200, 200
    program = node.start(["python3", guest / "wakeups.py", *ends, ports()])
    program.expect("^ready$")
    with Probes(node, "rds_rust_sk_wake events=%si:u32") as probes:
        program.write("go\n")
        program.expect("^all$")
        calls = [int(x.split("=")[1]) for _, x in probes.calls()]
    program.write("end\n")
    program.wait(60, check=True)
    assert len([x for x in calls if x & wrband]) == held_back, calls
