# SPDX-License-Identifier: GPL-2.0
"""Cases for bugs.py: memory regions, RDMA and atomic operations."""

import ctypes
import mmap
import socket
import struct
import threading

import rdma
from bug_races import at_once
from cases import IB, PROT_NONE, PROT_READ, case, each, need, outcome, protected
from rdma import A, B, INVALIDATE, NOTIFY_ME, READWRITE, SILENT, USE_ONCE, Pair, unpinned
from rds import Sock
from reset import reset

PAGE = mmap.PAGESIZE
ATOMIC_KINDS = (rdma.FETCH_ADD, rdma.COMPARE_SWAP, rdma.MASKED_FETCH_ADD, rdma.MASKED_COMPARE_SWAP)
SOL_PACKET, PACKET_RX_RING = 263, 5


def works(p):
    """Requires that an operation and a message succeed."""
    works_after(p)


def works_after(p, *stray):
    """Requires that an operation and a message succeed, after messages that may have arrived."""
    cookie = p.theirs.register(0, PAGE)
    p.write(b"x", cookie, [(0, 100)], 4711)
    while (data := rdma.receive(p.b)[0]) != b"x":
        need(data in stray, f"{data} came")
    need(rdma.status(p.a) == (4711, rdma.SUCCESS), "the operation did not go well")
    p.theirs.free(cookie, INVALIDATE)


@case
def h13_no_memory_to_transfer():
    """CVE-2018-5332: operations on none of the program's memory that are valid otherwise."""
    with Pair(4) as p:
        cookie = p.theirs.register(0, 4096)

        def transfer(remote, areas):
            control, _place = rdma.transfer(cookie, (0, remote), [(p.ours.base + at, n) for at, n in areas],
                                            READWRITE | NOTIFY_ME, 1)
            return rdma.send(p.a, b"x", control)

        told = each(transfer, {"no piece": (0, []), "a piece of no bytes": (0, [(0, 0)]),
                               "no piece, but bytes": (100, []), "no bytes, but bytes": (100, [(0, 0)]),
                               "several of no bytes": (0, [(0, 0), (100, 0)])})
        need(set(told.values()) == {"EINVAL"}, f"told: {told}")
        need(outcome(p.b.recv, 10, socket.MSG_DONTWAIT) == "EAGAIN", "a message of a refused operation came")
        # The socket still works.
        p.write(b"y", cookie, [(0, 100)], 2)
        need(rdma.status(p.a) == (2, rdma.SUCCESS), "the next operation")
        need(rdma.receive(p.b)[0] == b"y", "the next message")


@case
def h14_atomics_without_memory():
    """CVE-2018-5333: the memory for the result of an atomic is missing, protected, or not aligned.
    """
    with Pair(4) as p:
        cookie = p.theirs.register(0, PAGE)
        _none, none = protected(PROT_NONE)
        _read, read = protected(PROT_READ)
        for kind in ATOMIC_KINDS:
            for at in (0, 1, 8, p.ours.base + 1, p.ours.base + 4, none, read, 0xFFFF888000100000, 2**64 - 8):
                for _ in range(20):
                    told = outcome(rdma.send, p.a, b"x", rdma.atomic(kind, cookie, at, 0, [1, 0, 0, 0], NOTIFY_ME))
                    need(told in ("EFAULT", "EOPNOTSUPP"), f"kind {kind} at {at:#x}: {told}")
        works(p)


@case
def h35_cookie_to_where_nobody_writes():
    """CVE-2026-46053: the kernel cannot write the cookie of a region to the program's memory."""
    with Pair(4) as p:
        for protection in (PROT_NONE, PROT_READ):
            _memory, at = protected(protection)
            args = struct.pack("=QQQQ", p.ours.base, PAGE, at, READWRITE)
            for _ in range(200):
                told = outcome(p.a.set_raw, rdma.GET_MR, args)
                need(told == "EFAULT", f"registered: {told}")
                # The peer gets the cookie in a message, which works.
                told = outcome(rdma.send, p.a, b"x", (rdma.SOL_RDS, rdma.MAP, args))
                need(told in (1, "EFAULT"), f"sent: {told}")
                if told == 1:
                    rdma.receive(p.b)
        works(p)


@case
def h45_list_that_changes():
    """CVE-2022-21385: another thread changes the list of memory while the kernel reads it."""
    with Pair(64) as p:
        cookie = p.theirs.register(0, 64 * PAGE)
        good = struct.pack("=QQ", p.ours.base, 100) * 64
        bad = struct.pack("=QQ", p.ours.base, 60 * PAGE) * 63 + struct.pack("=QQ", 8, 2**64 - 1)
        place = ctypes.create_string_buffer(good, len(good))
        raw = struct.pack("=QQQQQQQ", cookie, 0, 6400, ctypes.addressof(place), 64, READWRITE | NOTIFY_ME | SILENT, 1)
        over = threading.Event()

        def change():
            while not over.is_set():
                ctypes.memmove(place, bad, len(bad))
                ctypes.memmove(place, good, len(good))

        def send():
            try:
                for _ in range(100):
                    told = outcome(rdma.send, p.a, b"", (rdma.SOL_RDS, rdma.ARGS, raw))
                    need(told in (0, "EINVAL", "EFAULT"), f"{told}")
                    if told == 0:
                        need(rdma.status(p.a) == (1, rdma.SUCCESS), "its end")
            finally:
                over.set()

        at_once(change, send)
        works(p)


@case
def h62_region_that_ends_three_times():
    """Ends a region in three ways at once: its program frees it, the peer uses it, and its socket
    is closed."""
    for _ in range(20):
        with Pair(4) as p:
            cookie = p.theirs.register(0, PAGE, READWRITE | USE_ONCE)
            at_once(lambda p=p, cookie=cookie: p.write(b"x", cookie, [(0, 100)], 1),
                    lambda p=p, cookie=cookie: outcome(p.theirs.free, cookie, INVALIDATE),
                    lambda p=p: outcome(p.theirs.free, 0),
                    p.b.sock.close)
            need(rdma.status(p.a)[0] == 1, "its end")
    with Pair(4) as p:
        works(p)


def one_piece(size):
    """Returns memory that does not consist of single pages: a packet ring with blocks of 64 KiB."""
    ring = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    block = 1 << 16
    ring.setsockopt(SOL_PACKET, PACKET_RX_RING, struct.pack("=IIII", block, size // block, 2048, size // 2048))
    memory = mmap.mmap(ring.fileno(), size, mmap.MAP_SHARED)
    return ring, memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


@case
def h67_pages_that_are_merged():
    """Uses memory that has fewer pieces than pages, as behind an IOMMU.

    All of it must be usable, for peers and for the program itself.
    """
    size = 1 << 20
    with Pair(size // PAGE + 1) as p:
        _ring, memory, at = one_piece(size)
        for start, length in ((0, size), (100, size - 200), (PAGE, 1 << 16)):
            data = bytes((n // 64 + start) % 251 for n in range(length))
            p.ours.fill(0, data)
            cookie = rdma.register(p.b, at + start, length)
            p.write(b"x", cookie, [(0, length)], 1)
            need(rdma.receive(p.b)[0] == b"x", "another message came")
            need(rdma.status(p.a) == (1, rdma.SUCCESS), "the end of the write")
            need(memory[start:start + length] == data, f"{length} bytes at {start}: what was written")
            p.theirs.free(cookie, INVALIDATE)
            # The other direction: the source is the packet ring.
            cookie = p.theirs.register(0, length)
            control, _place = rdma.transfer(cookie, (0, length), [(at + start, length)], READWRITE | NOTIFY_ME, 2)
            rdma.send(p.a, b"y", control)
            need(rdma.receive(p.b)[0] == b"y", "another message came")
            need(rdma.status(p.a) == (2, rdma.SUCCESS), "the end of the other write")
            need(p.theirs.pages[:length] == data, f"{length} bytes at {start}: what was written from there")
            p.theirs.free(cookie, INVALIDATE)


@case
def h86_reset_amid_operations():
    """A connection is reset while operations are in flight and regions are held.

    The reset waits for neither, and sleeps only where it may.
    """
    for number in range(5):
        with Pair() as p:
            p.ours.register(0, PAGE)
            cookie = p.theirs.register(0, 1 << 20)
            for token in range(4):
                p.write(b"x", cookie, [(0, 1 << 20)], token)
            reset(*IB)
            found = []
            while len(found) < 4:
                found += rdma.ends(p.a)
            need(sorted(token for token, _ in found) == list(range(4)), f"{number}: {found}")
            # An operation that soft-iWARP abandoned halfway has an error of its own.
            need({how for _, how in found} <= {rdma.SUCCESS, rdma.DROPPED, rdma.OTHER_ERROR}, f"{number}: {found}")
            # The region is valid on the next connection.
            for token in range(10, 20):
                p.write(b"last", cookie, [(0, 100)], token)
                found, how = rdma.status(p.a)
                need(found == token, f"{found}: {how}, not of {token}")
                if how == rdma.SUCCESS:
                    break
            else:
                raise AssertionError(f"{number}: none goes well after the reset")


@case
def h90_socket_that_goes_before_its_regions():
    """A socket is closed while messages with its regions are in flight, and the connection is
    reset."""
    for _ in range(20):
        with Pair(4) as p:
            args = struct.pack("=QQQQ", p.ours.base, PAGE, 0, READWRITE)
            for _ in range(4):
                rdma.send(p.a, b"x", (rdma.SOL_RDS, rdma.MAP, args))
            cookie = p.theirs.register(0, PAGE)
            p.write(b"x", cookie, [(0, 100)], 1)
            p.a.sock.close()
            reset(*IB)
            p.b.sock.close()
    with Pair(4) as p:
        works(p)


@case
def h92_pages_are_given_back():
    """As many pages are pinned at the end as at the beginning."""
    with Pair(4) as p:
        for number in range(1000):
            p.ours.free(p.ours.register(number % PAGE, 2 * PAGE), INVALIDATE if number % 2 else 0)
        p.ours.free(0)
        unpinned(p.pins)
        works(p)


@case
def l12_registration_by_who_is_not_bound_yet():
    """One thread binds to ports that are in use, and another one registers memory."""
    memory = mmap.mmap(-1, PAGE)
    args = struct.pack("=QQQQ", ctypes.addressof(ctypes.c_char.from_buffer(memory)), PAGE, 0, READWRITE)
    with Sock(A):
        for _ in range(30):
            with Sock() as s:
                def bind(s=s):
                    for _ in range(20):
                        need(outcome(s.bind, *A) == "EADDRINUSE", "there are two at a port")

                def register(s=s):
                    for _ in range(20):
                        told = outcome(s.set_raw, rdma.GET_MR, args)
                        need(told == "ENOTCONN", f"registered: {told}")

                at_once(bind, register)


@case
def l47_key_of_another_program():
    """A program that knows the key of another program's memory can do what that was registered for,
    and no more.

    It can neither end the region nor send its cookie (Documentation/rdma.md, "Who can use a
    region").
    """
    with Pair(4) as p, rdma.connected((IB[1], 4003), A) as other:
        p.ours.fill(0, b"forged" * 100)
        cookie = p.theirs.register(0, PAGE, READWRITE | USE_ONCE)
        there = (rdma.SOL_RDS, rdma.DEST, struct.pack("=Q", cookie))
        need(outcome(rdma.send, other, b"x", there) == "EINVAL", "another one sends the cookie")
        free = struct.pack("=QQ", cookie, INVALIDATE)
        need(outcome(other.set_raw, rdma.FREE_MR, free) == "EINVAL", "another one frees the memory")
        # The message goes to the other socket, which does not have the region.
        p.a.connect(IB[1], 4003)
        p.write(b"used", cookie, [(0, 100)], 1)
        need(rdma.receive(other)[0] == b"used", "another message came")
        need(rdma.status(p.a) == (1, rdma.SUCCESS), "the end of the write")
        need(p.theirs.pages[:100] == p.ours.pages[:100], "what was written")
        p.a.connect(*B)
        p.theirs.free(cookie, INVALIDATE)
        p.theirs.make_read_only(PAGE, PAGE)
        readable = p.theirs.register(PAGE, PAGE, 0)
        p.write(b"never", readable, [(0, 100)], 2)
        token, how = rdma.status(p.a)
        need(token == 2 and how in (rdma.REMOTE_ERROR, rdma.DROPPED), f"{token}: {how}")
        need(p.theirs.pages[PAGE:PAGE + 100] == bytes(100), "what is only to be read was written")
        # A message of an operation that was dropped may have arrived.
        works_after(p, b"never")
