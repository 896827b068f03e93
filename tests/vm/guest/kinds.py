# SPDX-License-Identifier: GPL-2.0
"""kinds.py ATOMICS FOLDER CASE...: kinds of memory, registered for a peer and used by operations.

ATOMICS is 1 if the devices have them. FOLDER is on a file system that must be notified of each page
that is written, as file systems on disks must.
"""

import contextlib
import ctypes
import glob
import mmap
import os
import random
import socket
import struct
import sys
import tempfile

import rdma
from cases import need, outcome, play
from rdma import NOTIFY_ME, READWRITE, SILENT, Pair, unpinned
from rds import call, libc

ATOMICS, FOLDER = sys.argv[1] == "1", sys.argv[2]
PAGE = 4096
SIZE = 16 * PAGE
NONE, READ, WRITE = 0, mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE
SHARED, PRIVATE, ANONYMOUS = mmap.MAP_SHARED, mmap.MAP_PRIVATE, mmap.MAP_ANONYMOUS
HUGETLB, HUGE = 0x40000, 2 << 20
MADV_HUGEPAGE = 14
MEMFD_SECRET = 447
SOL_PACKET, PACKET_RX_RING = 263, 5
libc.mmap.restype = ctypes.c_void_p


def pattern(size, seed):
    return random.Random(seed).randbytes(size)


class Area:
    """Memory of a program, and the part of it that is used."""

    def __init__(self, flags, fd=-1, prot=WRITE, size=SIZE):
        self.size = size
        self.base = libc.mmap(None, ctypes.c_size_t(size), prot, flags, fd, ctypes.c_long(0))
        if self.base == ctypes.c_void_p(-1).value:
            number = ctypes.get_errno()
            raise OSError(number, f"mmap: {os.strerror(number)}")
        # Neither the start nor the end is at a page boundary.
        self.length = min(size, 1 << 20) - PAGE - 200
        self.start = (size - self.length) // 2 // 8 * 8
        self.fresh = bytes(self.length)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        call("munmap", ctypes.c_void_p(self.base), ctypes.c_size_t(self.size))

    @property
    def address(self):
        return self.base + self.start

    def get(self):
        return ctypes.string_at(self.address, self.length)

    def put(self, data):
        ctypes.memmove(self.address, data, len(data))

    def protect(self, prot):
        call("mprotect", ctypes.c_void_p(self.base), ctypes.c_size_t(self.size), prot)


def anonymous():
    return Area(PRIVATE | ANONYMOUS)


@contextlib.contextmanager
def mapped(fd, flags, prot=WRITE):
    """Yields a mapped file, which is closed at the end.

    If the mapping is shared, the file must then have the bytes of the memory.
    """
    try:
        before = os.pread(fd, SIZE, 0)
        with Area(flags, fd, prot) as area:
            area.fresh = before[area.start:area.start + area.length]
            yield area
            after = os.pread(fd, SIZE, 0)
            if flags == SHARED:
                need(after[area.start:area.start + area.length] == area.get(), "the file has other bytes than the memory")
            else:
                need(after == before, "the file has changed")
    finally:
        os.close(fd)


def memfd():
    fd = os.memfd_create("kinds")
    os.ftruncate(fd, SIZE)
    return fd


def filled(fd):
    os.pwrite(fd, pattern(SIZE, 77), 0)
    return fd


def in_folder():
    fd, path = tempfile.mkstemp(dir=FOLDER)
    os.unlink(path)
    return filled(fd)


def shared():
    return mapped(memfd(), SHARED)


def private():
    return mapped(filled(memfd()), PRIVATE)


def private_of_disk():
    return mapped(in_folder(), PRIVATE)


@contextlib.contextmanager
def packet_ring():
    """Yields memory of the kernel, allocated page by page."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as ring:
        ring.setsockopt(SOL_PACKET, PACKET_RX_RING, struct.pack("=IIII", SIZE, 1, PAGE, SIZE // PAGE))
        with Area(SHARED, ring.fileno()) as area:
            area.fresh = area.get()
            yield area


def end(p, token):
    found = rdma.status(p.a)
    need(found == (token, rdma.SUCCESS), f"{token}: {found}")


def transfer(p, cookie, area, flags, token):
    """Starts an operation of p.a that uses this memory."""
    control, _place = rdma.transfer(cookie, (0, area.length), [(area.address, area.length)],
                                    flags | NOTIFY_ME | SILENT, token)
    rdma.send(p.a, b"", control)


def brought(p, cookie, length):
    """Returns the bytes that a peer reads from memory that p.b has registered."""
    p.read(b"", cookie, [(0, length)], 1, SILENT)
    end(p, 1)
    return p.ours.pages[:length]


def written(p, cookie, area, seed):
    """Writes as a peer to memory that p.b has registered."""
    data = pattern(area.length, seed)
    p.ours.fill(0, data)
    p.write(b"", cookie, [(0, area.length)], 2, SILENT)
    end(p, 2)
    need(area.get() == data, "what the peer has written")


def offered(p, area):
    """Reads and writes the memory as a peer, and as the program."""
    cookie = rdma.register(p.b, area.address, area.length)
    need(brought(p, cookie, area.length) == area.fresh, "what was there first")
    written(p, cookie, area, 1)
    data = pattern(area.length, 2)
    area.put(data)
    need(brought(p, cookie, area.length) == data, "what the program has written")
    if ATOMICS:
        add(p, cookie, p.ours.base, 8)
        old, new = (struct.unpack_from("=Q", x, 8)[0] for x in (data, area.get()))
        need(new == (old + 5) % (1 << 64), "the sum")
        need(struct.unpack_from("=Q", p.ours.pages)[0] == old, "what was there before")
    p.theirs.free(cookie, rdma.INVALIDATE)


def add(p, cookie, address, at):
    rdma.send(p.a, b"", rdma.atomic(rdma.FETCH_ADD, cookie, address, at, [5], NOTIFY_ME | SILENT, 3))
    end(p, 3)


def only_read(p, area):
    """Registers memory that a peer may only read. It reads what the program writes later."""
    cookie = rdma.register(p.b, area.address, area.length, 0)
    need(brought(p, cookie, area.length) == area.fresh, "what was there first")
    data = pattern(area.length, 3)
    area.put(data)
    need(brought(p, cookie, area.length) == data, "what the program has written")
    p.theirs.free(cookie, rdma.INVALIDATE)


def source(p, area):
    cookie = p.theirs.register(0, area.length)
    for token, data in enumerate((area.fresh, pattern(area.length, 4))):
        if token:
            area.put(data)
        transfer(p, cookie, area, READWRITE, token)
        end(p, token)
        need(p.theirs.pages[:area.length] == data, "what was written")
    p.theirs.free(cookie, rdma.INVALIDATE)


def sink(p, area):
    cookie = p.theirs.register(0, area.length)
    data = pattern(area.length, 5)
    p.theirs.fill(0, data)
    transfer(p, cookie, area, 0, 1)
    end(p, 1)
    need(area.get() == data, "what was read")
    if ATOMICS:
        add(p, cookie, area.address, 8)
        need(area.get()[:8] == data[8:16], "what was there before")
    p.theirs.free(cookie, rdma.INVALIDATE)


def used(*kinds):
    """Runs each use first on memory that was not touched before, and on memory that was only read.
    """
    for kind in kinds:
        for use in (offered, only_read, source, sink):
            for looked in (False, True):
                with Pair(257) as p, kind() as area:
                    try:
                        need(not looked or area.get() == area.fresh, "what it has")
                        use(p, area)
                    except AssertionError as e:
                        raise AssertionError(f"{kind.__name__}, {use.__name__}{', looked at' * looked}: {e}") from e


def huge_private():
    return Area(PRIVATE | ANONYMOUS | HUGETLB, size=2 * HUGE)


def huge_shared():
    return Area(SHARED | ANONYMOUS | HUGETLB, size=2 * HUGE)


def advised():
    """Returns memory whose pages become huge when they are touched.

    The used part ends in the middle of one.
    """
    area = Area(PRIVATE | ANONYMOUS, size=2 * HUGE)
    call("madvise", ctypes.c_void_p(area.base), ctypes.c_size_t(area.size), MADV_HUGEPAGE)
    area.start = -area.base % HUGE
    return area


@contextlib.contextmanager
def transparent():
    with advised() as area:
        yield area
        need(huge_kilobytes(area) > 0, "no page of it was huge")


def huge_kilobytes(area):
    """Returns how many KiB of it are in transparent huge pages."""
    with open("/proc/self/smaps", encoding="ascii") as f:
        inside = False
        for line in f:
            first = line.split()[0]
            if "-" in first:
                begin, end_ = (int(x, 16) for x in first.split("-"))
                inside = begin <= area.address < end_
            elif inside and first == "AnonHugePages:":
                return int(line.split()[1])
    return 0


def split(p, area):
    """Splits the mapping of a huge page while a peer may use it."""
    cookie = rdma.register(p.b, area.address, area.length)
    page = ctypes.c_void_p((area.address + area.length // 2) // PAGE * PAGE)
    for prot in (READ, WRITE):
        call("mprotect", page, ctypes.c_size_t(PAGE), prot)
    need(huge_kilobytes(area) == 0, "the page is still huge")
    written(p, cookie, area, 8)
    p.theirs.free(cookie, rdma.INVALIDATE)


def free_huge_pages():
    with open("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", encoding="ascii") as f:
        return int(f.read())


def huge():
    """Uses huge pages that were reserved, and transparent huge pages."""
    before, free = (rdma.pins(), rdma.charged()), free_huge_pages()
    used(huge_private, huge_shared, transparent)
    with Pair(257) as p, advised() as area:
        area.put(pattern(area.length, 9))
        need(huge_kilobytes(area) > 0, "no page of it is huge")
        split(p, area)
    unpinned(*before)
    need(free_huge_pages() == free, "huge pages are missing")


def writable():
    used(anonymous, shared, private, private_of_disk, packet_ring)


def tried(p, area):
    """Returns the outcome of each use of memory.

    The uses are: registered to be read, registered to be written, source of a write, target of a
    read, and maybe target of an atomic.
    """
    theirs = p.theirs.register(0, area.length)
    found = []
    for flags in (0, READWRITE):
        cookie = outcome(rdma.register, p.b, area.address, area.length, flags)
        if isinstance(cookie, int):
            need(brought(p, cookie, area.length) == area.fresh, "what the peer reads")
            p.theirs.free(cookie, rdma.INVALIDATE)
        found.append(cookie if isinstance(cookie, str) else "ok")
    for flags in (READWRITE, 0):
        told = outcome(transfer, p, theirs, area, flags, 1)
        if told == "ok":
            end(p, 1)
            need(flags == 0 or p.theirs.pages[:area.length] == area.fresh, "what was written")
        found.append(told)
    if ATOMICS:
        last = (area.address + area.length) // 8 * 8 - 8
        found.append(outcome(add, p, theirs, last, 0))
    p.theirs.free(theirs, rdma.INVALIDATE)
    return found


def expect(kind, *wanted):
    """Requires the outcomes of tried().

    The last one counts twice if there are atomic operations.
    """
    before = rdma.pins(), rdma.charged()
    with Pair(257) as p, kind() as area:
        found = tried(p, area)
    need(found == [*wanted, *[wanted[-1]] * ATOMICS], f"{kind.__name__}: {found}")
    unpinned(*before)


@contextlib.contextmanager
def protected():
    with anonymous() as area:
        area.fresh = pattern(area.length, 6)
        area.put(area.fresh)
        area.protect(READ)
        yield area


def shared_to_read():
    return mapped(in_folder(), SHARED, READ)


def private_to_read():
    return mapped(in_folder(), PRIVATE, READ)


def shared_of_disk():
    return mapped(in_folder(), SHARED)


def read_only():
    """Uses memory that is read-only, or whose file system must be notified of each write."""
    for kind in (protected, shared_to_read, private_to_read, shared_of_disk):
        expect(kind, "ok", "EFAULT", "ok", "EFAULT")


def no_access():
    return Area(PRIVATE | ANONYMOUS, prot=NONE)


@contextlib.contextmanager
def beyond_the_end():
    """Yields memory of a file that ends after the first page."""
    fd = memfd()
    with Area(SHARED, fd) as area:
        os.ftruncate(fd, PAGE)
        os.close(fd)
        yield area


@contextlib.contextmanager
def device_memory():
    """Yields registers of the PCI device that has most of them."""
    path = max(glob.glob("/sys/bus/pci/devices/*/resource[0-9]"), key=os.path.getsize)
    with open(path, "rb+", buffering=0) as f, Area(SHARED, f.fileno(), size=os.path.getsize(path)) as area:
        yield area


@contextlib.contextmanager
def secret():
    fd = call("syscall", MEMFD_SECRET, 0)
    os.ftruncate(fd, SIZE)
    with Area(SHARED, fd) as area:
        area.put(b"secret")
        os.close(fd)
        yield area


def refused():
    for kind in (no_access, beyond_the_end, device_memory, secret):
        expect(kind, *["EFAULT"] * 4)


def truncated():
    """Truncates a file while peers use its pages.

    The pages are not reused, and the file gets new ones.
    """
    with Pair(16) as p:
        fd = memfd()
        with Area(SHARED, fd) as area:
            cookie = rdma.register(p.b, area.address, area.length)
            os.ftruncate(fd, 0)
            os.ftruncate(fd, SIZE)
            data = pattern(area.length, 7)
            p.ours.fill(0, data)
            p.write(b"", cookie, [(0, area.length)], 2, SILENT)
            end(p, 2)
            need(brought(p, cookie, area.length) == data, "what the peer has written")
            need(area.get() == bytes(area.length), "what the file has now")
        os.close(fd)


if __name__ == "__main__":
    play(globals(), sys.argv[3:])
