# SPDX-License-Identifier: GPL-2.0
"""lost.py CASE: completions of sends and operations that a device loses, on one machine.

The kernel's fault injection has to be for this module only, and net.rds.ib.completion_timeout_secs short."""

import contextlib
import select
import socket
import sys

import rdma
from cases import eventually, need, play
from knobs import knob
from rdma import SILENT, Pair
from rds import counters
from statuses import all_ends, connect, goes_on

PAGE = 4096


def left():
    """How many are still to be lost."""
    return knob("lose_completion/times")


@contextlib.contextmanager
def losing(times):
    """So many completions get lost; all for a while with -1."""
    knob("lose_completion/times", times)
    knob("lose_completion/probability", 100)
    try:
        yield
    finally:
        knob("lose_completion/probability", 0)


def lost(p, operate, cookie, token):
    """How an operation ends whose completion gets lost, and which of the counters that matter have counted."""
    before = counters()
    with losing(1):
        operate(b"", cookie, [(0, 100)], token, SILENT)
        found, how = rdma.status(p.a)
        need((found, left()) == (token, 0), f"{found} ended, {left()} are still to be lost")
    now = counters()
    return how, [x for x in ("ib_tx_watchdog_kick", "ib_tx_watchdog_timeout", "conn_reset") if now[x] != before[x]]


def asked():
    """One completion gets lost. What the device is asked for stands for it."""
    with Pair(4) as p:
        cookie = p.theirs.register(0, PAGE)
        connect(p)
        operations = [p.write, p.write]
        # With iWARP nothing goes behind a read.
        if sys.argv[2] == "rxe":
            operations += [p.read, p.write]
        for token, operate in enumerate(operations):
            found = lost(p, operate, cookie, token)
            need(found == (rdma.SUCCESS, ["ib_tx_watchdog_kick"]), f"{token}: {found}")
        rdma.send(p.a, b"after")
        need(rdma.receive(p.b)[0] == b"after", "another message came")


def read():
    """Nothing goes behind a read on iWARP: the device cannot be asked, and nobody knows how the read ended."""
    with Pair(4) as p:
        cookie = p.theirs.register(0, PAGE)
        connect(p)
        how, counted = lost(p, p.read, cookie, 0)
        need(how == rdma.DROPPED and "ib_tx_watchdog_timeout" in counted, f"{how}, {counted}")
        need(not goes_on(p, cookie, 1), "messages that nobody has sent")


def given_up():
    """The device reports nothing. Operations are told of once, and messages come once and in order."""
    with Pair(4) as p:
        cookie = p.theirs.register(0, PAGE)
        connect(p)
        before = counters()["ib_tx_watchdog_timeout"]
        with losing(-1):
            for number in range(3):
                p.write(b"op %d" % number, cookie, [(0, 100)], 2 * number)
                p.write(b"", cookie, [(0, 100)], 2 * number + 1, SILENT)
                rdma.send(p.a, b"kept %d" % number)
            p.read(b"op 3", cookie, [(0, 100)], 6, flags=0)
            eventually("it is given up", lambda: counters()["ib_tx_watchdog_timeout"] > before)
        found = all_ends(p, 7)
        # With iWARP the peer's acknowledgement tells of a write: of its message, or of what is sent for want of one.
        heard = set() if sys.argv[2] == "rxe" else set(range(6))
        need({token for token, how in found.items() if how != rdma.DROPPED} <= heard, f"{found}")
        need({found[token] for token in heard} <= {rdma.DROPPED, rdma.SUCCESS}, f"{found}")
        came = goes_on(p, cookie, 7)
        came = [x for x in came if x != b"last"]
        wanted = [x % number for number in range(3) for x in (b"op %d", b"kept %d")] + [b"op 3"]
        need(came == [x for x in wanted if x in came], f"{came} came")
        need([x for x in came if x.startswith(b"kept")] == wanted[1::2], f"{came} came")
        with_messages = heard & {0, 2, 4}
        done = [b"op %d" % (token // 2) for token in with_messages if found[token] == rdma.SUCCESS]
        need(set(done) <= set(came), f"{came} came, {found}")


def full():
    """The device reports nothing until its queue is full: there is no room to ask it."""
    count, size = 300, 5000
    with Pair(4) as p:
        p.a.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF + 25, 64 << 20)  # SO_SNDBUFFORCE
        p.b.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF + 25, 64 << 20)
        connect(p)
        before = counters()
        with losing(-1):
            for number in range(count):
                rdma.send(p.a, b"%d " % number + bytes(size))
            eventually("it is given up", lambda: counters()["ib_tx_watchdog_timeout"] > before["ib_tx_watchdog_timeout"])
            need(counters()["ib_tx_ring_full"] > before["ib_tx_ring_full"], "there was room")
        for number in range(count):
            data = rdma.receive(p.b)[0]
            need(data == b"%d " % number + bytes(size), f"{data[:10]} came, {number} was next")
        need(not select.select([p.b], [], [], 0)[0], "more came")


if __name__ == "__main__":
    play(globals(), sys.argv[1:2])
