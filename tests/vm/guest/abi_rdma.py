# SPDX-License-Identifier: GPL-2.0
"""abi_rdma.py get|dest|map NEAR FAR [CASE...]: registers memory with this call, and runs cases of
operations on it. It prints the answer of each as one JSON line.

Both ends are in this program, at two addresses of this node that have no connections yet. The
expected answers are in tests/vm/test_abi_rdma.py.

The answer of an operation is a list of words. The first is whether the data moved. The next is the
status that the sender was notified of, or "untold". Then its message has "arrived", is "silent" or
"lost". "reset" follows if the connection was reset, and "stuck" if C RDS forgets the message. If
the call fails, the answer is the name of the error.
"""

import ctypes
import itertools
import os
import random
import re
import resource
import select
import socket
import struct
import sys
import time

import rdma
from cases import CALL_TIMEOUT, ERRORS, OF_C, PROT_NONE, PROT_READ, case, eventually, main, outcome, protected
from rdma import (COMPARE_SWAP, DEST, DONTWAIT, FENCE, FETCH_ADD, INVALIDATE, MAP, MASKED_COMPARE_SWAP,
                  MASKED_FETCH_ADD, NOTIFY_ME, READWRITE, SILENT, STATUS, USE_ONCE, Memory)
from rds import SOL_RDS, Sock, counters

HOW, *ADDRESSES = sys.argv[1:4]
del sys.argv[1:4]
PAGE, ALL, NOBODY = 4096, (1 << 64) - 1, 65534
REMOTE_COMPLETE, UNKNOWN = 0x80, 1 << 40
RECVERR = 5
# Types of service, each with its own connections: a connection on which C RDS has forgotten a
# message cannot be used again.
types = itertools.count(1)
STATES = ("SUCCESS", "REMOTE_ERROR", "CANCELED", "DROPPED", "OTHER_ERROR")
# C RDS forgets a message if the device rejects its operation.
REFUSED = re.compile(r"RDS/IB: atomic ib_post_send to .* returned")
NO_CONNECTION = "the connection"
# The region of a message that C RDS has not released yet, and the counter that shows it.
IN_USE, FLUSHES = "failed: the region is in use", "ib_rdma_mr_8k_pool_flush"
kernel_log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
os.lseek(kernel_log, 0, os.SEEK_END)


def refused_by_device():
    """Returns true if the kernel has logged a rejected operation since the last call."""
    found = False
    while True:
        try:
            found |= bool(REFUSED.search(os.read(kernel_log, 8192).decode(errors="replace")))
        except BlockingIOError:
            return found


def named(**flags):
    """Yields all combinations of flags: their names, and the number."""
    for count in range(len(flags) + 1):
        for some in itertools.combinations(flags, count):
            yield " ".join(some) or "none", sum(flags[x] for x in some)


def come(sock):
    """Returns the messages that a socket has received: [(data, control messages)]."""
    found = []
    while True:
        try:
            data, controls, _, _ = sock.sock.recvmsg(1 << 20, 1024, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return found
        found.append((data, [(kind, raw) for level, kind, raw in controls if level == SOL_RDS]))


class Ends:
    """Sockets of a program that operates and of one that owns memory, on new connections that are
    up."""

    def __init__(self, back=False, pages=4):
        near, far = ADDRESSES[::-1] if back else ADDRESSES
        self.user, self.owner = Sock((near, 0), CALL_TIMEOUT), Sock((far, 0), CALL_TIMEOUT)
        tos = next(types)
        for s, other in ((self.user, self.owner), (self.owner, self.user)):
            s.connect(*other.name())
            s.set_tos(tos)
        self.ours, self.theirs = Memory(self.user, pages), Memory(self.owner, pages)
        self.cookies, self.numbers = [], itertools.count(1)
        for s, other in ((self.user, self.owner), (self.owner, self.user)):
            rdma.send(s, b"hello")
            rdma.receive(other)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()
        self.user.sock.close()
        self.owner.sock.close()

    def release(self):
        """Frees all regions: the connections of C RDS do not come back before that."""
        for cookie in self.cookies:
            outcome(self.theirs.free, cookie, INVALIDATE)
        self.cookies = []

    def register(self, at=0, length=2 * PAGE, flags=READWRITE):
        """Registers some of the owner's memory and returns the cookie."""
        if HOW == "map":
            told = self.theirs.base + len(self.theirs.pages) - 8
            rdma.send(self.owner, b"", (SOL_RDS, MAP, struct.pack("=QQQQ", self.theirs.base + at, length, told, flags)))
            _, ((kind, raw),) = rdma.receive(self.user)
            cookie, = struct.unpack("=Q", raw)
            # Until the message is acknowledged C RDS has the region in use, and would not connect
            # again.
            rdma.send(self.user, b"")
            rdma.receive(self.owner)
            rdma.settle(self.owner)
            assert kind == DEST and cookie == struct.unpack_from("=Q", self.theirs.pages, len(self.theirs.pages) - 8)[0]
        else:
            cookie = rdma.register(self.owner, self.theirs.base + at, length, flags,
                                   self.user.name() if HOW == "dest" else None)
        self.cookies.append(cookie)
        return cookie

    def transfer(self, write, cookie, *, start=0, at=0, pieces=((0, 64),), bytes_=None, flags=NOTIFY_ME,
                 payload=b"done"):
        """Writes or reads at an offset in the region that begins at `start` of the owner's memory.
        """
        size = sum(n for _, n in pieces)
        for memory in (self.ours, self.theirs):
            memory.fill(0, random.randbytes(len(memory.pages)))
        local = b"".join(self.ours.pages[x:x + n] for x, n in pieces)
        wanted = bytearray((self.theirs if write else self.ours).pages[:])
        if write:
            wanted[start + at:start + at + size] = local
        else:
            remote = self.theirs.pages[start + at:start + at + size]
            for where, n in pieces:
                wanted[where:where + n], remote = remote[:n], remote[n:]
        control, _place = rdma.transfer(cookie, (at & ALL, size if bytes_ is None else bytes_),
                                        [(self.ours.base + x, n) for x, n in pieces],
                                        flags | (READWRITE if write else 0), next(self.numbers))
        return self.operate(control, payload, flags, self.theirs if write else self.ours, bytes(wanted))

    def operate(self, control, payload, flags, changed, wanted):
        """Sends a message with an operation, and returns the answer in words."""
        before, image, silent = counters()["conn_reset"], changed.pages[:], not payload and flags & SILENT

        def is_reset():
            return counters()["conn_reset"] != before

        refused_by_device()
        sent = outcome(rdma.send, self.user, payload, control)
        if isinstance(sent, str):
            return sent
        ends, arrived, reset, refused, end = [], [], False, False, time.monotonic() + CALL_TIMEOUT
        while time.monotonic() < end:
            select.select([self.user, self.owner], [], [], 0.005)
            # Read these first: events that precede them are then visible below.
            reset, refused = is_reset(), refused_by_device()
            ends += come(self.user)
            arrived += come(self.owner)
            # C RDS reports the end of a silent operation when it sends something else.
            told = ends or silent or not flags & NOTIFY_ME
            if refused or told and (reset or arrived or silent and (ends or changed.pages[:] != image)):
                break
        # All effects of the operation precede the message that is sent now.
        if reset or silent and not refused:
            self.barrier(arrived, is_reset)
            # A read completes at this end a little after the message behind it has arrived.
            while not ends and flags & NOTIFY_ME and not is_reset() and time.monotonic() < end:
                select.select([self.user], [], [], 0.005)
                ends += come(self.user)
            ends += come(self.user)
            reset = is_reset()
        assert not [x for x in arrived if x != (payload, [])], arrived
        numbers = [struct.unpack("=Qii", raw)[1] for data, controls in ends for kind, raw in controls if kind == STATUS]
        now = changed.pages[:]
        what = "moved" if now == wanted != image else "unmoved" if now == image else "partly"
        came = "arrived" + " again" * (len(arrived) - 1) if arrived else "silent" if silent else "lost"
        return ", ".join([what, *(STATES[x] for x in numbers)] + ["untold"] * (not numbers) + [came] + ["reset"] * reset
                         + ["stuck"] * refused)

    def barrier(self, arrived, is_reset):
        """Sends another message, and receives messages until it has arrived."""
        rdma.send(self.user, b"after")

        def ready():
            if is_reset():
                self.release()
            arrived.extend(come(self.owner))
            return (b"after", []) in arrived

        # Another attempt costs less than the wait for a connection of C RDS that never comes back.
        eventually(NO_CONNECTION, ready, 20 if OF_C else CALL_TIMEOUT)
        arrived.remove((b"after", []))


def insist(play, *args, may_drop=False):
    """Returns an answer, after several attempts.

    An operation that the device rejects is reported as dropped if the peer disconnects first. On a
    busy machine, soft-RoCE may be late several times in a row. The case is then repeated, unless it
    `may_drop`. It is also repeated if a connection of C RDS does not come up, or not again. C RDS
    may wait forever for the end of a region. A region of C RDS that is in use when it is freed does
    not count either.
    """
    for _ in range(4 if OF_C else 20):
        try:
            answer = play(*args)
        except OSError as e:
            # The timeout of the case has no error number.
            if isinstance(e, TimeoutError) and not (OF_C and e.errno):
                raise
            answer = f"failed: {ERRORS.get(e.errno)}"
        except AssertionError as e:
            answer = f"failed: {e}"
        gone = OF_C and (f"{NO_CONNECTION}: not within" in str(answer) or answer in ("failed: ETIMEDOUT", IN_USE))
        if (may_drop or "DROPPED" not in str(answer)) and not gone:
            break
    return answer


OPERATIONS = (("write", True), ("read", False))


def life(back=False, **flags):
    """Uses a key, uses it again unless it was for one use, frees it, and frees it again.

    Then waits until freed regions are invalid, and uses the key once more.
    """
    def play(flags, write):
        with Ends(back) as e:
            cookie = e.register(flags=flags)
            use, free = [lambda: e.transfer(write, cookie)], [lambda: e.theirs.free(cookie)]
            steps = use + (use + free) * (not flags & USE_ONCE) + free + [lambda: e.theirs.free(0)]
            # Not after all: C RDS takes a second for the next connection.
            steps += use * (write and not flags & INVALIDATE)
            told = []
            for step in steps:
                told.append(outcome(step))
                if "reset" in told[-1]:
                    break
            return told

    return {f"{op} {name}": insist(play, some, write)
            for (name, some), (op, write) in itertools.product(named(**flags), OPERATIONS)}


@case
def lives():
    return life(READWRITE=READWRITE, USE_ONCE=USE_ONCE, **({"INVALIDATE": INVALIDATE} if HOW == "map" else {}))


@case
def lives_the_other_way():
    return life(True)


@case
def freed_with_invalidate():
    """Frees a region with INVALIDATE: when the call returns the key is invalid, whatever the
    region's own flags are."""
    def play(flags, how):
        with Ends() as e:
            cookie = e.register(flags=flags)
            before = counters().get(FLUSHES)
            freed = outcome(e.theirs.free, cookie, how)
            # A message of C RDS has its region in use until its completion was handled, which may
            # be after its acknowledgment. The region is then freed later.
            if OF_C and HOW == "map" and counters()[FLUSHES] == before:
                return IN_USE
            return [freed, e.transfer(True, cookie)]

    return {"the call's": insist(play, READWRITE, INVALIDATE), "the region's": insist(play, READWRITE | INVALIDATE, 0)}


@case
def flags_of_operations():
    out = {}
    with Ends() as e:
        cookie = e.register()
        for (op, write), payload in itertools.product(OPERATIONS, (b"done", b"")):
            for name, flags in [*named(FENCE=FENCE, NOTIFY_ME=NOTIFY_ME, SILENT=SILENT),
                                *((x, NOTIFY_ME | y) for x, y in (
                                    ("USE_ONCE", USE_ONCE), ("INVALIDATE", INVALIDATE), ("DONTWAIT", DONTWAIT),
                                    ("REMOTE_COMPLETE", REMOTE_COMPLETE), ("unknown", UNKNOWN)))]:
                # Without a fence it is undefined how much of a read is complete when its message
                # arrives.
                if not write and not flags & (FENCE | NOTIFY_ME):
                    continue
                out[f"{op} {name}{'' if payload else ', empty'}"] = e.transfer(
                    write, cookie, flags=flags, payload=payload)
    return out


@case
def flags_of_refused_operations():
    """Runs operations with a key that no region has."""
    def play(write, flags, payload, recverr=None):
        with Ends() as e:
            if recverr is not None:
                e.user.set_raw(RECVERR, struct.pack("=i", recverr))
            return e.transfer(write, e.register() ^ 0xff, flags=flags, payload=payload)

    out = {}
    for name, flags in named(NOTIFY_ME=NOTIFY_ME, SILENT=SILENT):
        out[f"write {name}"] = insist(play, True, flags, b"done")
        if flags & SILENT:
            out[f"write {name}, empty"] = insist(play, True, flags, b"")
    for name, flags in (("NOTIFY_ME", NOTIFY_ME), ("none", 0)):
        out[f"read {name}"] = insist(play, False, flags, b"done")
    out["write none, no RECVERR"] = insist(play, True, 0, b"done", False)
    # C RDS reports that it was dropped.
    recverr = insist(play, True, 0, b"done", True, may_drop=True)
    out["write none, RECVERR"] = recverr.replace("REMOTE_ERROR", "DROPPED")
    return out


@case
def calls_without_room():
    """Receives without room for control messages after an operation with a key that no region has.

    Each call receives until the socket is empty: the message that arrives then, and possibly an
    empty result.
    """
    calls = {"recv": lambda s: s.recv(100), "recvfrom": lambda s: s.recvfrom(100)[0],
             "read": lambda s: os.read(s.fileno(), 100), "recvmsg": lambda s: s.recvmsg(100, 15)[0]}

    def play(receive, flags, recverr):
        with Ends() as e:
            if recverr is not None:
                e.user.set_raw(RECVERR, struct.pack("=i", recverr))
            before = counters()["conn_reset"]
            control, _place = rdma.transfer(e.register() ^ 0xff, (0, 64), [(e.ours.base, 64)], READWRITE | flags, 1)
            rdma.send(e.user, b"lost", control)
            eventually("the end of the connection", lambda: counters()["conn_reset"] != before)
            e.release()
            rdma.send(e.owner, b"after")
            # C RDS reports the end of an operation when the connection next sends, before or after
            # that message.
            told, awaited = [], {b"after"} | ({b""} if flags & NOTIFY_ME or recverr else set())
            while awaited - set(told):
                told.append(receive(e.user.sock))
            e.user.sock.setblocking(False)
            while isinstance(more := outcome(receive, e.user.sock), bytes):
                told.append(more)
            assert more == "EAGAIN", more
            words = {b"after": "message", b"": "nothing"}
            return ", ".join(sorted(words[x] for x in told))

    asked = {**{name: (0, None) for name in calls}, "recv, no RECVERR": (0, False), "recv, RECVERR": (0, True),
             "recv, NOTIFY_ME": (NOTIFY_ME, None)}
    return {name: insist(play, calls[name.partition(",")[0]], *how) for name, how in asked.items()}


@case
def bounds():
    """Operates on a region of 5,000 bytes that begins at byte 1,000 of a page, and on one of 1 MiB.
    """
    start, length, out = PAGE + 1000, 5000, {}
    # Names of cases, and the arguments of transfer().
    odd = [(i * 100, 3) for i in range(40)]
    places = {
        "whole": {"pieces": ((0, length),)},
        "part": {"at": 1234, "pieces": ((5, 2000),)},
        "first byte": {"pieces": ((7, 1),)},
        "last byte": {"at": length - 1, "pieces": ((7, 1),)},
        "byte behind": {"at": length, "pieces": ((7, 1),)},
        "over its end": {"at": length - 10, "pieces": ((7, 20),)},
        "over the end of its pages": {"at": 2 * PAGE - 1010, "pieces": ((7, 20),)},
        "byte before": {"at": -1, "pieces": ((7, 1),)},
        "byte before its pages": {"at": -1001, "pieces": ((7, 1),)},
        "nothing": {"pieces": ((0, 0),)},
        "a byte and nothing": {"pieces": ((0, 1), (1, 0))},
        "no pieces": {"pieces": ()},
        "40 pieces": {"pieces": odd},
        "one byte each": {"pieces": [(i * 2, 1) for i in range(1024)]},
        "1025 pieces": {"pieces": [(i * 2, 1) for i in range(1025)]},
        "the same piece twice": {"pieces": ((0, 10), (0, 10))},
        "less than it says": {"pieces": ((0, 10),), "bytes_": 20},
        "less than it says, beyond the end": {"pieces": ((0, 10),), "bytes_": length + 1},
        "more than it says": {"pieces": ((0, 20),), "bytes_": 10},
        "none, it says": {"pieces": ((0, 20),), "bytes_": 0},
        "1 MiB and one, it says": {"pieces": ((0, 10),), "bytes_": (1 << 20) + 1},
    }

    def play(write, how):
        with Ends() as e:
            return e.transfer(write, e.register(start, length), start=start, **how)

    for (where, how), (op, write) in itertools.product(places.items(), OPERATIONS):
        # A read to the same bytes twice: the device decides which one is last.
        if write or where != "the same piece twice":
            out[f"{op} {where}"] = insist(play, write, how)
    whole = 1 << 20
    with Ends(pages=260) as e:
        for name, at in (("1 MiB", 0), ("1 MiB, odd", 77)):
            cookie = outcome(e.register, at, whole)
            for op, write in OPERATIONS:
                out[f"{op} {name}"] = e.transfer(write, cookie, start=at, pieces=((5, whole),))
    return out


@case
def atomics():
    """Runs atomics on a number of the peer, which is 5.

    The place for the old value contains 1 before. "fetched": the old value was written there.
    """
    number = struct.Struct("=Q")
    kinds = {
        "add": (FETCH_ADD, [3], 8),
        "swap": (COMPARE_SWAP, [5, 7], 7),
        "swap another": (COMPARE_SWAP, [6, 7], 5),
        "masked add, no mask": (MASKED_FETCH_ADD, [3, 0], 8),
        "masked add": (MASKED_FETCH_ADD, [3, 1 << 3], 8),
        "masked swap, all bits": (MASKED_COMPARE_SWAP, [5, 7, ALL, ALL], 7),
        "masked swap": (MASKED_COMPARE_SWAP, [5, 7, 1, 2], 7),
    }
    asked = {name: ({}, *what) for name, what in kinds.items()} | {
        **{f"add {name}": ({"flags": flags}, *kinds["add"]) for name, flags in (
            ("FENCE", FENCE | NOTIFY_ME), ("SILENT", SILENT | NOTIFY_ME), ("untold", 0))},
        "add without READWRITE": ({"region": 0}, *kinds["add"]),
        "add behind the end": ({"at": 2 * PAGE}, *kinds["add"]),
        "add at 4": ({"at": 4}, *kinds["add"]),
        "add to 4": ({"into": 4}, *kinds["add"]),
        "add to nowhere": ({"to": 8}, *kinds["add"]),
        "add, bad key": ({"wrong": 0xff}, *kinds["add"]),
    }

    def play(how, kind, numbers, after):
        with Ends(pages=8) as e:
            at, flags = how.get("at", 0), how.get("flags", NOTIFY_ME)
            cookie = e.register(flags=how.get("region", READWRITE)) ^ how.get("wrong", 0)
            e.theirs.fill(at, number.pack(5))
            e.ours.fill(0, number.pack(1))
            wanted = e.theirs.pages[:at] + number.pack(after) + e.theirs.pages[at + 8:]
            control = rdma.atomic(kind, cookie, how.get("to", e.ours.base) + how.get("into", 0), at, numbers, flags, 1)
            told = e.operate(control, b"" if flags & SILENT else b"done", flags, e.theirs, wanted)

            def is_fetched():
                return e.ours.pages[:8] == number.pack(5)

            # The answer to an atomic without a notification may come behind that to its message.
            end = time.monotonic() + CALL_TIMEOUT
            while told.startswith("moved") and not is_fetched() and time.monotonic() < end:
                time.sleep(0.005)
            return told + ", fetched" * is_fetched()

    return {name: insist(play, *what) for name, what in asked.items()}


@case
def registrations():
    """Returns the answers to calls that register memory."""
    nothing, readable = protected(PROT_NONE), protected(PROT_READ)
    mib, out = 1 << 20, {}

    def ask(sock, address, length, flags=READWRITE, told=None, cut=32):
        raw = struct.pack("=QQQQ", address, length, where if told is None else told, flags)[:cut]
        if HOW == "map":
            return rdma.send(sock, b"", (SOL_RDS, MAP, raw))
        if HOW == "dest":
            return sock.set_raw(rdma.GET_MR_FOR_DEST, struct.pack("=HH124x", socket.AF_INET, 0) + raw)
        return sock.set_raw(rdma.GET_MR, raw)

    def answer(*args, **kwargs):
        told = outcome(lambda: ask(*args, **kwargs))
        return told if isinstance(told, str) and told != "ok" else "registered"

    with Ends(pages=261) as e:
        memory, where = e.theirs, e.theirs.base + 260 * PAGE
        for name, flags in named(READWRITE=READWRITE, USE_ONCE=USE_ONCE, INVALIDATE=INVALIDATE):
            out[name] = answer(e.owner, memory.base, PAGE, flags)
        asked = {
            "FENCE": {"flags": FENCE}, "unknown": {"flags": UNKNOWN}, "all": {"flags": ALL},
            "a byte": {"length": 1}, "no bytes": {"length": 0}, "wraps": {"length": ALL}, "4 GiB": {"length": 1 << 32},
            "1 MiB": {"length": mib}, "1 MiB, odd": {"address": memory.base + 5, "length": mib},
            "257 pages": {"length": 257 * PAGE}, "257 pages and a byte": {"length": 257 * PAGE + 1},
            "not there": {"address": 8}, "in the kernel": {"address": 0xffff888000000000},
            "no access": {"address": nothing[1]}, "read-only": {"address": readable[1], "flags": 0},
            "read-only, READWRITE": {"address": readable[1]}, "half there": {"address": nothing[1] - 8},
            "nowhere to tell": {"told": 8}, "not to be told": {"told": 0}, "short": {"cut": 31},
        }
        for name, how in asked.items():
            out[name] = answer(e.owner, how.pop("address", memory.base), how.pop("length", PAGE), **how)
        before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, before[1]))
        os.seteuid(NOBODY)
        for name, length in (("a page", PAGE), ("no bytes", 0), ("too many bytes", 258 * PAGE), ("4 GiB", 1 << 32),
                             ("wraps", ALL)):
            out[f"{name}, nothing may be locked"] = answer(e.owner, memory.base, length)
        os.seteuid(0)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (PAGE, before[1]))
        os.seteuid(NOBODY)
        out["two pages, one may be locked"] = answer(e.owner, memory.base, 2 * PAGE)
        os.seteuid(0)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, before)
        with Sock(None, CALL_TIMEOUT) as s:
            out["unbound"] = answer(s, memory.base, PAGE)
        with Sock(("127.0.0.1", 0), CALL_TIMEOUT) as s:
            s.connect("127.0.0.1", 4999)
            out["loopback"] = answer(s, memory.base, PAGE)
        with Sock((ADDRESSES[1], 0), CALL_TIMEOUT) as s:
            s.connect(ADDRESSES[0], 4999)
            s.set_tos(255)
            out["without a connection"] = answer(s, memory.base, PAGE)
        for name, cookie in (("nobody's", 12345), ("all", 0)):
            out[f"free {name}"] = outcome(e.theirs.free, cookie)
        with Sock() as s:
            for name, cookie in (("nobody's", 12345), ("all", 0)):
                out[f"free {name}, unbound"] = outcome(s.set_raw, rdma.FREE_MR, struct.pack("=QQ", cookie, 0))
        with Sock() as s:
            s.pin("infiniband")
            out["free all, transport chosen"] = outcome(s.set_raw, rdma.FREE_MR, bytes(16))
        out["free, short"] = outcome(e.owner.set_raw, rdma.FREE_MR, bytes(15))
        e.cookies = []
    return out


@case
def arguments():
    """Returns the answers to calls with invalid arguments, and to calls that ask for several
    operations."""
    out, (_nothing, nowhere), (_readable, read_only) = {}, protected(PROT_NONE), protected(PROT_READ)
    with Ends() as e:
        cookie, base = e.register(), e.ours.base

        def raw(pieces=((base, 64),), flags=0, count=None, place=None, size=64):
            local = b"".join(struct.pack("=QQ", *x) for x in pieces)
            kept.append(ctypes.create_string_buffer(local, len(local)))
            return struct.pack("=QQQQQQQ", cookie, 0, size, place or ctypes.addressof(kept[-1]),
                               len(pieces) if count is None else count, flags, 1)

        def ask(*controls, sock=e.user, payload=b"bad"):
            return outcome(lambda: rdma.send(sock, payload, *((SOL_RDS, kind, data) for kind, data in controls)))

        kept = []
        bad = {
            "nowhere": {"pieces": ((8, 64),)}, "no access": {"pieces": ((nowhere, 64),)},
            "in the kernel": {"pieces": ((0xffff888000000000, 64),)},
            "second nowhere": {"pieces": ((base, 10), (8, 10))},
            "wraps": {"pieces": ((base, ALL),)}, "4 GiB": {"pieces": ((base, 1 << 32),)},
            "pieces nowhere": {"place": 8}, "2^60 pieces": {"count": 1 << 60},
        }
        for (name, how), (op, flags) in itertools.product(bad.items(), (("write", READWRITE), ("read", 0))):
            out[f"{op} {name}"] = ask((rdma.ARGS, raw(flags=flags, **how)))
        out["read to read-only"] = ask((rdma.ARGS, raw(((read_only, 64),))))
        out["short"] = ask((rdma.ARGS, raw()[:55]))
        # Two arguments are wrong.
        long = bytes((1 << 20) + 1)
        out["short, long message"] = ask((rdma.ARGS, raw()[:55]), payload=long)
        out["short cookie, long message"] = ask((DEST, bytes(7)), payload=long)
        out["unknown, long message"] = ask((1234, b""), payload=long)
        out["no pieces, 1 MiB and one"] = ask((rdma.ARGS, raw((), size=len(long))))
        out["1025 pieces, 1 MiB and one"] = ask((rdma.ARGS, raw(((base, 1),) * 1025, size=len(long))))
        with Sock(None, CALL_TIMEOUT) as s:
            out["unbound"] = ask((rdma.ARGS, raw()), sock=s)
        with Sock(("127.0.0.1", 0), CALL_TIMEOUT) as s:
            s.connect("127.0.0.1", 4999)
            out["loopback"] = ask((rdma.ARGS, raw()), sock=s)
            out["loopback, pieces nowhere"] = ask((rdma.ARGS, raw(place=8)), sock=s)
        args = rdma.ARGS, raw()
        dest = DEST, struct.pack("=Q", cookie)
        add = rdma.atomic(FETCH_ADD, cookie, base, 0, [1], 0)[1:]
        fresh = MAP, struct.pack("=QQQQ", base, PAGE, 0, READWRITE)
        for name, controls in {"two operations": (args, args), "two atomics": (add, add), "two cookies": (fresh, fresh),
                               "another's cookie": (dest,), "an operation and a cookie": (args, fresh),
                               "an operation and an atomic": (args, add)}.items():
            out[name] = ask(*controls)
    return out


if __name__ == "__main__":
    main()
