# SPDX-License-Identifier: GPL-2.0
"""Calls of programs that use memory of peers, or let peers use theirs: see rds.h and rds-rdma(7).
"""

import ctypes
import mmap
import socket
import struct
import time

from cases import IB, PROT_READ, eventually
from rds import SOL_RDS, Sock, call, info, sockaddr

# The two ends on one machine.
A, B = (IB[0], 4001), (IB[1], 4002)

GET_MR, FREE_MR, GET_MR_FOR_DEST = 2, 3, 7
ARGS, DEST, MAP, STATUS, FETCH_ADD, COMPARE_SWAP, MASKED_FETCH_ADD, MASKED_COMPARE_SWAP = 1, 2, 3, 4, 6, 7, 8, 9
READWRITE, FENCE, INVALIDATE, USE_ONCE, DONTWAIT, NOTIFY_ME, SILENT = 1, 2, 4, 8, 0x10, 0x20, 0x40
SUCCESS, REMOTE_ERROR, CANCELED, DROPPED, OTHER_ERROR = range(5)


def register(sock, address, length, flags=READWRITE, dest=None):
    """Returns the cookie of memory at an address, maybe for a destination."""
    cookie = ctypes.c_ulonglong()
    raw = struct.pack("=QQQQ", address, length, ctypes.addressof(cookie), flags)
    if dest:
        sock.set_raw(GET_MR_FOR_DEST, sockaddr(*dest).ljust(128, b"\0") + raw)
    else:
        sock.set_raw(GET_MR, raw)
    return cookie.value


class Memory:
    """Pages, and a socket that may register some of them."""

    def __init__(self, sock, pages):
        self.sock = sock
        self.pages = mmap.mmap(-1, pages * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.pages))

    def register(self, at, length, flags=READWRITE):
        """Registers a part of the pages and returns the cookie."""
        return register(self.sock, self.base + at, length, flags)

    def free(self, cookie, flags=0):
        self.sock.set_raw(FREE_MR, struct.pack("=QQ", cookie, flags))

    def make_read_only(self, at, length):
        """Makes these pages read-only."""
        call("mprotect", ctypes.c_void_p(self.base + at), ctypes.c_size_t(length), PROT_READ)

    def scatter(self):
        """Touches all pages for the first time, in an order that scatters them over many pieces."""
        count = len(self.pages) // mmap.PAGESIZE
        for page in sorted(range(count), key=lambda page: (page % 7, page)):
            self.pages[page * mmap.PAGESIZE] = 1

    def fill(self, at, data):
        self.pages[at:at + len(data)] = data


def connected(here, there, timeout=60):
    """Returns a socket at an address, connected to another one."""
    s = Sock(here, timeout)
    s.connect(*there)
    return s


def transfer(cookie, remote, areas, flags, token=0):
    """Returns a control message for a write (flag READWRITE) or a read, and the list that it points
    to.

    `remote` and each of `areas` are address and bytes. The result must live until it is sent.
    """
    local = b"".join(struct.pack("=QQ", *area) for area in areas)
    place = ctypes.create_string_buffer(local, len(local))
    raw = struct.pack("=QQQQQQQ", cookie, *remote, ctypes.addressof(place), len(areas), flags, token)
    return (SOL_RDS, ARGS, raw), place


def atomic(kind, cookie, local, remote, numbers, flags, token=0):
    """Returns a control message for an atomic operation."""
    numbers = list(numbers) + [0] * (4 - len(numbers))
    return SOL_RDS, kind, struct.pack("=QQQQQQQQQ", cookie, local, remote, *numbers, flags, token)


def uek_atomic(kind, cookie, local, remote, value, compare, flags, token=0):
    """Returns a control message for an atomic operation, as programs for Oracle's kernel have it.
    """
    return SOL_RDS, kind, struct.pack("=QQQQQQQ", cookie, local, remote, value, compare, flags, token)


def send(sock, payload, *controls, flags=0):
    return sock.sock.sendmsg([payload], list(controls), flags)


def receive(sock, size=1 << 20):
    """Returns a message and its control messages by kind. Fails with ETIMEDOUT if none arrives."""
    data, controls, flags, _ = sock.sock.recvmsg(size, 1024)
    assert not flags & socket.MSG_CTRUNC, "there are more control messages"
    return data, [(kind, raw) for level, kind, raw in controls if level == SOL_RDS]


def settle(sock):
    """Waits until all that was sent is acknowledged: closing the socket earlier would cancel it."""
    host, port = sock.name()[:2]
    mine = socket.inet_aton(host), struct.pack("!H", port)
    # RDS_INFO_SEND_MESSAGES and RDS_INFO_RETRANS_MESSAGES.
    eventually("all is acknowledged", lambda: not any(
        (raw[12:16], raw[20:22]) == mine for table in (10003, 10004) for raw in info(table)), 120)


def ends(sock):
    """Returns (token, status) of operations that have ended, one or more."""
    data, controls = receive(sock)
    assert data == b"" and controls, f"{data!r} {controls}"
    found = []
    for kind, raw in controls:
        token, number, rest = struct.unpack("=Qii", raw)
        assert (kind, rest) == (STATUS, 0), f"{kind} {raw.hex()}"
        found.append((token, number))
    return found


def status(sock):
    """Returns (token, status) of the operation that has ended."""
    found, = ends(sock)
    return found


def pins():
    """Returns the number of pages that are pinned now."""
    with open("/proc/sys/vm/stat_refresh", "w", encoding="ascii") as f:
        f.write("1")
    with open("/proc/vmstat", encoding="ascii") as f:
        counts = dict(line.split() for line in f)
    return int(counts["nr_foll_pin_acquired"]) - int(counts["nr_foll_pin_released"])


def unpinned(count, own=None):
    """Waits until `count` pages are pinned, and `own` KiB of this program's memory are charged, if
    given."""
    end = time.monotonic() + 60
    while pins() != count or own not in (None, charged()):
        if time.monotonic() > end:
            raise AssertionError(f"{pins()} pages are pinned, {count} were; {charged()} KiB are charged, {own} were")
        time.sleep(0.01)


def charged():
    """Returns how many KiB of this program's memory are pinned, as the limit of locked memory
    counts."""
    with open("/proc/self/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmPin:"))


class Pair:
    """A socket that operates, its peer, and memory of both.

    At the end nothing may be pinned or charged.
    """

    def __init__(self, pages=300):
        self.pins, self.charged = pins(), charged()
        self.a, self.b = connected(A, B), connected(B, A)
        self.ours, self.theirs = Memory(self.a, pages), Memory(self.b, pages)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.a.sock.close()
        self.b.sock.close()
        if kind is None:
            unpinned(self.pins, self.charged)

    def transfer(self, payload, cookie, remote, areas, flags, token=0):
        control, _place = transfer(cookie, remote, [(self.ours.base + at, n) for at, n in areas], flags, token)
        return send(self.a, payload, control)

    def write(self, payload, cookie, areas, token, flags=0, at=0):
        size = sum(n for _, n in areas)
        return self.transfer(payload, cookie, (at, size), areas, READWRITE | NOTIFY_ME | flags, token)

    def read(self, payload, cookie, areas, token, flags=FENCE, at=0):
        size = sum(n for _, n in areas)
        return self.transfer(payload, cookie, (at, size), areas, NOTIFY_ME | flags, token)
