# SPDX-License-Identifier: GPL-2.0
"""Cases that raise counters.

Prints for each case how much its counters have risen, as one JSON line. The expected answers are in
tests/vm/test_counters.py. Addresses are those of cases.py.
"""

import ctypes
import select
import socket
import struct
import threading
import time

import rdma
from cases import IB, LOOP, PROT_NONE, case, main, outcome, protected
from rds import Sock, call, counters, sockaddr
from uffd import Uffd

SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
# No host has this address.
NOBODY = ("10.9.0.77", 4000)


def rises(before, *names):
    """Returns how much counters have risen."""
    now = counters()
    return {x: now[x] - before[x] for x in names}


def until_risen(before, *names):
    """Returns the same, but waits until all have risen: a softirq counts slightly later."""
    for _ in range(600):
        seen = rises(before, *names)
        if all(seen.values()):
            break
        time.sleep(0.05)
    return seen


def send_for(s, seconds, to):
    """Sends with this timeout, and returns the outcome."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("=qq", 0, int(seconds * 1e6)))
    return outcome(s.send, b"x", to)


@case
def copies():
    """Peeks at a part of a message, and then reads it."""
    out = {}
    for here, there in ((LOOP, LOOP), IB):
        with Sock((there, 4001), 60) as r, Sock((here, 4002)) as s:
            before = counters()
            s.send(bytes(1000), (there, 4001))
            r.recv(300, socket.MSG_PEEK)
            r.recv(2000)
            out[here] = rises(before, "copy_from_user", "copy_to_user", "recv_delivered", "recv_queued")
    return out


@case
def full_send_buffer():
    with Sock((IB[0], 0)) as s:
        while outcome(s.send, bytes(20000), NOBODY, socket.MSG_DONTWAIT) == 20000:
            pass
        before = counters()
        told = [outcome(s.send, b"x", NOBODY, socket.MSG_DONTWAIT), send_for(s, 0.1, NOBODY)]
        return [told, rises(before, "send_queue_full")]


@case
def full_receiver():
    """Sends to a full receiver, and has it send a ping whose pong is dropped."""
    to = (IB[1], 4001)
    with Sock() as r, Sock((IB[0], 4002)) as s:
        r.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        r.bind(*to)
        before = counters()
        while (told := outcome(s.send, bytes(20000), to, socket.MSG_DONTWAIT)) != "ENOBUFS":
            if told == "EAGAIN":
                select.select([], [s], [])
        maps = until_risen(before, "cong_update_queued", "cong_update_received")
        before = counters()
        told = [outcome(s.send, b"x", to, socket.MSG_DONTWAIT), send_for(s, 0.1, to)]
        held = rises(before, "cong_send_error", "cong_send_blocked")
        # The pong would be for the full port.
        r.send(b"", (IB[0], 0))
        return [{x: n > 0 for x, n in maps.items()}, told, held, until_risen(before, "send_pong_dropped")]


@case
def closed_amid_a_send():
    """Closes the receiver while the message for it is being copied."""
    memory, sent = Uffd(), []
    with Sock((LOOP, 4002)) as s:
        r = Sock((LOOP, 4001))
        before = counters()
        sender = threading.Thread(target=lambda: sent.append(outcome(
            call, "sendto", s.fileno(), ctypes.c_void_p(memory.at), 100, 0, sockaddr(LOOP, 4001), 16)))
        sender.start()
        memory.wait()
        r.sock.close()
        memory.fill()
        sender.join()
        return [sent, rises(before, "recv_drop_dead_sock")]


@case
def closed_unread():
    """Closes a socket that has unread messages."""
    with Sock((LOOP, 4002)) as s, Sock((LOOP, 4001)) as r:
        for _ in range(3):
            s.send(b"text", (LOOP, 4001))
        r.recv()
        before = counters()
    return rises(before, "recv_drop_closed", "recv_drop_dead_sock")


@case
def operations():
    """A write, a read into two pieces, each kind of atomic operation, and some whose messages
    cannot be copied."""
    every_bit = (1 << 64) - 1
    with rdma.Pair(4) as p:
        cookie = p.theirs.register(0, 8192)
        before = counters()
        p.write(b"", cookie, [(0, 5000)], 1)
        rdma.status(p.a)
        written = rises(before, "send_rdma", "send_rdma_bytes", "recv_rdma_bytes")
        before = counters()
        p.read(b"", cookie, [(0, 3000), (4096, 96)], 2)
        rdma.status(p.a)
        read = rises(before, "send_rdma", "send_rdma_bytes", "recv_rdma_bytes")
        before = counters()
        for kind, numbers in ((rdma.FETCH_ADD, [1]), (rdma.COMPARE_SWAP, [1, 2]), (rdma.MASKED_FETCH_ADD, [1, 0]),
                              (rdma.MASKED_COMPARE_SWAP, [1, 2, every_bit, every_bit])):
            rdma.send(p.a, b"", rdma.atomic(kind, cookie, p.ours.base, 0, numbers, rdma.NOTIFY_ME, kind))
            rdma.status(p.a)
        changed = rises(before, "ib_atomic_fadd", "ib_atomic_cswp", "send_rdma")
        before, (nothing, _) = counters(), protected(PROT_NONE)
        add = rdma.atomic(rdma.FETCH_ADD, cookie, p.ours.base, 0, [1], rdma.NOTIFY_ME)
        told = [outcome(p.write, nothing, cookie, [(0, 10)], 3), outcome(p.read, nothing, cookie, [(0, 10)], 3),
                outcome(rdma.send, p.a, nothing, add)]
        return [written, read, changed, told, rises(before, "send_rdma", "send_rdma_bytes", "recv_rdma_bytes",
                                                    "ib_atomic_fadd")]


@case
def full_ring():
    """Sends more frames than a send queue takes, on a slow link.

    Messages go in the other direction meanwhile: their acknowledgements need room in that queue,
    too.
    """
    (left, right), count, few = IB, 400, 40
    with Sock((left, 4001), 120) as a, Sock((right, 4002), 120) as b:
        for s in (a, b):
            s.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 16 << 20)
            s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
        # The connection is up after this message.
        a.send(b"first", (right, 4002))
        b.recv(10)
        before = counters()
        for _ in range(count):
            a.send(bytes(5000), (right, 4002))
        for _ in range(few):
            b.send(bytes(1000), (left, 4001))
        for _ in range(count):
            b.recv(10)
        for _ in range(few):
            a.recv(10)
        return until_risen(before, "ib_tx_ring_full", "ib_ack_send_delayed", "ib_ack_send_piggybacked",
                           "send_ack_required", "recv_ack_required")


@case
def both_connect():
    """Both ends request a connection before the other's request has arrived, on a slow link.

    Returns how often one of them had to yield.
    """
    with Sock((IB[0], 4001), 60) as warm, Sock((IB[1], 4002), 60) as up:
        warm.send(b"x", (IB[1], 4002))
        up.recv(10)
    for tos in range(91, 111):
        with Sock((IB[0], 4001), 60) as a, Sock((IB[1], 4002), 60) as b:
            a.set_tos(tos)
            b.set_tos(tos)
            before = counters()
            a.send(b"x", (IB[1], 4002))
            b.send(b"x", (IB[0], 4001))
            a.recv(10)
            b.recv(10)
            seen = rises(before, "ib_connect_raced")
        # They do not always request it at the same time.
        if any(seen.values()):
            break
    return seen


if __name__ == "__main__":
    main()
