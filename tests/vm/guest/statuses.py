# SPDX-License-Identifier: GPL-2.0
"""statuses.py CASE...: end and status of operations, on one machine whose link is slow or cut for a
while."""

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
    """Makes all packets that leave both devices, or those in `ends`, pass netem."""
    for name in ends:
        subprocess.run(["tc", "qdisc", "replace", "dev", name, "root", "netem", *how], check=True)
    try:
        yield
    finally:
        for name in ends:
            subprocess.run(["tc", "qdisc", "del", "dev", name, "root"], check=True)


def connect(p):
    """Brings the connection up, with nothing in flight."""
    rdma.send(p.a, b"first")
    need(rdma.receive(p.b)[0] == b"first", "the first message")
    rdma.send(p.b, b"answer")
    need(rdma.receive(p.a)[0] == b"answer", "the answer, which acknowledges it")
    eventually("the first message is acknowledged", lambda: sent() == 0)


def sent():
    """Returns how many messages from here are sent, and not acknowledged."""
    return sum(raw[12:16] == socket.inet_aton(IB[0]) for raw in info(SENT))


def all_ends(p, count):
    """Returns the statuses of `count` operations, by their tokens. Each is reported once."""
    found = []
    while len(found) < count:
        found += rdma.ends(p.a)
    need(sorted(token for token, _ in found) == list(range(count)), f"{found}")
    return dict(found)


def goes_on(p, cookie, token):
    """Repeats an operation until the lost connection is up again.

    Returns the messages that came before.
    """
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
    """Programs are notified in the order of their sends, whatever the release of each operation's
    memory takes."""
    with Pair() as p:
        cookie = p.theirs.register(0, 1 << 20)
        p.ours.scatter()
        # A region, a few pieces, many pieces, and an operation that ends only with the peer's
        # acknowledgement.
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
    """A program that is notified of a refused operation may continue at once.

    The next operation is not lost with the connection.
    """
    with Pair(20) as p:
        cookie = p.theirs.register(0, 4096)
        # A program that does this more often has to wait.
        for token in range(0, 10, 2):
            p.write(b"never", cookie ^ 0xff, [(0, 100)], token)
            found, how = rdma.status(p.a)
            # The first one is dropped if the peer has not noticed before that the last connection
            # has ended.
            need(found == token and how in (rdma.REMOTE_ERROR, rdma.DROPPED), f"{token}: {found}, {how}")
            p.write(b"good", cookie, [(0, 100)], token + 1)
            need(rdma.status(p.a) == (token + 1, rdma.SUCCESS), "the end of the next one")
            need(rdma.receive(p.b)[0] == b"good", "its message")


def fenced():
    """A message with a fence arrives when all is read, though the link is slow."""
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
                # The program has no notification yet.
                need(p.ours.pages[:size] == data, f"{number}: the message comes before all is read")
                need(rdma.status(p.a) == (number, rdma.SUCCESS), "the end of the read")


def fenced_atomics():
    """A message with a fence arrives when the old number is written, though the link is slow."""
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
                # The program has no notification yet.
                old, = struct.unpack_from("=Q", p.ours.pages)
                need(old == number + 40, f"{number}: the message comes before the old number: {old:#x}")
                need(rdma.status(p.a) == (number, rdma.SUCCESS), "the end of it")


def dropped():
    """Operations sent on a connection that is lost are reported, once, and not sent again.

    Messages without an operation are sent again.
    """
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
        # An operation that the device itself abandons, on a slow machine, has an error of its own.
        need(found.pop(0) in (rdma.DROPPED, rdma.OTHER_ERROR) and set(found.values()) == {rdma.DROPPED}, f"{found}")
        came = goes_on(p, cookie, 4)
        need(came[:3] == [b"kept 0", b"kept 1", b"kept 2"], f"{came}")
        # The message of an operation that was repeated, and was dropped.
        need(not came[3:] or set(came[3:]) == {b"last"}, f"{came}")


def unanswered():
    """The device itself gives up, as the peer does not answer.

    It reports an error for the first operation, and drops the others.
    """
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
    """Cancelled operations that have begun continue, also with a message that is partly sent.

    The others are reported as canceled.
    """
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
