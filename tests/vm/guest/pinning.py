# SPDX-License-Identifier: GPL-2.0
"""pinning.py CASE...: accounting of memory that a device uses, its release, and the limit of unread
notifications.

On one machine.
"""

import os
import resource
import signal
import struct
import sys

import rdma
from cases import IB, need, outcome, play
from knobs import knob
from rdma import SILENT, Memory, Pair
from rds import Sock

PAGE = 4096
LIMIT = 4
MAX_UNREAD = 16384


class Program:
    """A process of a user, with its own memory and a limit of LIMIT locked pages."""

    def __init__(self, uid):
        asks, self.ask = os.pipe()
        self.answer, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self.ask)
                resource.setrlimit(resource.RLIMIT_MEMLOCK, (LIMIT * PAGE, LIMIT * PAGE))
                os.setresuid(uid, uid, uid)
                memory = Memory(Sock((IB[0], 0)), 2 * LIMIT)
                while pages := os.read(asks, 1):
                    os.write(answers, str(outcome(memory.register, 0, pages[0] * PAGE)).encode())
            finally:
                os._exit(0)
        os.close(asks)
        os.close(answers)

    def register(self, pages):
        """Returns the name of the error, or None."""
        os.write(self.ask, bytes([pages]))
        told = os.read(self.answer, 100).decode()
        need(told, "the program has ended")
        return None if told.isdigit() else told

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def processes():
    """Each process has its own limit, as with mlock(2) and with user verbs, even of the same user.
    """
    first, second, other = programs = [Program(uid) for uid in (1000, 1000, 1001)]
    need(first.register(LIMIT - 1) is None, "the first has room")
    need(first.register(2) == "ENOMEM", "it has room for more")
    need(first.register(1) is None, "it has no room for one more page")
    need(second.register(LIMIT) is None, "another process of the same user has none")
    need(other.register(LIMIT) is None, "another user has none")
    need({x.register(1) for x in programs} == {"ENOMEM"}, "some have more room than their limit")
    for program in programs:
        program.end()
    rdma.unpinned(0)


def stress():
    """Uses memory as Oracle's rds-stress does with `-t 4 -d 8 -D 64K`, as a user with systemd's
    limit of locked memory.

    Each of its processes registers 64 KiB for each request of its four peers, and uses as much of
    its own memory in operations.
    """
    size, count, limit = 1 << 16, 32, 8 << 20

    def task(cookie):
        """Does the work of one process, and keeps its memory."""
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
        os.setresuid(1000, 1000, 1000)
        memory = Memory(rdma.connected((IB[0], 0), rdma.B), 2 * count * size // PAGE)
        for i in range(count):
            memory.register(i * size, size)
        for i in range(count):
            write, _place = rdma.transfer(cookie, (0, size), [(memory.base + (count + i) * size, size)],
                                          rdma.READWRITE | rdma.NOTIFY_ME | SILENT, i)
            rdma.send(memory.sock, b"", write)
        found = []
        while len(found) < count:
            found += rdma.ends(memory.sock)
        need(found == [(i, rdma.SUCCESS) for i in range(count)], f"{found}")
        kept.append(memory)

    kept = []
    with Pair(16) as p:
        cookie = p.theirs.register(0, size)
        (done, told), (go, gone) = os.pipe(), os.pipe()
        children = []
        for _ in range(4):
            if (pid := os.fork()) == 0:
                os.close(gone)
                seen = outcome(task, cookie)
                os.write(told, seen.encode() + b"\n")
                # All of them hold their memory at the same time.
                os.read(go, 1)
                os._exit(0)
            children.append(pid)
        os.close(told)
        found = b""
        while found.count(b"\n") < 4 and (more := os.read(done, 100)):
            found += more
        os.close(gone)
        for pid in children:
            os.waitpid(pid, 0)
        need(found == b"ok\n" * 4, f"they got {found}")


def forked():
    """A child is not charged for what its parent has registered, and may free it."""
    with Pair(4) as p:
        before = rdma.charged()
        cookie = p.theirs.register(0, 3 * PAGE)
        need(rdma.charged() == before + 12, "three pages are charged")
        if (pid := os.fork()) == 0:
            paid = rdma.charged()
            p.theirs.free(cookie, rdma.INVALIDATE)
            os._exit(0 if paid == 0 else 1)
        _, how = os.waitpid(pid, 0)
        need(how == 0, "the child pays")
        need(rdma.charged() == before, "the parent pays still")
        need(outcome(p.theirs.free, cookie) == "EINVAL", "it is there still")


def flushed():
    """A call that frees no region waits until all regions freed before are released.

    They were freed by the same program or, on the same device, by others.
    """
    with Pair(300) as p, Sock((IB[1], 0)) as other:
        without = Memory(other, 1)
        before = rdma.pins()
        for number in range(50):
            cookies = [p.theirs.register(i * 8 * PAGE, 8 * PAGE) for i in range(30)]
            need(rdma.pins() == before + 240, "30 times 8 pages are pinned")
            for cookie in cookies:
                p.theirs.free(cookie)
            (without if number % 2 else p.theirs).free(0)
            need(rdma.pins() == before, f"{number}: some are pinned still")


def at_once():
    """Memory registered with INVALIDATE is released when it is freed, whatever the flags of the
    free are."""
    flags = rdma.READWRITE | rdma.INVALIDATE
    with Pair(300) as p:
        before = rdma.pins()
        args = struct.pack("=QQQQ", p.ours.base, 200 * PAGE, 0, flags)
        for _ in range(50):
            p.ours.free(p.ours.register(0, 200 * PAGE, flags))
            need(rdma.pins() == before, "some of what was registered alone are pinned still")
            rdma.send(p.a, b"", (rdma.SOL_RDS, rdma.MAP, args))
            _, ((_, cookie),) = rdma.receive(p.b)
            p.ours.free(*struct.unpack("=Q", cookie))
            need(rdma.pins() == before, "some of what was registered with a message are pinned still")


def unread():
    """MAX_UNREAD notifications may be unread.

    Each is reported once, in order, and then there is room for more.
    """
    with Pair(4) as p:
        cookie = p.theirs.register(0, PAGE)
        count = 0
        while (told := outcome(p.write, b"", cookie, [(0, 1)], count, SILENT)) == 0:
            count += 1
        need(told == "ENOBUFS", told)
        # Those in flight had not ended yet.
        need(count >= MAX_UNREAD, f"{count} may be left unread")
        found = []
        while len(found) < count:
            found += rdma.ends(p.a)
        need(found == [(token, rdma.SUCCESS) for token in range(count)], "how they ended")
        p.write(b"", cookie, [(0, 1)], count, SILENT)
        need(rdma.status(p.a) == (count, rdma.SUCCESS), "another one")


def unasked():
    """A program that has not asked for notifications need not read them.

    MAX_UNREAD are kept, and the others are dropped.
    """
    nowhere, before, some = ("10.9.0.200", 4001), rdma.pins(), 128
    with rdma.connected(rdma.A, nowhere) as a:
        ours = Memory(a, 1)
        write, _place = rdma.transfer(1, (0, 1), [(ours.base, 1)], rdma.READWRITE | SILENT)
        for _ in range(MAX_UNREAD // some + 2):
            for _ in range(some):
                rdma.send(a, b"", write)
            a.cancel(*nowhere)
        # After this all operations have been reported.
        rdma.unpinned(before)
        a.sock.setblocking(False)
        found = 0
        while isinstance(some := outcome(rdma.ends, a), list):
            need({how for _, how in some} == {rdma.CANCELED}, f"{some}")
            found += len(some)
        need((some, found) == ("EAGAIN", MAX_UNREAD), f"{found} are told, then {some}")


def refused():
    """Memory that cannot be pinned, as of files on persistent memory, is refused, and not charged.

    The fault injection of the module makes all memory such.
    """
    with Pair(4) as p:
        cookie = p.theirs.register(0, PAGE)
        before = rdma.charged()
        knob("fail_pin/probability", 100)
        try:
            need(outcome(p.theirs.register, PAGE, PAGE) == "EOPNOTSUPP", "memory for peers")
            need(outcome(p.write, b"", cookie, [(0, PAGE)], 1) == "EOPNOTSUPP", "memory of an operation")
        finally:
            knob("fail_pin/probability", 0)
        need(rdma.charged() == before, "it is charged")
        p.write(b"after", cookie, [(0, PAGE)], 2)
        need(rdma.receive(p.b)[0] == b"after", "the message after it")
        need(rdma.status(p.a) == (2, rdma.SUCCESS), "the write after it")


if __name__ == "__main__":
    play(globals(), sys.argv[1:])
