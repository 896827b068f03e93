# SPDX-License-Identifier: GPL-2.0
"""less_able.py ATOMICS LACKING: checks which operations succeed, and which are refused, on devices
that lack a feature.

ATOMICS is 1 if the devices have atomic operations otherwise.
"""

import struct
import sys

import rdma
from cases import need, outcome
from rdma import NOTIFY_ME, Pair
from rds import counters

ATOMICS, LACKING = int(sys.argv[1]), sys.argv[2]
PAGE = 4096
# The number of pages of a region.
MOST = 8 if LACKING == "region-pages" else 12


def tried(p, *control):
    """Returns the status of an operation, or the error with which it is refused."""
    told = outcome(rdma.send, p.a, b"", *control)
    if told != 0:
        return told
    _, how = rdma.status(p.a)
    if how == rdma.SUCCESS:
        rdma.receive(p.b)
    return how


def refused(p, cookie, *kinds):
    """An operation that the device refuses ends, with its message, and nothing else does."""
    p.theirs.fill(0, bytes(8))
    before = counters()
    for number in range(20):
        for kind in kinds:
            rdma.send(p.a, b"never", rdma.atomic(kind, cookie, p.ours.base, 0, [1, 2, 1 << 7, 1 << 9], 0, number))
            need(rdma.status(p.a) == (number, rdma.DROPPED), "how it ends")
        rdma.send(p.a, b"%d" % number)
        need(rdma.receive(p.b)[0] == b"%d" % number, "another message came")
    need(p.theirs.pages[:8] == bytes(8), "it was done")
    now = counters()
    need(now["send_drop_operation"] - before["send_drop_operation"] == 20 * len(kinds), "they are counted")
    need(now["conn_reset"] == before["conn_reset"], "the connection has ended")


def refused_at_once(p, cookie, *kinds):
    """A device that has refused an atomic is not asked again, and nothing else ends."""
    before = counters()
    for kind in kinds:
        control = rdma.atomic(kind, cookie, p.ours.base, 0, [1, 2, 0, 0], NOTIFY_ME, 7)
        need(outcome(rdma.send, p.a, b"never", control) == "EOPNOTSUPP", f"{kind} is not refused")
    rdma.send(p.a, b"other")
    need(rdma.receive(p.b)[0] == b"other", "another message came")
    now = counters()
    same = ("send_drop_operation", "conn_reset")
    need(all(now[x] == before[x] for x in same), "the device was asked")


def masked(p, cookie):
    """Masked operations succeed as plain ones do, between messages.

    The device ignores the masks, so they are chosen such that this makes no difference.
    """
    add, swap = rdma.MASKED_FETCH_ADD, rdma.MASKED_COMPARE_SWAP
    now, full = 0x1122334455667788, (1 << 64) - 1
    cases = (
        # No carry passes this bit.
        (add, [0x10, 1 << 31], now + 0x10),
        # One bit is changed. The byte that contains it is as expected, or it is not.
        (swap, [now, now + 1, 0xff, 1], now + 1),
        (swap, [5, now + 1, 0xff, 1], now),
        # A plain one.
        (swap, [now, 6, full, full], 6))
    for number in range(20):
        for kind, numbers, then in cases:
            struct.pack_into("=Q", p.theirs.pages, 0, now)
            rdma.send(p.a, b"masked", rdma.atomic(kind, cookie, p.ours.base + 8, 0, numbers, NOTIFY_ME, number))
            rdma.send(p.a, b"behind")
            need(rdma.status(p.a) == (number, rdma.SUCCESS), f"how it ends: {kind}, {numbers}")
            found = [struct.unpack_from("=Q", memory.pages, at)[0] for memory, at in ((p.ours, 8), (p.theirs, 0))]
            need(found == [now, then], f"what it brings and does: {kind}, {numbers}: {found}")
            need([rdma.receive(p.b)[0] for _ in range(2)] == [b"masked", b"behind"], "the messages")


def main():
    with Pair(MOST + 1) as p:
        rdma.send(p.a, b"message")
        need(rdma.receive(p.b)[0] == b"message", "another message came")
        if LACKING == "registration":
            need(outcome(p.theirs.register, 0, PAGE) == "EOPNOTSUPP", "memory can be registered")
            args = struct.pack("=QQQQ", p.ours.base, PAGE, 0, rdma.READWRITE)
            need(outcome(rdma.send, p.a, b"x", (rdma.SOL_RDS, rdma.MAP, args)) == "EOPNOTSUPP", "with a message, too")
        else:
            cookie = p.theirs.register(0, MOST * PAGE)
            write, _place = rdma.transfer(cookie, (0, 8), [(p.ours.base, 8)], rdma.READWRITE | NOTIFY_ME, 1)
            read, _place2 = rdma.transfer(cookie, (0, 8), [(p.ours.base, 8)], NOTIFY_ME, 2)
            add = rdma.atomic(rdma.FETCH_ADD, cookie, p.ours.base, 0, [1], NOTIFY_ME, 3)
            found = [tried(p, x) for x in (write, read, add)]
            no, late, lost, yes = "EOPNOTSUPP", rdma.OTHER_ERROR, rdma.DROPPED, rdma.SUCCESS
            wanted = {"atomics": [yes, yes, no],
                      "initiator-depth": [yes, no, no],
                      # A work request has one anyway.
                      "sges": [yes, yes, yes if ATOMICS else no],
                      "masked-atomics": [yes, yes, yes],
                      "masks": [yes, yes, yes],
                      "refused-atomics": [yes, yes, lost],
                      "region-pages": [yes, yes, yes if ATOMICS else no],
                      # Soft-iWARP serves as many as the peer requests, whatever its limit is.
                      "responder-resources": [yes, late, late] if ATOMICS else [yes, yes, no]}[LACKING]
            need(found == wanted, f"{found}, not {wanted}")
            if LACKING in ("sges", "region-pages"):
                p.ours.scatter()
                for pieces in ([(i * PAGE, 100) for i in range(4)], [(100, 3 * PAGE)], [(100, MOST * PAGE)]):
                    p.write(b"", cookie, pieces, 4, rdma.SILENT)
                    need(rdma.status(p.a) == (4, yes), "memory here and there")
                    p.read(b"", cookie, pieces, 5, rdma.SILENT)
                    need(rdma.status(p.a) == (5, yes), "the same is read")
            if LACKING == "masked-atomics":
                refused(p, cookie, rdma.MASKED_FETCH_ADD, rdma.MASKED_COMPARE_SWAP)
            if LACKING == "masks":
                masked(p, cookie)
            if LACKING == "refused-atomics":
                refused_at_once(p, cookie, rdma.FETCH_ADD, rdma.COMPARE_SWAP)
            if LACKING == "region-pages":
                need(outcome(p.theirs.register, 100, MOST * PAGE) == "EMSGSIZE", "there is room for a ninth page")
        rdma.send(p.a, b"message")
        need(rdma.receive(p.b)[0] == b"message", "another message came")


if __name__ == "__main__":
    main()
