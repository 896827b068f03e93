# SPDX-License-Identifier: GPL-2.0
"""lost.py CASE: a device loses completions of sends and operations, on one machine.

The fault injection of the kernel has to be limited to this module, and
net.rds.ib.completion_timeout_secs short.
"""

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
    """Returns how many completions are still to be lost."""
    return knob("lose_completion/times")


@contextlib.contextmanager
def losing(times):
    """Makes the device lose this many completions, or all with -1."""
    knob("lose_completion/times", times)
    knob("lose_completion/probability", 100)
    try:
        yield
    finally:
        knob("lose_completion/probability", 0)


def lost(p, operate, cookie, token):
    """Returns the status of an operation whose completion is lost, and which of the relevant
    counters have risen."""
    before = counters()
    with losing(1):
        operate(b"", cookie, [(0, 100)], token, SILENT)
        found, how = rdma.status(p.a)
        need((found, left()) == (token, 0), f"{found} ended, {left()} are still to be lost")
    now = counters()
    return how, [x for x in ("ib_tx_watchdog_kick", "ib_tx_watchdog_timeout", "conn_reset") if now[x] != before[x]]


def asked():
    """Loses one completion. The completion of what is posted behind it takes its place."""
    with Pair(4) as p:
        cookie = p.theirs.register(0, PAGE)
        connect(p)
        operations = [p.write, p.write]
        # On iWARP nothing is posted behind a read.
        if sys.argv[2] == "rxe":
            operations += [p.read, p.write]
        for token, operate in enumerate(operations):
            found = lost(p, operate, cookie, token)
            need(found == (rdma.SUCCESS, ["ib_tx_watchdog_kick"]), f"{token}: {found}")
        rdma.send(p.a, b"after")
        need(rdma.receive(p.b)[0] == b"after", "another message came")


def read():
    """Loses the completion of a read on iWARP.

    Nothing is posted behind a read there. So the module cannot ask the device, and the outcome of
    the read is unknown.
    """
    with Pair(4) as p:
        cookie = p.theirs.register(0, PAGE)
        connect(p)
        how, counted = lost(p, p.read, cookie, 0)
        need(how == rdma.DROPPED and "ib_tx_watchdog_timeout" in counted, f"{how}, {counted}")
        need(not goes_on(p, cookie, 1), "messages that nobody has sent")


def given_up():
    """The device reports nothing.

    Each operation is reported once, and messages arrive once and in order.
    """
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
        # On iWARP the acknowledgement of the peer reports a write: that of its message, or of what
        # is sent if it has none.
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
    """The device reports nothing until its queue is full. There is no room to ask it."""
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
            # The next connection has all of the messages to send, in case this one was given up
            # first.
            eventually("there is no room", lambda: counters()["ib_tx_ring_full"] > before["ib_tx_ring_full"])
        for number in range(count):
            data = rdma.receive(p.b)[0]
            need(data == b"%d " % number + bytes(size), f"{data[:10]} came, {number} was next")
        need(not select.select([p.b], [], [], 0)[0], "more came")


if __name__ == "__main__":
    play(globals(), sys.argv[1:2])
