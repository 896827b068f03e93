# SPDX-License-Identifier: GPL-2.0
"""RDS over TCP without memory."""

import pytest
from faults import faults, faults_within, place_in_kernel, place_of_rust
from traffic import RDS_TCP_PORT, TCP_WIRE as WIRE, counters, exchange, ping, ports, unchanged, under_load, wait_for

pytestmark = pytest.mark.kinds("rxe")

# The kernel's check of DMA mappings ends for good without memory. Code that reads or closes a
# socket also sends, to a device with such mappings.
CHECK_OF_MAPPINGS = "add_dma_entry"


def uptime(node):
    return float(node.read_file("/proc/uptime").split()[0])


@pytest.mark.long("release", "debug")
@pytest.mark.flavors("debug")
@pytest.mark.pairs("rust-rust")
def test_receiving_finds_no_memory(pair, tools, guest, tcp):
    """The work of an endpoint finds no memory for what it receives and sends. It goes on when there
    is some, on the same connection."""
    hosts = tcp(0)
    b = pair[1]
    work = place_of_rust(b, r"13tcp_transport7context.*10TcpContext5serve$")
    # Their end, with pings whose answers would find no memory, is far away.
    streams = under_load(tools, guest, *zip(pair, hosts), node=b, netdev=b.netdevs[WIRE], count=500, sockets=2)
    before = counters(b, guest)
    spared = place_in_kernel(b, CHECK_OF_MAPPINGS)
    with faults_within(b, work, "failslab", "fail_page_alloc", probability=100, spared=spared, min_order=0):
        first = wait_for(b, guest, lambda now: now["tcp_rx_alloc_wait"] > before["tcp_rx_alloc_wait"])
        # TCP tells its caller that there is room when it has no memory.
        last = wait_for(b, guest, lambda now: now["tcp_rx_alloc_wait"] > first["tcp_rx_alloc_wait"] + 50)
        assert last["tcp_write_space_calls"] < first["tcp_write_space_calls"] + 25
    streams.finish()
    unchanged(before, counters(b, guest), "conn_reset", "ib_rx_alloc_wait")


@pytest.mark.long("release", "debug")
@pytest.mark.flavors("debug")
@pytest.mark.pairs("rust-rust")
def test_sending_finds_no_memory(pair, tools, guest, tcp):
    """The first congestion map finds no buffer while it is sent. The work of the endpoint makes
    room."""
    hosts = tcp(0)
    a, b = pair
    a.forget("tcp=1")
    before = counters(a, guest)
    sending = place_of_rust(a, r"13tcp_transport4link.*7TcpLink.*4Link8transmit$")
    with faults_within(a, sending, "failslab", "fail_page_alloc", probability=100, min_order=0):
        ping(tools, a, hosts[1], hosts[0])
    now = counters(a, guest)
    assert now["tcp_tx_alloc_wait"] > before["tcp_tx_alloc_wait"]
    unchanged(before, now, "ib_tx_alloc_wait")


@pytest.mark.long("release", "debug")
@pytest.mark.flavors("debug")
@pytest.mark.pairs("rust-rust")
def test_a_connection_that_finds_no_memory_to_grow(pair, tools, guest, tcp):
    """A connection carries messages with the memory of a new one, looks for more once a second, and
    gets it when there is some."""
    hosts = tcp(0)
    a = pair[0]
    a.forget("tcp=1")
    growing = place_of_rust(a, r"13tcp_transport7context.*10TcpContext4grow$")
    memory = ("failslab", "fail_page_alloc")
    begun = uptime(a)
    with faults_within(a, growing, *memory, probability=100, min_order=0):
        ping(tools, a, hosts[1], hosts[0])
        first = counters(a, guest)
        exchange(tools, *zip(pair, hosts), count=100)
        last = counters(a, guest)
    # The guest's own clock: load makes the time only longer.
    assert 0 < last["tcp_grow_failed"] < uptime(a) - begun + 2
    unchanged(first, last, "conn_reset")
    a.run("sleep 1.1")
    ping(tools, a, hosts[1], hosts[0])
    with faults_within(a, growing, *memory, probability=100, min_order=0):
        ping(tools, a, hosts[1], hosts[0], count=20)
    unchanged(last, counters(a, guest), "conn_reset", "tcp_grow_failed")


@pytest.mark.flavors("debug")
@pytest.mark.pairs("rust-rust")
def test_accepting_finds_no_memory(pair, tools, guest, tcp):
    """A socket cannot be accepted until there is memory again. No event reports it once more."""
    hosts = tcp(1)
    a, b = pair
    before = counters(a, guest)
    serving = place_of_rust(a, r"13tcp_transport8listener.*11TcpAcceptor5serve$")
    spared = place_in_kernel(a, CHECK_OF_MAPPINGS)
    with faults_within(a, serving, "failslab", "fail_page_alloc", probability=100, spared=spared, min_order=0):
        pinging = b.start([tools / "rds-ping", "-c", 1, "-W", "60", "-I", hosts[1], hosts[0]])
        wait_for(a, guest, lambda now: now["tcp_listen_failed"] > before["tcp_listen_failed"])
    pinging.wait(60, check=True)


@pytest.mark.flavors("debug")
@pytest.mark.pairs("rust-rust")
def test_a_teardown_finds_no_memory(pair, guest, tcp):
    """A teardown receives what TCP has acknowledged for some seconds. What is lost then is
    counted."""
    hosts = tcp(1)
    a, b = pair
    b.forget()
    before = counters(a, guest)
    # The pool may have a few buffers.
    sent = 60000
    reading = place_of_rust(a, r"13tcp_transport6reader.*6Reader3run$")
    spared = place_in_kernel(a, CHECK_OF_MAPPINGS)
    with faults_within(a, reading, "failslab", "fail_page_alloc", probability=100, spared=spared, min_order=0):
        peer = b.start(["python3", guest / "tcp_half.py", hosts[1], hosts[0], RDS_TCP_PORT, sent])
        peer.expect("^sent$")
        wait_for(a, guest, lambda now: now["tcp_rx_alloc_wait"] > before["tcp_rx_alloc_wait"])
        a.run(["python3", guest / "reset_tcp.py", hosts[0], hosts[1], 1, 0])
        now = wait_for(a, guest, lambda now: now["tcp_drain_lost"] > before["tcp_drain_lost"])
    assert now["tcp_drain_lost"] <= before["tcp_drain_lost"] + 48 + sent
    peer.wait(60, check=True)


@pytest.mark.pairs("rust-rust")
def test_incomplete_messages_return_their_buffers(pair, guest, tcp):
    """Peers begin messages that need more than a pool and the packets may have together, and do not
    end them. A connection that finds no memory for the rest of its message is given up."""
    tcp(1)
    a, b = pair
    a.forget("tcp=1", "pool_limit_mib=2")
    # The peer is a program, and so is each host.
    b.forget()
    node, hosts = "10.61.0.200", [f"10.61.0.{x}" for x in (50, 51, 52, 53)]
    for machine, addresses in ((a, [node]), (b, hosts)):
        for address in addresses:
            machine.run(f"ip addr add {address}/24 dev {machine.netdevs[WIRE]}")
    before = counters(a, guest)
    peers = b.start(["python3", guest / "tcp_partial.py", node, RDS_TCP_PORT, *hosts])
    peers.expect("^ended$", timeout=60)
    now = counters(a, guest)
    assert now["tcp_rx_starved_drop"] >= before["tcp_rx_starved_drop"] + 2
    assert now["tcp_rx_alloc_wait"] > before["tcp_rx_alloc_wait"]
    # None of them was given up as one that only stops is, after a minute.
    unchanged(before, now, "conn_keepalive_timeout")
    peers.finish(timeout=60)


@pytest.mark.long("release", "debug")
@pytest.mark.flavors("debug")
@pytest.mark.pairs("rust-rust")
def test_messages_in_small_pieces_need_no_other_buffers(pair, tools, guest, tcp):
    """There are no buffers of 8 KiB when messages are queued, so they are cut smaller. They are
    sent as they are."""
    hosts = tcp(0)
    a, b = pair
    ping(tools, a, hosts[1], hosts[0])
    before, dropped = counters(a, guest), counters(b, guest)["recv_drop_no_sock"]
    count = 8
    with faults(a, "fail_page_alloc", min_order=2, probability=100):
        sending = a.start(["python3", guest / "fill.py", hosts[0], hosts[1], ports(), 1 << 20, count])
        wait_for(b, guest, lambda now: now["recv_drop_no_sock"] >= dropped + count)
        now = counters(a, guest)
    assert now["ib_pool_refused_memory"] > before["ib_pool_refused_memory"]
    unchanged(before, now, "tcp_tx_alloc_wait", "conn_reset")
    sending.finish(timeout=60)
