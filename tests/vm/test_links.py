# SPDX-License-Identifier: GPL-2.0
"""Devices and wires that come and go many times while connections are being made or messages
wait."""

import pytest
from rdsvm.cluster import PAIR, wire_address
from traffic import counters, first_log, ping, ports

A, B = wire_address(0, 1), wire_address(0, 2)


@pytest.mark.impls("rust")
@pytest.mark.parametrize("times", (4, pytest.param(24, marks=pytest.mark.long("release", "debug"))))
@pytest.mark.parametrize("index", (pytest.param(0, id="active"), pytest.param(1, id="passive", marks=pytest.mark.long)))
def test_a_device_comes_and_goes(slow_node, tools, guest, index, times):
    """CVE-2023-52573: a device comes and goes during connects of many types of service, on the
    active and on the passive side."""
    node = slow_node
    node.forget()
    node.run(["python3", guest / "come_and_go.py", f"rdsx{index}", node.kind, f"rdsv{index}", *PAIR, ports(), times],
             timeout=600)
    ping(tools, node, PAIR[1], PAIR[0])
    ping(tools, node, PAIR[0], PAIR[1])


@pytest.fixture
def kept(pair):
    """Keeps IPv6 addresses when their device goes down."""
    setting = "/proc/sys/net/ipv6/conf/{}/keep_addr_on_down"
    for m in pair:
        m.write_file(setting.format(m.netdevs[0]), "1")
    yield
    for m in pair:
        m.write_file(setting.format(m.netdevs[0]), "0")


@pytest.mark.kept
@pytest.mark.pairs("rust-rust")
@pytest.mark.parametrize("rounds", (
    1, pytest.param(12, marks=pytest.mark.long("release", "debug"))))
def test_a_link_flaps(pair, kept, tools, guest, rounds):
    """CVE-2026-43230: the link of each node goes down and up while messages wait.

    It is down briefly, and on soft-RoCE also until the connection is given up. On iWARP, where TCP
    does not give up so soon, it goes down several times in a row. Soft-RoCE must not be about to
    send a CM request then, or it permanently fails the CM's queue pair.
    """
    a, b = pair
    program, port = guest / "flow.py", ports()
    resets = [counters(m, guest)["conn_reset"] for m in pair]
    recv = b.start(["python3", program, "recv", B, port])
    recv.expect("^ready$")
    send = a.start(["python3", program, "send", A, port + 1, B, port])

    def ask():
        """Makes the reader take more messages than can wait at both ends, so the connection has to
        carry some. Returns the argument for answered()."""
        seen = recv.out.count("more")
        recv.write("more\n")
        return seen + 1

    def answered(number):
        recv.expect(rf"(?:^more \d+\n){{{number}}}")

    def flap(victim, until=lambda marks: None):
        marks = [m.mark("the link goes down") for m in pair]
        victim.run(f"ip link set {victim.netdevs[0]} down")
        until(marks)
        victim.run(f"ip link set {victim.netdevs[0]} up")

    asked = []

    def given_up(marks):
        # All messages for which there was room may have arrived. Then the reader's node has to
        # report that there is room again.
        asked.append(ask())
        first_log(pair, ": disconnected", marks, timeout=60)

    answered(ask())
    for _ in range(rounds):
        for victim in pair:
            for _ in range(1 if a.kind == "rxe" else 4):
                flap(victim)
            answered(ask())
            # This takes 5 to 10 seconds.
            if a.kind == "rxe" and rounds > 1:
                flap(victim, given_up)
                answered(asked.pop())
                answered(ask())
    send.write("enough\n")
    count = send.expect(r"^sent (\d+)$")[1]
    recv.write(f"{count}\n")
    recv.expect(f"^all {count}$", timeout=300)
    send.write("done\n")
    for process in (send, recv):
        process.wait(check=True)
    ping(tools, b, A, B)
    resets = [counters(m, guest)["conn_reset"] - x for m, x in zip(pair, resets)]
    assert max(resets) >= 2 * rounds or a.kind == "siw", resets
