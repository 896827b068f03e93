# SPDX-License-Identifier: GPL-2.0
"""statuses.py CASE...: when operations end, and how, on one machine whose wire is slow or cut for a while."""

import contextlib
import select
import socket
import struct
import subprocess
import sys

import rdma
from cases import IB, eventually, need, play
from rdma import SILENT, B, Pair
from rds import counters, info
from reset import reset

SENT = 10004
WIRES = ("rdsv0", "rdsv1")


@contextlib.contextmanager
def wire(*how, ends=WIRES):
    """All that goes out of one end or the other, or of some, meets with netem."""
    for name in ends:
        subprocess.run(["tc", "qdisc", "replace", "dev", name, "root", "netem", *how], check=True)
    try:
        yield
    finally:
        for name in ends:
            subprocess.run(["tc", "qdisc", "del", "dev", name, "root"], check=True)


def connect(p):
    """The connection is up, and nothing is under way."""
    rdma.send(p.a, b"first")
    need(rdma.receive(p.b)[0] == b"first", "the first message")
    rdma.send(p.b, b"answer")
    need(rdma.receive(p.a)[0] == b"answer", "the answer, which acknowledges it")
    eventually("the first message is acknowledged", lambda: sent() == 0)


def sent():
    """How many messages from here are sent, and not acknowledged."""
    return sum(raw[12:16] == socket.inet_aton(IB[0]) for raw in info(SENT))


def all_ends(p, count):
    """How so many operations have ended, by their tokens. Each is told once."""
    found = []
    while len(found) < count:
        found += rdma.ends(p.a)
    need(sorted(token for token, _ in found) == list(range(count)), f"{found}")
    return dict(found)


def goes_on(p, cookie, token):
    """Does an operation again until the connection that was lost is there again, and tells which messages came before."""
    for token in range(token, token + 20):
        p.write(b"last", cookie, [(0, 100)], token)
        found, how = rdma.status(p.a)
        need(found == token and how in (rdma.SUCCESS, rdma.DROPPED), f"{token}: {found}, {how}")
        if how == rdma.SUCCESS:
            break
    else:
        raise AssertionError("none goes well any more")
    came = []
    while (data := rdma.receive(p.b)[0]) != b"last":
        came.append(data)
    need(not select.select([p.a], [], [], 0)[0], "more is told")
    return came


def in_turn():
    """Programs are told of the ends in the order in which they have sent, whatever each operation's memory takes to be
    released."""
    with Pair() as p:
        cookie = p.theirs.register(0, 1 << 20)
        p.ours.scatter()
        # A region, a few pieces, many pieces, and what is done only when the peer has acknowledged it.
        kinds = (lambda token: p.write(b"", cookie, [(0, 1 << 17)], token, SILENT),
                 lambda token: p.write(b"", cookie, [(0, 64)], token, SILENT),
                 lambda token: p.read(b"", cookie, [(i * 5000, 100) for i in range(40)], token, SILENT),
                 lambda token: p.write(b"said", cookie, [(0, 64)], token),
                 lambda token: p.read(b"", cookie, [(0, 64)], token, SILENT))
        for length in (2, 5):
            for _ in range(30):
                for token in range(10):
                    kinds[token % length](token)
                found = []
                while len(found) < 10:
                    found += rdma.ends(p.a)
                need(found == [(token, rdma.SUCCESS) for token in range(10)], f"{found}")
                while select.select([p.b], [], [], 0)[0]:
                    rdma.receive(p.b)


def refused():
    """Who is told that the peer has refused an operation may go on at once: the next one is not lost with the connection."""
    with Pair(20) as p:
        cookie = p.theirs.register(0, 4096)
        # Who does that more often has to wait.
        for token in range(0, 10, 2):
            p.write(b"never", cookie ^ 0xff, [(0, 100)], token)
            found, how = rdma.status(p.a)
            # It is dropped if the peer has not noticed before that the last connection has gone.
            need(found == token and how in (rdma.REMOTE_ERROR, rdma.DROPPED), f"{token}: {found}, {how}")
            p.write(b"good", cookie, [(0, 100)], token + 1)
            need(rdma.status(p.a) == (token + 1, rdma.SUCCESS), "the end of the next one")
            need(rdma.receive(p.b)[0] == b"good", "its message")


def fenced():
    """A message with a fence comes when all is read, though the wire is slow."""
    size = 1 << 16
    with Pair(20) as p:
        cookie = p.theirs.register(0, size)
        connect(p)
        with wire("delay", "50ms", "limit", "10000"):
            for number in range(3):
                data = bytes([number + 1]) * size
                p.theirs.fill(0, data)
                p.read(b"read", cookie, [(0, size)], number)
                need(rdma.receive(p.b)[0] == b"read", "another message came")
                # The program is not told yet.
                need(p.ours.pages[:size] == data, f"{number}: the message comes before all is read")
                need(rdma.status(p.a) == (number, rdma.SUCCESS), "the end of the read")


def fenced_atomics():
    """A message with a fence comes when the old number is there, though the wire is slow."""
    with Pair(2) as p:
        cookie = p.theirs.register(0, 8)
        connect(p)
        with wire("delay", "50ms", "limit", "10000"):
            for number in range(3):
                add = rdma.atomic(rdma.FETCH_ADD, cookie, p.ours.base, 0, [1], rdma.NOTIFY_ME | rdma.FENCE, number)
                p.ours.fill(0, b"nothing!")
                p.theirs.fill(0, struct.pack("=Q", number + 40))
                rdma.send(p.a, b"added", add)
                need(rdma.receive(p.b)[0] == b"added", "another message came")
                # The program is not told yet.
                old, = struct.unpack_from("=Q", p.ours.pages)
                need(old == number + 40, f"{number}: the message comes before the old number: {old:#x}")
                need(rdma.status(p.a) == (number, rdma.SUCCESS), "the end of it")


def dropped():
    """What was sent on a connection that is lost is told of, once, and not sent again; messages without an operation are."""
    with Pair(20) as p:
        cookie = p.theirs.register(0, 4096)
        connect(p)
        with wire("loss", "100%"):
            for token in range(3):
                p.write(b"lost %d" % token, cookie, [(0, 100)], token)
                rdma.send(p.a, b"kept %d" % token)
            p.read(b"lost 3", cookie, [(0, 100)], 3, flags=0)
            eventually("all is sent", lambda: sent() == 7)
            reset(*IB)
            found = all_ends(p, 4)
        # What the device itself gives up, on a slow machine, has an error of its own.
        need(found.pop(0) in (rdma.DROPPED, rdma.OTHER_ERROR) and set(found.values()) == {rdma.DROPPED}, f"{found}")
        came = goes_on(p, cookie, 4)
        need(came[:3] == [b"kept 0", b"kept 1", b"kept 2"], f"{came}")
        # Of one that was done again, and was dropped.
        need(not came[3:] or set(came[3:]) == {b"last"}, f"{came}")


def unanswered():
    """The device itself gives up, as the peer does not answer: it says so of the first operation, and drops the others."""
    with Pair(20) as p:
        cookie = p.theirs.register(0, 4096)
        connect(p)
        with wire("loss", "100%"):
            for token in range(3):
                p.write(b"lost %d" % token, cookie, [(0, 100)], token)
            found = all_ends(p, 3)
        need(found == {0: rdma.OTHER_ERROR, 1: rdma.DROPPED, 2: rdma.DROPPED}, f"{found}")
        came = goes_on(p, cookie, 3)
        need(set(came) <= {b"last"}, f"{came}")


def canceled():
    """Of operations that are taken back those that have begun go on, also with a message that is half out; the others
    are told to be canceled."""
    size, count = 1 << 20, 8
    with Pair(20) as p:
        p.a.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF + 25, 64 << 20)  # SO_SNDBUFFORCE
        p.b.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF + 25, 64 << 20)
        cookie = p.theirs.register(0, 4096)
        connect(p)
        full = counters()["ib_tx_ring_full"]
        with wire("loss", "100%"):
            for token in range(count):
                p.write(bytes([token]) * (size if token < 5 else 10), cookie, [(0, 100)], token)
            eventually("no more can be sent", lambda: counters()["ib_tx_ring_full"] > full)
            p.a.cancel(*B)
        found = all_ends(p, count)
        begun = [token for token in range(count) if found[token] != rdma.CANCELED]
        need(begun == list(range(len(begun))) and 0 < len(begun) < 5, f"{found}")
        need({found[token] for token in begun} <= {rdma.SUCCESS, rdma.DROPPED, rdma.OTHER_ERROR}, f"{found}")
        came = goes_on(p, cookie, count)
        wanted = [token for token in begun if found[token] == rdma.SUCCESS]
        whole = [bytes([token]) * size for token in begun]
        need(all(data in whole or data == b"last" for data in came), f"{[len(x) for x in came]}")
        came = [data[0] for data in came if data != b"last"]
        need(came == sorted(set(came)) and set(wanted) <= set(came), f"{came} came, {found}")


if __name__ == "__main__":
    play(globals(), sys.argv[1:])
