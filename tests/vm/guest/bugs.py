# SPDX-License-Identifier: GPL-2.0
"""Past defects of RDS: one case for each defect of the C implementation that a program can reach
through its sockets.

Prints one JSON line for each case: null, or the error. Cases h.. are defects that C RDS had, l..
those that it has. Addresses are those of cases.py.
"""

import ctypes
import mmap
import re
import socket
import struct
import subprocess
import tempfile
import threading

import bug_races  # noqa: F401  (more cases)
import bug_rdma  # noqa: F401  (and more)
import rdma
from bug_races import at_once, drain, fill, queued, short_of_room
from cases import CALL_TIMEOUT, ERRORS, IB, IB6, LOOP, LOOP6, case, main, need, outcome, page_before_nothing
from info import elsewhere, eventually
from rds import (MSG_ZEROCOPY, RDS_CANCEL_SENT_TO, SO_ZEROCOPY, SOL_RDS, Sock, call, counters, info, libc, msghdr, recvmsg,
                 sockaddr)
from reset import reset

KERNEL = 0xFFFF888000100000
ZEROCOPY_COOKIE, CONG_MONITOR = 12, 6
# The tables, and those that may be empty while one message waits to be sent and one to be read.
TABLES = (10000, 10001, 10003, 10004, 10005, 10006, 10008, 10011, 10012, 10013, 10014, 10015, 10017,
          10018, 10019, 10020, 10021)
RETRANS = (10004, 10013)
FAMILIES = (socket.AF_UNSPEC, socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_RDS, 0xFFFF)


def errors(results, *allowed):
    """Requires that all these calls failed with one of these errors."""
    wrong = {str(k): v for k, v in results.items() if v not in allowed}
    need(not wrong, f"answered {wrong}, not {' or '.join(allowed)}")


def send_control(s, kind, data, flags=0):
    """Sends to the peer to which the socket is connected."""
    return s.sock.sendmsg([b"abc"], [(SOL_RDS, kind, data)], flags)


@case
def h01_addresses_of_the_kernel():
    """CVE-2010-3904: memory must belong to the program; otherwise the call fails."""
    lengths = {"kernel": (KERNEL, 64), "wraps": (2**64 - 32, 64), "ends beyond": (2**47 - 4096 - 16, 8192)}
    raw = sockaddr(LOOP, 4001)
    with Sock((LOOP, 4001), CALL_TIMEOUT) as r, Sock((LOOP, 4002), CALL_TIMEOUT) as s:
        errors({name: outcome(call, "sendto", s.fileno(), ctypes.c_void_p(at), size, 0, raw, 16)
                for name, (at, size) in lengths.items()}, "EFAULT")
        for name, (at, size) in lengths.items():
            s.send(bytes(size), (LOOP, 4001))
            errors({name: outcome(call, "recv", r.fileno(), ctypes.c_void_p(at), size, 0)}, "EFAULT")
            outcome(r.recv, 10, socket.MSG_DONTWAIT)


@case
def h04_congestion_of_oneself():
    """CVE-2011-1023, CVE-2012-2372: a congestion map goes to the address that it describes."""
    for host in (LOOP, IB[0], LOOP6, IB6[0]):
        with short_of_room(host, 4001) as r, Sock((host, 4002), CALL_TIMEOUT) as s:
            sent, _ = fill(s, (host, 4001))
            need(sent, f"{host} takes nothing")
            for _ in range(sent):
                r.recv()
            need(s.send(b"x", (host, 4001)) == 1 and r.recv()[0] == b"x", f"{host} does not go on")


@case
def h06_name_of_nobody():
    """CVE-2012-3430: a receive that returns no message returns no sender."""
    def name(s, flags, room=0):
        memory, control = ctypes.create_string_buffer(b"\xaa" * 128, 128), ctypes.create_string_buffer(room or 1)
        header, _iov = msghdr(memory, 128, memory, 0, ctypes.addressof(control) if room else 0, room)
        told = outcome(call, "recvmsg", s.fileno(), header, flags)
        return told, struct.unpack_from("=I", header.raw, 8)[0], memory.raw

    def untouched(told):
        return told[2] == b"\xaa" * 128 and (told[1] == 0 or isinstance(told[0], str))

    with Sock((LOOP, 0)) as s:
        for flags in (0, socket.MSG_PEEK, socket.MSG_OOB):
            told = name(s, flags | socket.MSG_DONTWAIT)
            need(untouched(told), f"flags {flags:#x}: {told[:2]}")
        # The first congestion event that a monitor may get.
        s.set_raw(CONG_MONITOR, struct.pack("=i", 1))
        told = name(s, socket.MSG_DONTWAIT, 100)
        need(untouched(told), f"news: {told[:2]}")
    with queued(b"abc") as r:
        told = name(r, 0)
        need(told[1] == 16 and told[2][:4] == struct.pack("=HH", socket.AF_INET, socket.htons(4002)),
             f"a message: {told[:2]}")


@case
def h07_address_without_rdma():
    """CVE-2013-7339, CVE-2014-2678, CVE-2026-74563: the address belongs to a device without RDMA.
    """
    subprocess.run("ip link add bugs0 type dummy && ip addr add 10.77.0.1/24 dev bugs0 && "
                   "ip addr add fd77::1/64 dev bugs0 nodad && ip link set bugs0 up", shell=True, check=True)
    try:
        for address in (("10.77.0.1", 0), ("fd77::1", 0)):
            with Sock() as s, Sock() as pinned:
                pinned.pin("infiniband")
                errors({address: outcome(s.bind, *address), "pinned": outcome(pinned.bind, *address)},
                       "EADDRNOTAVAIL", "ENOPROTOOPT")
                need(s.name() == "unspec", f"{address} has stayed: {s.name()}")
        number, done, binds = socket.if_nametoindex("bugs0"), threading.Event(), []

        def bind_link_local():
            while not done.is_set():
                with Sock() as s:
                    told = outcome(s.bind, "fe80::77", 0, number)
                binds.append(told)

        def come_and_go():
            try:
                rounds = 0
                while rounds < 3 or len(binds) <= 10:
                    rounds += 1
                    for what in ("add", "del"):
                        more = ["nodad"] * (what == "add")
                        command = ["ip", "addr", what, "fe80::77/64", "dev", "bugs0", *more]
                        subprocess.run(command, check=True)
            finally:
                done.set()

        at_once(bind_link_local, come_and_go)
        errors(dict(enumerate(binds)), "EADDRNOTAVAIL")
    finally:
        subprocess.run("ip link del bugs0", shell=True, check=True)


@case
def h10_no_address():
    """CVE-2015-6937: a socket that is not bound cannot send."""
    with Sock() as s:
        told = {"to": outcome(s.send, b"x", (LOOP, 4001)), "to v6": outcome(s.send, b"x", (LOOP6, 4001))}
        s.connect(IB[1], 4001)
        told["connected"] = outcome(s.send, b"x")
        errors(told, "ENOTCONN")


@case
def h12_padding():
    """CVE-2016-5244, CVE-2019-16714, CVE-2026-52995: tables contain only what is meant for the
    reader.

    Connections that are not up have a row, too.
    """
    ends = socket.inet_aton(IB[0]) + socket.inet_aton("10.9.0.77")
    with Sock((IB[0], 4001)) as s, queued(b"abc"):
        s.send(b"x", ("10.9.0.77", 4001))
        for option in TABLES:
            for _ in range(100):
                seen = []
                for poison in (b"\xaa", b"\x55"):
                    size = ctypes.c_uint32(1 << 16)
                    memory = ctypes.create_string_buffer(poison * size.value, size.value)
                    each = libc.getsockopt(s.fileno(), SOL_RDS, option, memory, ctypes.byref(size))
                    need(each > 0, f"{option}: {each}")
                    seen.append(memory.raw[: size.value])
                need(seen[0] or option in RETRANS, f"{option} has no row")
                if seen[0] == seen[1]:
                    break
            else:
                # Numbers may change between the reads, but not each time.
                need(False, f"{option}: two reads differ each time")
        found = [raw for raw in info(10008) if raw[:8] == ends]
        need(len(found) == 1, f"{found} of a connection that is not up")
        row = found[0]
        need(not any(row[8:40]), f"a connection that is not up has identifiers: {row.hex()}")


@case
def h19_nowhere_for_control():
    """CVE-2021-47249: control messages have no room, or bad memory."""
    with queued(b"abcdef", 3, stamps=struct.pack("=i", 1), latency=b"\3\0\1\2") as r:
        for address in (8, KERNEL):
            told = outcome(recvmsg, r, 10, 1000, 0, address)
            need(told == "EFAULT", f"at {address:#x}: {told}")
        told = recvmsg(r, 10, 1)
        need(told == (b"abcdef", [], socket.MSG_CTRUNC), f"with room for a byte: {told}")
        left = drain(r)
        need(left == 2, f"{left} messages are left of 3, of which one was read")


@case
def h21_zero_copy():
    """CVE-2023-1078, CVE-2026-43494, CVE-2026-43502 and similar: zero-copy sends are refused.

    They keep no page, whatever the memory is.
    """
    _memory, end = page_before_nothing()
    iov = ctypes.create_string_buffer(struct.pack("=QQQQ", end - 4096, 4096, end, 4096))
    name = ctypes.create_string_buffer(sockaddr(LOOP, 4001))
    cookie = struct.pack("=QiiI4x", 20, SOL_RDS, ZEROCOPY_COOKIE, 1)
    with Sock((LOOP, 4001)), Sock((LOOP, 4002)) as s:
        s.connect(LOOP, 4001)
        outcome(s.setsockopt, socket.SOL_SOCKET, SO_ZEROCOPY, 1)
        for control in (b"", cookie, cookie[:18], cookie * 2):
            room = ctypes.create_string_buffer(control or b"\0")
            header = ctypes.create_string_buffer(struct.pack(
                "=QI4xQQQQi4x", ctypes.addressof(name), 16, ctypes.addressof(iov), 2,
                ctypes.addressof(room) if control else 0, len(control), 0))
            errors({control: outcome(call, "sendmsg", s.fileno(), header, MSG_ZEROCOPY)}, "EOPNOTSUPP")
        for _ in range(200):
            errors({"good": outcome(send_control, s, ZEROCOPY_COOKIE, b"abcd", MSG_ZEROCOPY)}, "EOPNOTSUPP")


@case
def h23_positions_of_traces():
    """CVE-2024-23849: the position of a trace does not exist."""
    with Sock() as s:
        for position in range(256):
            told = outcome(s.set_raw, 10, bytes((1, position, 0, 0)))
            need((told == "ok") == (position < 3), f"position {position}: {told}")


@case
def h25_memory_regions_of_no_transport():
    """CVE-2018-7492, CVE-2018-5333, CVE-2024-27024, CVE-2024-35902, CVE-2026-31425: memory
    registration without a transport or a connection.

    The socket is not bound, or its transport cannot register memory, or it has no connection yet.
    """
    area = ctypes.create_string_buffer(4096)
    args = struct.pack("=QQQQ", ctypes.addressof(area), 4096, ctypes.addressof(area), 0)
    for host in (None, LOOP, IB[0], IB6[0]):
        with Sock((host, 0) if host else None) as s:
            there = (host or LOOP, 4001)
            s.connect(*there)
            told = {"get": outcome(s.set_raw, rdma.GET_MR, args),
                    "get for": outcome(s.set_raw, rdma.GET_MR_FOR_DEST, sockaddr(*there).ljust(128, b"\0") + args),
                    "free": outcome(s.set_raw, rdma.FREE_MR, struct.pack("=QQ", 77, 0)),
                    "map": outcome(send_control, s, rdma.MAP, args),
                    "dest": outcome(send_control, s, rdma.DEST, bytes(8)),
                    "add": outcome(send_control, s, rdma.FETCH_ADD, struct.pack("=Q64x", 1))}
            works = {"get", "get for", "map"} if host in (IB[0], IB6[0]) else set()
            wrong = {k: v for k, v in told.items() if (v not in ERRORS.values()) != (k in works)}
            need(not wrong, f"{host}: {wrong}")


@case
def h57_family_of_the_address():
    """KMSAN, 2019: no byte beyond an address is read, and no missing byte is assumed."""
    _memory, end = page_before_nothing()
    for family in FAMILIES:
        raw = struct.pack("=HH", family, socket.htons(4001)).ljust(28, b"\0")
        for length in range(29):
            at = ctypes.c_void_p(end - length)
            ctypes.memmove(at, raw, length)
            with Sock() as s, Sock((LOOP, 0)) as bound:
                told = {"bind": outcome(call, "bind", s.fileno(), at, length),
                        "connect": outcome(call, "connect", s.fileno(), at, length),
                        "send": outcome(call, "sendto", bound.fileno(), b"x", 1, 0, at, length),
                        "cancel": outcome(call, "setsockopt", bound.fileno(), SOL_RDS, RDS_CANCEL_SENT_TO, at, length)}
                # There are no messages to cancel.
                wrong = {k: v for k, v in told.items() if v not in ERRORS.values() and (k, v) != ("cancel", 0)}
                need(not wrong, f"family {family}, {length} bytes: {wrong}")


@case
def h46_resets_at_once():
    """CVE-2023-22024: an administrator resets a connection from many threads."""
    with Sock((IB[0], 4002), CALL_TIMEOUT) as s, Sock((IB[1], 4001), CALL_TIMEOUT) as r:
        s.send(b"x", (IB[1], 4001))
        r.recv()

        def resets():
            for _ in range(5):
                reset(*IB)

        at_once(*[resets] * 8)
        s.send(b"y", (IB[1], 4001))
        need(r.recv()[0] == b"y", "another message came")


@case
def h53_any_flag():
    """syzbot, 2018: every flag and every control message gives at most an error."""
    with Sock((LOOP, 4001), CALL_TIMEOUT) as r, Sock((LOOP, 4002), CALL_TIMEOUT) as s:
        s.connect(LOOP, 4001)
        for bit in range(32):
            flag = ctypes.c_int(1 << bit).value
            told = outcome(s.send, b"x", (LOOP, 4001), flag | socket.MSG_DONTWAIT)
            need(told == 1 or told in ERRORS.values(), f"flag {flag:#x}: {told}")
            outcome(r.recv, 10, flag | socket.MSG_DONTWAIT)
        for kind in range(-1, 20):
            for size in (0, 1, 7, 8, 15, 16, 48, 72, 200):
                told = outcome(send_control, s, kind, bytes(size))
                need(told == 3 or told in ERRORS.values(), f"type {kind} of {size} bytes: {told}")
        drain(r)


@case
def h55_sizes_of_rdma():
    """CVE-2010-3865, CVE-2010-4175, CVE-2018-5332, L-21, L-22 and H-79: lists of memory whose sizes
    overflow, or that are cut short.

    The kernel warns about none of them.
    """
    vectors = ctypes.create_string_buffer(16 * 1024)
    for length in (0, 1, 4096, 2**31, 2**32 - 1, 2**47, 2**63, 2**64 - 1):
        for i in range(1024):
            struct.pack_into("=QQ", vectors, 16 * i, 0x1000, length)
        for count in (0, 1, 2, 128, 1024, 1025, 2**32, 2**60 + 1, 2**64 - 1):
            args = struct.pack("=QQQQQQQ", 0, ctypes.addressof(vectors), min(length * 2, 2**64 - 1),
                               ctypes.addressof(vectors), count, 0, 0)
            for host in (LOOP, IB[0]):
                with Sock((host, 0)) as s:
                    s.connect(host, 4001)
                    told = outcome(send_control, s, rdma.ARGS, args)
                    need(told in ERRORS.values(), f"{count} pieces of {length} bytes on {host}: {told}")
    with Sock((LOOP, 0)) as s:
        s.connect(LOOP, 4001)
        for size in range(0, 64):
            told = outcome(send_control, s, rdma.ARGS, args[:size])
            need(told in ERRORS.values(), f"{size} bytes: {told}")


@case
def h77_nothing_of_others():
    """H-77, L-49: a program in a new network namespace sees nothing of the other namespaces."""
    with queued(b"abc"), Sock((IB[0], 4001)) as s:
        s.send(b"x", ("10.9.0.77", 4001))

        def child():
            rows = {option: len(info(option) or []) for option in TABLES if option != 10000}
            return [{k: v for k, v in rows.items() if v}, [name for name, value in counters().items() if value]]

        seen = elsewhere(child)
    need(seen == [{}, []], f"it sees {seen}")


def page_of(address):
    """Returns the number of the page at an address."""
    with open("/proc/self/pagemap", "rb") as f:
        f.seek(8 * (address // mmap.PAGESIZE))
        entry, = struct.unpack("=Q", f.read(8))
    need(entry >> 63, "the page is not there")
    return entry & (1 << 55) - 1


def is_dirty(page):
    with open("/proc/kpageflags", "rb") as f:
        f.seek(8 * page)
        return bool(struct.unpack("=Q", f.read(8))[0] & 1 << 4)


@case
def h78_table_into_a_file():
    """A table that is read into a mapped file is in the file, and makes its pages dirty.

    Otherwise they would not be written to a disk. The program has only read these pages: its own
    writes make a page dirty anyway.
    """
    size, start = 4 * mmap.PAGESIZE, mmap.PAGESIZE - 1000
    with tempfile.TemporaryFile(dir="/dev/shm") as file, Sock((LOOP, 4001)) as s:
        file.truncate(size)
        with mmap.mmap(file.fileno(), size) as memory:
            need(memory[0] == memory[mmap.PAGESIZE] == 0, "an empty file")
            at = ctypes.c_char.from_buffer(memory)
            pages = [page_of(ctypes.addressof(at) + i * mmap.PAGESIZE) for i in (0, 1)]
            need([is_dirty(page) for page in pages] == [False, False], "a page that was only looked at is dirty")
            room = ctypes.c_uint32(size - start)
            each = libc.getsockopt(s.fileno(), SOL_RDS, 10000, ctypes.byref(at, start), ctypes.byref(room))
            del at
        need(room.value > 1000, "a table in one page")
        need([is_dirty(page) for page in pages] == [True, True], "a page that was written to is clean")
        file.seek(start)
        names = [raw[:32].rstrip(b"\0") for raw in (file.read(each) for _ in range(room.value // each))]
        need(names[0] == b"conn_reset" and all(names), f"the file has {names[:3]}")


@case
def l02_messages_of_no_bytes():
    """An empty message takes room, too.

    So a queue stays short, and a walk over it takes little time: L-27.
    """
    ends = socket.inet_aton(IB[0]) + socket.inet_aton("10.9.0.77") + struct.pack("!HH", 4002, 4001)
    with Sock((IB[0], 4002)) as s:
        count, told = fill(s, ("10.9.0.77", 4001), 0)
        need(told == "EAGAIN" and count < 5000, f"to nobody: {count} messages, then {told}")
        rows = [raw for raw in info(10003) if raw[12:24] == ends]
        need(len(rows) == count, f"the table has {len(rows)} of {count} messages")
    rows = [raw for raw in info(10003) if raw[12:24] == ends]
    need(not rows, f"{len(rows)} are left of a socket that was closed")
    with short_of_room(LOOP, 4001) as r, Sock((LOOP, 4002)) as s:
        count, told = fill(s, (LOOP, 4001), 0)
        need(told in ("EAGAIN", "ENOBUFS") and count < 5000, f"to a socket that reads nothing: {count}, then {told}")
        for _ in range(count):
            need(r.recv(10, socket.MSG_DONTWAIT)[0] == b"", "one is missing")


@case
def l03_loopback_is_bounded():
    """A sender to a socket of 127.0.0.1 that does not read has to wait."""
    with short_of_room(LOOP, 4001, 200000) as r, Sock((LOOP, 4002)) as s:
        sent, _ = fill(s, (LOOP, 4001), 50000, 50)
        need(sent < 50, "there is no end")
        for _ in range(sent):
            need(len(r.recv()[0]) == 50000, "one is missing")


@case
def l14_refused_binds():
    """A bind that fails keeps no reference: the module can be unloaded after its sockets have been
    closed."""
    with open("/sys/module/rds_rust/refcnt", encoding="ascii") as f:
        before = int(f.read())
    with Sock((LOOP, 4001)), Sock() as s:
        for _ in range(1000):
            need(outcome(s.bind, LOOP, 4001) == "EADDRINUSE", "the address is taken")
            need(outcome(s.bind, LOOP, 1) in ("EINVAL", "EACCES", "EADDRINUSE"), "port 1 is the kernel's")
        need(s.name() == "unspec", f"it has an address: {s.name()}")
        s.bind(LOOP, 4003)
    after = eventually(lambda: int(open("/sys/module/rds_rust/refcnt", encoding="ascii").read()) <= before)
    need(after, "there are more references than before")


@case
def l24_ports_of_another_address():
    """A full socket on one local address does not affect the same port of another one."""
    with short_of_room(IB[1], 4001) as full, Sock((IB[0], 4001), CALL_TIMEOUT) as free, \
            Sock((IB[0], 4002)) as s, Sock((IB[1], 4003), CALL_TIMEOUT) as other:
        fill(s, (IB[1], 4001))
        other.send(b"abc", (IB[0], 4001))
        need(free.recv()[0] == b"abc", "a message to the other address")
        drain(full)


@case
def l25_monitor_of_a_full_socket():
    """Enabling or disabling congestion events does not make room."""
    with short_of_room(LOOP, 4001, 20000) as r, Sock((LOOP, 4002)) as s:
        sent = 0
        for value in (0, 1, 0, 1, 0):
            sent += fill(s, (LOOP, 4001))[0]
            r.set_raw(CONG_MONITOR, struct.pack("=i", value))
        need(3000 * sent <= 60000, f"a socket for 20000 bytes holds {sent} messages of 3000")
        for _ in range(sent):
            r.recv()


@case
def l28_time_limit_of_a_sender():
    """A sender that waits for room does not wait longer than its timeout."""
    for host, to in ((LOOP, (LOOP, 4001)), (IB[0], (IB[0], 4001))):
        with short_of_room(host, 4001), Sock((host, 4002), 0.2) as s:
            # The call fails when the timeout expires.
            while (told := outcome(s.send, bytes(3000), to)) == 3000:
                pass
            need(told in ("EAGAIN", "ETIMEDOUT"), f"{host}: {told}")


@case
def l29_news_are_not_lost():
    """A control message that has no room does not cause the loss of its message."""
    with queued(b"abcdef", stamps=struct.pack("=i", 1)) as r:
        data, control, flags = recvmsg(r, 10, 1)
        need(data == b"abcdef" and not control and flags & socket.MSG_CTRUNC, f"{data}, {control}, {flags:#x}")


@case
def loopback_is_no_peer():
    """Sends from an address of the device to the loopback address, which must not affect other
    connections.

    A message of soft-RoCE's connection manager that finds no route is the last one that it sends. A
    program that sent to ::1 from an address of the device thus ended all connections for good.
    """
    for here, there in ((IB6[0], LOOP6), (IB[0], LOOP)):
        before = counters()["conn_attempt_failed"]
        with Sock((here, 0)) as s:
            s.send(b"x", (there, 4001))
            failed = eventually(lambda before=before: counters()["conn_attempt_failed"] > before)
            need(failed, f"{here} waits for {there}")
    for ends in (IB, IB6):
        # A connection that did not exist before.
        with Sock((ends[0], 4002), CALL_TIMEOUT) as s, Sock((ends[1], 4001), CALL_TIMEOUT) as r:
            s.set_tos(132)
            s.send(b"abc", (ends[1], 4001))
            need(r.recv()[0] == b"abc", f"another message from {ends[0]}")


@case
def l46_foreign_addresses():
    """The address of a peer never becomes a local address."""
    told = {}
    for address in ("8.8.8.8", "10.9.0.77", "fd09::77"):
        with Sock() as s:
            told[address] = outcome(s.bind, address, 0)
    errors(told, "EADDRNOTAVAIL")


def unsent(to):
    """Returns (scope, messages that wait to be sent) of each connection to an address."""
    with open("/sys/kernel/debug/rds/connections", encoding="ascii") as f:
        found = re.findall(rf"-> {to}: scope=(\d+) .*unsent=(\d+)", f.read())
    return sorted((int(scope), int(count)) for scope, count in found)


@case
def l30_link_of_the_destination():
    """A message to the same address of another link does not take the route of the last message."""
    to = "fe80::7730"
    scopes = [socket.if_nametoindex(x) for x in ("rdsv0", "rdsv1")]
    with Sock((IB6[0], 0)) as s:
        for scope in scopes:
            s.send(b"abc", (to, 4000, scope), socket.MSG_DONTWAIT)
        found = [scope for scope, _ in unsent(to)]
        need(found == sorted(scopes), f"connections of the links {found}, not {scopes}")


@case
def cancelled_on_a_link():
    """Cancels messages to an address on one link.

    Messages to the same address of another link stay. Without a scope all are cancelled.
    """
    to, other = "fe80::7731", socket.if_nametoindex("lo")
    scopes = sorted(socket.if_nametoindex(x) for x in ("rdsv0", "rdsv1"))
    with Sock((IB6[0], 0)) as s:
        def left(*counts):
            wanted = list(zip(scopes, counts, strict=True))
            need(eventually(lambda: unsent(to) == wanted), f"{unsent(to)} wait, not {wanted}")

        for scope in scopes * 2:
            s.send(b"abc", (to, 4000, scope), socket.MSG_DONTWAIT)
        for cancelled, port, counts in ((other, 4000, (2, 2)), (scopes[1], 4001, (2, 2)), (scopes[1], 4000, (2, 0)),
                                        (0, 4000, (0, 0))):
            s.cancel(to, port, cancelled)
            left(*counts)
            if cancelled == scopes[1] and port == 4000:
                s.send(b"abc", (to, 4000, cancelled), socket.MSG_DONTWAIT)
                left(2, 1)


if __name__ == "__main__":
    main()
