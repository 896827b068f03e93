# SPDX-License-Identifier: GPL-2.0
"""operate.py ATOMICS CASE...: operations on memory of a peer, on one machine.

ATOMICS is 1 if the devices have them.
"""

import ctypes
import errno
import os
import random
import resource
import select
import socket
import struct
import subprocess
import sys
import time

import rdma
from cases import IB, IB6, await_address, eventually, need, outcome, page_before_nothing
from rdma import A, B, NOTIFY_ME, READWRITE, SILENT, Pair, unpinned
from rds import recvmsg

ATOMICS = sys.argv[1] == "1"
PAGE = 4096
# Errors that a program may get when memory is short.
SHORT = (errno.ENOMEM, errno.ENOBUFS, errno.EIO)


def pattern(size, seed):
    return random.Random(seed).randbytes(size)


def areas():
    """Yields kinds of local memory: pieces of it."""
    yield "a byte", [(5, 1)]
    yield "a page", [(PAGE, PAGE)]
    yield "over a boundary", [(100, 5000)]
    yield "64 KiB", [(0, 65536)]
    yield "64 KiB and some", [(123, 65536)]
    yield "1 MiB", [(77, 1 << 20)]
    yield "pieces", [(i * 5000, 100 + i) for i in range(40)]
    yield "many pieces", [(i * 1100, 1000) for i in range(1024)]


def gather(memory, pieces):
    return b"".join(memory.pages[at:at + n] for at, n in pieces)


def transfers():
    """Data is complete when the message arrives, and the sender is notified once."""
    with Pair() as p:
        cookie = p.theirs.register(0, 1 << 20)
        for number, (what, pieces) in enumerate(areas()):
            size = sum(n for _, n in pieces)
            data = pattern(size, number)
            p.ours.fill(0, pattern(len(p.ours.pages), number + 1))
            p.theirs.fill(0, bytes(len(p.theirs.pages)))
            at = (1 << 20) - size
            p.write(b"written", cookie, pieces, number, at=at)
            need(rdma.receive(p.b) == (b"written", []), f"{what}: the message")
            need(p.theirs.pages[at:at + size] == gather(p.ours, pieces), f"{what}: what was written")
            need(p.theirs.pages[:at] == bytes(at), f"{what}: what is before it")
            need(rdma.status(p.a) == (number, rdma.SUCCESS), f"{what}: the end of the write")

            p.theirs.fill(at, data)
            p.read(b"read", cookie, pieces, number + 100, at=at)
            need(rdma.receive(p.b)[0] == b"read", f"{what}: the message")
            need(rdma.status(p.a) == (number + 100, rdma.SUCCESS), f"{what}: the end of the read")
            need(gather(p.ours, pieces) == data, f"{what}: what was read")
        need(not select.select([p.a, p.b], [], [], 0)[0], "there is more to read")
        p.theirs.free(cookie, rdma.INVALIDATE)


def silent():
    """Operations without a message, and without a notification."""
    with Pair(4) as p:
        cookie = p.theirs.register(0, 4 * PAGE)
        p.ours.fill(0, pattern(PAGE, 3))
        p.write(b"", cookie, [(0, PAGE)], 1, SILENT)
        need(rdma.status(p.a) == (1, rdma.SUCCESS), "the end of a silent write")
        need(p.theirs.pages[:PAGE] == pattern(PAGE, 3), "what was written")
        p.write(b"heard", cookie, [(0, PAGE)], 2, SILENT, at=PAGE)
        need(rdma.receive(p.b)[0] == b"heard", "the message of a silent write")
        need(rdma.status(p.a) == (2, rdma.SUCCESS), "the end of it")
        p.transfer(b"untold", cookie, (2 * PAGE, PAGE), [(0, PAGE)], READWRITE, 3)
        need(rdma.receive(p.b)[0] == b"untold", "the message")
        need(p.theirs.pages[2 * PAGE:3 * PAGE] == pattern(PAGE, 3), "what was written")
        p.write(b"", cookie, [(0, PAGE)], 4)
        need(rdma.receive(p.b)[0] == b"", "an empty message")
        need(rdma.status(p.a) == (4, rdma.SUCCESS), "only what was asked for is told")


def cookies():
    """Sends a cookie. The answer comes with the data, once, and may carry the next cookie."""
    with Pair(4) as p:
        cookie = p.theirs.register(10, 5000, READWRITE | rdma.USE_ONCE)
        rdma.send(p.b, b"mine", (rdma.SOL_RDS, rdma.DEST, struct.pack("=Q", cookie)))
        data, controls = rdma.receive(p.a)
        need((data, controls) == (b"mine", [(rdma.DEST, struct.pack("=Q", cookie))]), f"{data} {controls}")
        p.ours.fill(0, pattern(5000, 9))
        p.write(b"there", cookie, [(0, 5000)], 1)
        need(rdma.receive(p.b)[0] == b"there", "the answer")
        need(p.theirs.pages[10:5010] == pattern(5000, 9), "what was written")
        need(rdma.status(p.a) == (1, rdma.SUCCESS), "the end")
        need(outcome(p.theirs.free, cookie) == "EINVAL", "memory that was to be used once is still there")

        cookie = p.theirs.register(0, PAGE)
        mine = struct.pack("=Q", p.ours.register(0, PAGE))
        for token, (data, flags) in enumerate(((b"both", 0), (b"both", SILENT), (b"", SILENT)), 2):
            p.ours.fill(0, pattern(100, token))
            write, _place = rdma.transfer(cookie, (0, 100), [(p.ours.base, 100)], READWRITE | NOTIFY_ME | flags, token)
            rdma.send(p.a, data, write, (rdma.SOL_RDS, rdma.DEST, mine))
            found = rdma.receive(p.b)
            need(found == (data, [(rdma.DEST, mine)]), f"an operation and a cookie: {found}")
            need(p.theirs.pages[:100] == pattern(100, token), "what was written")
            need(rdma.status(p.a) == (token, rdma.SUCCESS), "the end")


def for_dest():
    """Memory that is registered for a destination, and flags without a meaning."""
    with Pair(4) as p:
        cookie = rdma.register(p.b, p.theirs.base + 10, 5000, READWRITE | rdma.DONTWAIT, dest=A)
        p.ours.fill(0, pattern(5000, 4))
        p.write(b"there", cookie, [(0, 5000)], 1, rdma.DONTWAIT | rdma.USE_ONCE | rdma.INVALIDATE)
        need(rdma.receive(p.b)[0] == b"there", "the message")
        need(p.theirs.pages[10:5010] == pattern(5000, 4), "what was written")
        need(rdma.status(p.a) == (1, rdma.SUCCESS), "the end")
        p.theirs.free(cookie)


def over_ipv6():
    """Transfers, cookies and atomics between IPv6 addresses."""
    before = rdma.A, rdma.B
    rdma.A, rdma.B = (IB6[0], 4001), (IB6[1], 4002)
    try:
        transfers()
        cookies()
        atomics()
    finally:
        rdma.A, rdma.B = before


def read_only():
    """Memory that a program may only read can be used where it is only read."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Pair(4) as p:
        for memory in (p.ours, p.theirs):
            memory.fill(0, pattern(PAGE, 5))
            need(libc.mprotect(ctypes.c_void_p(memory.base), ctypes.c_size_t(PAGE), 1) == 0, "mprotect")
        need(outcome(p.theirs.register, 0, PAGE) == "EFAULT", "peers may write to it")
        cookie = p.theirs.register(0, PAGE, 0)
        need(outcome(p.read, b"", cookie, [(0, PAGE)], 1) == "EFAULT", "what is read may go to it")
        p.read(b"", cookie, [(PAGE, PAGE)], 2, SILENT)
        need(rdma.status(p.a) == (2, rdma.SUCCESS), "the end of the read")
        need(p.ours.pages[PAGE:2 * PAGE] == pattern(PAGE, 5), "what was read")
        there = p.theirs.register(2 * PAGE, PAGE)
        p.write(b"", there, [(0, PAGE)], 3, SILENT)
        need(rdma.status(p.a) == (3, rdma.SUCCESS), "the end of the write")
        need(p.theirs.pages[2 * PAGE:3 * PAGE] == pattern(PAGE, 5), "what was written")


def bits(memory, at):
    return struct.unpack_from("=Q", memory.pages, at)[0]


def atomics():
    """All four atomics, and the numbers that they fetch."""
    with Pair(2) as p:
        cookie = p.theirs.register(16, 4096)
        top = 1 << 64

        def done(token, at, control):
            rdma.send(p.a, b"changed", control)
            need(rdma.receive(p.b)[0] == b"changed", "the message")
            need(rdma.status(p.a) == (token, rdma.SUCCESS), "the end")
            return bits(p.ours, 64), bits(p.theirs, 16 + at)

        def change(kind, numbers, token, at=8):
            return done(token, at, rdma.atomic(kind, cookie, p.ours.base + 64, at, numbers, NOTIFY_ME, token))

        def change_as_uek(kind, value, compare, token, at=8):
            return done(token, at, rdma.uek_atomic(kind, cookie, p.ours.base + 64, at, value, compare, NOTIFY_ME, token))

        # Independent of the device's abilities.
        cases = ((rdma.FETCH_ADD, 1), (rdma.MASKED_FETCH_ADD, 0), (rdma.MASKED_COMPARE_SWAP, 0))
        for kind, compare in cases:
            need(outcome(change_as_uek, kind, 1, compare, 1) == "EINVAL", f"UEK's, kind {kind}")
        if not ATOMICS:
            for kind in (rdma.FETCH_ADD, rdma.COMPARE_SWAP, rdma.MASKED_FETCH_ADD, rdma.MASKED_COMPARE_SWAP):
                need(outcome(change, kind, (1, 1), 1) == "EOPNOTSUPP", f"kind {kind}")
            need(outcome(change_as_uek, rdma.FETCH_ADD, 1, 0, 1) == "EOPNOTSUPP", "UEK's")
            return
        struct.pack_into("=Q", p.theirs.pages, 24, 0x1122334455667788)
        need(change(rdma.FETCH_ADD, [8], 1) == (0x1122334455667788, 0x1122334455667790), "fetch and add")
        need(change(rdma.FETCH_ADD, [top - 0x90], 2) == (0x1122334455667790, 0x1122334455667700), "a carry")
        need(change(rdma.COMPARE_SWAP, [1, 2], 3)[1] == 0x1122334455667700, "another number was swapped")
        need(change(rdma.COMPARE_SWAP, [0x1122334455667700, 2], 4) == (0x1122334455667700, 2), "compare and swap")
        need(change(rdma.MASKED_FETCH_ADD, [5, 0], 5) == (2, 7), "a mask without a bit")
        need(change(rdma.MASKED_COMPARE_SWAP, [7, 9, top - 1, top - 1], 6) == (7, 9), "masks with all bits")
        masked = outcome(change, rdma.MASKED_FETCH_ADD, (1, 1 << 7), 7)
        need(isinstance(masked, tuple) or masked == "EOPNOTSUPP", f"real masks: {masked}")
        struct.pack_into("=Q", p.theirs.pages, 24, 100)
        need(change_as_uek(rdma.FETCH_ADD, 11, 0, 8) == (100, 111), "fetch and add of UEK's")
        need(change_as_uek(rdma.COMPARE_SWAP, 5, 110, 9) == (111, 111), "another number was swapped by UEK's")
        need(change_as_uek(rdma.COMPARE_SWAP, 5, 111, 10) == (111, 5), "compare and swap of UEK's")

        def asked(local, remote):
            return outcome(rdma.send, p.a, b"", rdma.atomic(rdma.FETCH_ADD, cookie, local, remote, [1], 0))

        need(asked(p.ours.base + 4, 0) == "EFAULT", "local memory between two numbers")
        need(asked(8, 0) == "EFAULT", "local memory that is not there")
        need(asked(p.ours.base, 3) == "EINVAL", "memory of the peer between two numbers")
        need(asked(p.ours.base, top - 8) == "EINVAL", "memory of the peer nowhere")


def closed():
    """A program that closes its sockets in the middle of operations leaves nothing."""
    for _ in range(20):
        with Pair() as p:
            cookie = p.theirs.register(0, 1 << 20)
            for token in range(8):
                p.write(b"x", cookie, [(0, 1 << 20)], token)


def killed():
    """A program that is killed leaves nothing."""
    with Pair(4):
        for _ in range(5):
            child = os.fork()
            if child == 0:
                with Pair() as p:
                    cookie = p.theirs.register(0, 1 << 20)
                    for token in range(8):
                        p.write(b"x", cookie, [(0, 1 << 20)], token)
                    os.kill(os.getpid(), 9)
            os.waitpid(child, 0)


def unfenced():
    """Reads without a fence: data is complete when the program is notified."""
    with Pair() as p, rdma.connected((IB[0], 4003), B) as other:
        cookie = p.theirs.register(0, 1 << 20)
        for number in range(20):
            data = pattern(1 << 20, number)
            p.theirs.fill(0, data)
            p.read(b"", cookie, [(1, 1 << 20)], number, SILENT if number % 2 else 0)
            for _ in range(5):
                rdma.send(other, b"after it")
            need(rdma.status(p.a) == (number, rdma.SUCCESS), "its end")
            need(gather(p.ours, [(1, 1 << 20)]) == data, f"{number}: what was read")
            for _ in range(5 + (number + 1) % 2):
                rdma.receive(p.b)


def first_of_all():
    """A connection begins with a read, once for each type of service. Other processes use the CPUs,
    so the passive side of soft-iWARP may be late."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(6)]
    try:
        reads_first()
    finally:
        for process in busy:
            process.kill()
            process.wait()


def reads_first():
    for tos in range(1, 17):
        with Pair(20) as p:
            p.a.set_tos(tos)
            cookie = p.theirs.register(0, 65536)
            data = pattern(65536, tos)
            p.theirs.fill(0, data)
            p.read(b"", cookie, [(0, 65536)], tos, SILENT)
            need(rdma.status(p.a) == (tos, rdma.SUCCESS), f"{tos}: its end")
            need(p.ours.pages[:65536] == data, f"{tos}: what was read")


def unread():
    """A program without room for notifications misses them, and does not hang or spin."""
    with Pair(4) as p:
        cookie = p.theirs.register(0, PAGE)
        for token in range(2):
            p.write(b"", cookie, [(0, 10)], token, SILENT)
        for _ in range(2):
            need(select.select([p.a], [], [], 60)[0], "it is not told")
            data, controls, flags, _ = p.a.sock.recvmsg(10)
            need((data, controls) == (b"", []) and flags & socket.MSG_CTRUNC, f"{data} {controls} {flags}")
        need(not select.select([p.a], [], [], 0)[0], "there is more to read")
        for _ in range(3):
            p.write(b"", cookie, [(0, 10)], 7, SILENT)
            need(select.select([p.a], [], [], 60)[0], "it is not told")
            need(rdma.status(p.a) == (7, rdma.SUCCESS), "its end")


def looked():
    """`MSG_PEEK` reports the first operation and leaves it; also if the report fails."""
    told = [(rdma.SOL_RDS, rdma.STATUS, struct.pack("=Qii", 0, rdma.SUCCESS, 0))]
    with Pair(4) as p:
        def look(room, **kwargs):
            return recvmsg(p.a, 10, room, socket.MSG_PEEK, **kwargs)

        cookie = p.theirs.register(0, PAGE)
        for token in range(3):
            p.write(b"", cookie, [(0, 10)], token, SILENT)
        need(select.select([p.a], [], [], 60)[0], "it is not told")
        for _ in range(2):
            need((seen := look(100)) == (b"", told, 0), f"a look: {seen}")
        need((seen := look(20)) == (b"", [], socket.MSG_CTRUNC), f"without room: {seen}")
        need((seen := outcome(lambda: look(100, control=8))) == "EFAULT", f"to bad memory: {seen}")
        # Without room for the notification, messages come first.
        rdma.send(p.b, b"behind")
        eventually("the message", lambda: look(20)[0] == b"behind")
        need((seen := look(100)) == (b"", told, 0), f"before the message: {seen}")
        found = []
        while len(found) < 3:
            found += rdma.ends(p.a)
        need(found == [(token, rdma.SUCCESS) for token in range(3)], f"in all: {found}")
        need(rdma.receive(p.a)[0] == b"behind", "the message")


def told_nowhere():
    """Notifications and cookies that cannot be written go to the next call."""
    with Pair(4) as p:
        cookie = p.theirs.register(0, PAGE)
        for token in range(3):
            p.write(b"", cookie, [(0, 10)], token, SILENT)
        _memory, end = page_before_nothing()
        found = []
        # If there are two, the second one has no place.
        while len(found) < 3:
            need(select.select([p.a], [], [], 60)[0], "it is not told")
            need((seen := outcome(recvmsg, p.a, 10, 100, 0, 8)) == "EFAULT", f"to bad memory: {seen}")
            data, controls, flags = recvmsg(p.a, 10, 64, 0, end - 32)
            found += [(kind, *struct.unpack("=Qii", raw)) for _, kind, raw in controls]
            need((data, len(controls), flags) == (b"", 1, 0), f"one has a place: {controls} {flags}")
        need(found == [(rdma.STATUS, token, rdma.SUCCESS, 0) for token in range(3)], f"in all: {found}")

        control = rdma.SOL_RDS, rdma.DEST, struct.pack("=Q", cookie)
        rdma.send(p.b, b"mine", control)
        for _ in range(2):
            need((seen := outcome(recvmsg, p.a, 10, 100, 0, 8)) == "EFAULT", f"a cookie to bad memory: {seen}")
        need((seen := recvmsg(p.a, 10, 100)) == (b"mine", [control], 0), f"a cookie: {seen}")


def forgotten():
    """Memory registered with a message is freed if the send fails. Its cookie needs no place."""
    with Pair(4) as p:
        nowhere = rdma.transfer(1, (0, 10), [(8, 10)], READWRITE)[0]
        for address in (0, p.ours.base + 8):
            args = (rdma.SOL_RDS, rdma.MAP, struct.pack("=QQQQ", p.ours.base, PAGE, address, READWRITE))
            before = rdma.pins()
            need(outcome(rdma.send, p.a, b"x", args, nowhere) == "EFAULT", "an operation with memory that is not there")
            unpinned(before)
            rdma.send(p.a, b"x", args)
            data, ((kind, _cookie),) = rdma.receive(p.b)
            need((data, kind) == (b"x", rdma.DEST), f"{data} {kind}")
        other = (rdma.SOL_RDS, rdma.DEST, struct.pack("=Q", 12345))
        need(outcome(rdma.send, p.a, b"x", other) == "EINVAL", "a cookie of nobody")


def link(what, *args):
    subprocess.run(["rdma", "link", what, "rdsx0", *args], check=True)


def removed():
    """Removes the device in the middle of operations, and with some that wait. All of them end, and
    nothing stays pinned. Operations work again with the new device."""
    kind = "rxe" if ATOMICS else "siw"
    for there in (B, (IB[1], 4999), ("10.9.0.200", 4001)):
        pins = rdma.pins()
        with Pair() as p:
            p.a.connect(*there)
            cookie = p.theirs.register(0, 1 << 20)
            p.ours.register(0, 5000)
            tokens = list(range(12))
            for token in tokens:
                p.write(b"x", cookie, [(0, 1 << 20)], token)
            link("del")
            try:
                ends = []
                if there[0] == "10.9.0.200":
                    # They wait for a connection.
                    unpinned(pins + 256)
                    p.a.cancel(*there)
                while len(ends) < len(tokens):
                    ends += rdma.ends(p.a)
                need(sorted(token for token, _ in ends) == tokens, f"{ends}")
                need({how for _, how in ends} <= {rdma.SUCCESS, rdma.DROPPED, rdma.OTHER_ERROR, rdma.CANCELED}, f"{ends}")
                # Memory on the other device.
                p.b.sock.close()
                unpinned(pins)
                need(outcome(p.write, b"x", cookie, [(0, 10)], 1) == "ENODEV", "without a device")
            finally:
                link("add", "type", kind, "netdev", "rdsv0")
        await_address(*A)
        with Pair() as p:
            cookie = p.theirs.register(0, 1 << 20)
            p.write(b"again", cookie, [(0, 1 << 20)], 99)
            need(rdma.receive(p.b)[0] == b"again", "the message")
            need(rdma.status(p.a) == (99, rdma.SUCCESS), "its end")


def waiting():
    """An operation for a missing peer ends when its program cancels it or closes the socket."""
    nowhere = ("10.9.0.200", 4001)
    pins = rdma.pins()
    with rdma.connected(A, nowhere) as a:
        ours = rdma.Memory(a, 4)
        control, _place = rdma.transfer(1, (0, 100), [(ours.base, 100)], READWRITE | NOTIFY_ME, 5)
        rdma.send(a, b"x", control)
        need(rdma.pins() == pins + 1, "the memory is not pinned")
        a.cancel(*nowhere)
        need(rdma.status(a) == (5, rdma.CANCELED), "its end")
        need(rdma.pins() == pins, "the memory is pinned")
        control, _place = rdma.transfer(1, (0, 100), [(ours.base, 100)], READWRITE | NOTIFY_ME | SILENT, 6)
        rdma.send(a, b"", control)
        a.cancel(*nowhere)
        need(rdma.status(a) == (6, rdma.CANCELED), "the end of a silent one")
        rdma.send(a, b"x", control)
        rdma.send(a, b"", control)
    unpinned(pins)


def limits():
    """Pinned memory counts against the limit until the program is notified of the end."""
    with Pair(4) as p:
        cookie = p.theirs.register(0, PAGE)
        # Three, with the one of root, which is not limited.
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (3 * PAGE, 3 * PAGE))
        os.seteuid(1000)
        try:
            for token in range(200):
                p.write(b"", cookie, [(10, PAGE)], token, SILENT)
                need(rdma.status(p.a) == (token, rdma.SUCCESS), "its end")
            need(outcome(p.write, b"", cookie, [(0, 1), (PAGE, 1), (2 * PAGE, 1)], 1) == "ENOMEM", "three pages")
            cookies = [p.ours.register(0, PAGE), p.ours.register(PAGE, PAGE)]
            need(outcome(p.ours.register, 0, 1) == "ENOMEM", "a page more")
            need(outcome(p.write, b"", cookie, [(0, 1)], 1) == "ENOMEM", "a page more")
            for mine in cookies:
                p.ours.free(mine, rdma.INVALIDATE)
            p.write(b"", cookie, [(0, 1)], 1, SILENT)
            need(rdma.status(p.a) == (1, rdma.SUCCESS), "its end")
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 3 * PAGE))
            need(outcome(p.ours.register, 0, 1) == "EPERM", "nothing may be locked")
        finally:
            os.seteuid(0)


def made(make):
    """Repeats a call that may fail at first because there is no memory."""
    while True:
        told = outcome(make)
        if told not in ("ENOMEM", "ENOBUFS"):
            return told
        time.sleep(0.01)


def short_of_memory():
    """Operations fail because memory is short. Each one is refused, or ends with an error, once.
    Those that succeed have happened, and in order."""
    ok, bad = [], 0
    with made(lambda: Pair(300)) as p:
        for token in range(200):
            size = 1 << 20 if token % 10 == 0 else 5000
            data = pattern(size, token)
            p.theirs.fill(0, bytes(size))
            p.ours.fill(100, data)
            try:
                cookie = p.theirs.register(0, size)
            except OSError as e:
                need(e.errno in SHORT, f"{token}: {e}")
                bad += 1
                continue
            try:
                p.write(b"%d" % token, cookie, [(100, size)], token)
            except OSError as e:
                need(e.errno in SHORT, f"{token}: {e}")
                bad += 1
            else:
                found, how = rdma.status(p.a)
                need(found == token and how in (rdma.SUCCESS, rdma.DROPPED, rdma.OTHER_ERROR), f"{token}: {found}, {how}")
                if how == rdma.SUCCESS:
                    need(p.theirs.pages[:size] == data, f"{token}: what was written")
                    ok.append(b"%d" % token)
                else:
                    bad += 1
            p.theirs.free(cookie, rdma.INVALIDATE)
        need(ok, "none went well")
        arrived = []
        while ok[-1] not in arrived:
            arrived.append(rdma.receive(p.b)[0])
        need([x for x in arrived if x in ok] == ok, f"{arrived} arrived, {ok} went well")
        need(arrived == sorted(set(arrived), key=int), f"{arrived} arrived")
    need(bad, "all went well")


def copied():
    """A program that forks keeps its memory, and so do its peers. The child has a copy."""
    with Pair(8) as p:
        cookie = p.theirs.register(0, 4 * PAGE)
        p.theirs.fill(0, pattern(4 * PAGE, 1))
        r, w = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(w)
            os.read(r, 1)
            # The child has the bytes from before the fork, whatever was written after it.
            os._exit(p.theirs.pages[:4 * PAGE] != pattern(4 * PAGE, 1))
        os.close(r)
        p.theirs.fill(0, pattern(4 * PAGE, 2))
        p.read(b"", cookie, [(0, 4 * PAGE)], 1, SILENT)
        need(rdma.status(p.a) == (1, rdma.SUCCESS), "the end of the read")
        need(p.ours.pages[:4 * PAGE] == pattern(4 * PAGE, 2), "what the peer reads")
        p.ours.fill(0, pattern(4 * PAGE, 3))
        p.write(b"", cookie, [(0, 4 * PAGE)], 2, SILENT)
        need(rdma.status(p.a) == (2, rdma.SUCCESS), "the end of the write")
        need(p.theirs.pages[:4 * PAGE] == pattern(4 * PAGE, 3), "what the peer has written")
        os.close(w)
        need(os.waitpid(child, 0)[1] == 0, "what the other one has")


def moved():
    """Memory that a program moves, or unmaps, while peers may use it."""
    libc = ctypes.CDLL(None, use_errno=True)
    for name in ("mmap", "mremap"):
        getattr(libc, name).restype = ctypes.c_void_p
    size = 4 * PAGE

    def fresh():
        return libc.mmap(None, ctypes.c_size_t(size), 3, 0x22, -1, 0)

    with Pair(8) as p:
        old, new = fresh(), fresh()
        cookie = rdma.register(p.b, old, size)
        at = libc.mremap(ctypes.c_void_p(old), ctypes.c_size_t(size), ctypes.c_size_t(size), 3, ctypes.c_void_p(new))
        need(at == new, "the memory was not moved")
        for number in range(2):
            p.ours.fill(0, pattern(size, number))
            p.write(b"", cookie, [(0, size)], number, SILENT)
            need(rdma.status(p.a) == (number, rdma.SUCCESS), "the end of the write")
            if number == 0:
                need(ctypes.string_at(new, size) == pattern(size, 0), "what was written to memory that was moved")
                need(libc.munmap(ctypes.c_void_p(new), ctypes.c_size_t(size)) == 0, "munmap")
        p.ours.fill(0, bytes(size))
        p.read(b"", cookie, [(0, size)], 3, SILENT)
        need(rdma.status(p.a) == (3, rdma.SUCCESS), "the end of the read")
        need(p.ours.pages[:size] == pattern(size, 1), "what was written to memory that was given back")


def exhausted():
    """The device has no region left."""
    with Pair(300) as p:
        for size in (PAGE, 1 << 20):
            need(outcome(p.theirs.register, 0, size) == "ENOMEM", f"{size} bytes are registered")
        p.ours.scatter()
        for operate in (p.write, p.read):
            told = outcome(operate, b"x", 1, [(0, 1 << 20)], 1)
            need(told == "ENOMEM", f"{told}: memory here and there needs a region")
        rdma.send(p.a, b"good")
        need(rdma.receive(p.b)[0] == b"good", "what came after it")


def registered():
    """Registers memory, with whatever steps are needed."""
    with Pair(4) as p:
        p.theirs.register(0, PAGE)


def unregistered():
    """The device does not report that it has registered memory."""
    with Pair(4) as p:
        told = outcome(p.theirs.register, 0, PAGE)
        need(told == "ETIMEDOUT", f"{told}")


def not_ended():
    """The device does not report an invalidation. The region ends nevertheless."""
    with Pair(4) as p:
        before = rdma.pins()
        cookie = p.theirs.register(0, PAGE)
        p.theirs.free(cookie, rdma.INVALIDATE)
        unpinned(before)
        p.write(b"x", cookie, [(0, 10)], 5)
        token, how = rdma.status(p.a)
        need(token == 5 and how in (rdma.REMOTE_ERROR, rdma.DROPPED), f"{token}: {how}")


if __name__ == "__main__":
    for case in sys.argv[2:]:
        try:
            globals()[case]()
        except (AssertionError, OSError) as e:
            if isinstance(e, OSError) and e.errno == errno.EINTR:
                raise
            raise SystemExit(f"{case}: {e!r}") from e
