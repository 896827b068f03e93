# SPDX-License-Identifier: GPL-2.0
"""readers.py HOST: processes that wait for messages at one socket, and the order in which they are
woken."""

import contextlib
import ctypes
import errno
import os
import signal
import socket
import sys

from cases import PATIENCE, WAITS_IN, eventually, need, outcome
from rds import Sock, libc

COUNT = 16


def visit_all_cpus():
    """Runs on each processor in turn.

    Each of them then has completed the context switches that it had begun before.
    """
    cpus = os.sched_getaffinity(0)
    for cpu in cpus:
        os.sched_setaffinity(0, {cpu})
    os.sched_setaffinity(0, cpus)


class Waiting:
    """A process that makes one call and reports the result."""

    def __init__(self, call):
        self.told, mine = os.pipe()
        self.running = True
        self.pid = os.fork()
        if not self.pid:
            os.write(mine, call())
            os._exit(0)
        os.close(mine)
        eventually("a process waits", self.waits)
        # The switch is counted slightly after the process begins to wait.
        visit_all_cpus()
        self.switches = self.seen()

    def _look(self, name):
        with open(f"/proc/{self.pid}/{name}", encoding="ascii") as f:
            return f.read()

    def waits(self):
        return self._look("wchan") == WAITS_IN

    def seen(self):
        return int(self._look("status").split("voluntary_ctxt_switches:")[1].split()[0])

    def woken(self):
        """Returns how often the process was woken since it began to wait.

        Valid only while it waits.
        """
        need(self.waits(), "it does not wait any more")
        return self.seen() - self.switches

    def end(self):
        """Returns the result of the call."""
        with open(self.told, "rb") as f:
            text = f.read()
        need((status := self._wait()) == 0, f"it ended with {status}")
        return text

    def kill(self):
        if self.running:
            os.kill(self.pid, signal.SIGKILL)
            self._wait()

    def _wait(self):
        self.running = False
        return os.waitpid(self.pid, 0)[1]


@contextlib.contextmanager
def readers(*calls):
    """Yields processes in the order in which they began to wait."""
    found = []
    try:
        for what in calls:
            found.append(Waiting(what))
        yield found
    finally:
        for x in found:
            x.kill()


def one_each(host):
    """A message wakes one reader: the one that has waited longest."""
    with Sock((host, 0)) as r, Sock((host, 0)) as s, readers(*[lambda: r.recv()[0]] * COUNT) as found:
        for number, reader in enumerate(found):
            s.send(b"%d" % number, r.name())
            need((got := reader.end()) == b"%d" % number, f"reader {number} got {got}")
            need(not any(x.woken() for x in found[number + 1:]), "others were woken, too")


def all_at_once(host):
    """No message waits while a reader does."""
    with Sock((host, 0)) as r, Sock((host, 0)) as s, readers(*[lambda: r.recv()[0]] * COUNT) as found:
        for number in range(COUNT):
            s.send(b"%d" % number, r.name())
        got = sorted(int(x.end()) for x in found)
        need(got == list(range(COUNT)), f"{got} came")


def left(host):
    """A reader that was woken and has left the message wakes the next one."""
    with Sock((host, 0)) as r, Sock((host, 0)) as s:
        def look():
            return r.recv(100, socket.MSG_PEEK)[0]

        def fail():
            need(libc.recv(r.fileno(), ctypes.c_void_p(1), 100, 0) == -1, "read to where nothing is")
            return errno.errorcode[ctypes.get_errno()].encode()

        with readers(look, look, fail, lambda: r.recv()[0]) as found:
            s.send(b"text", r.name())
            need((got := [x.end() for x in found]) == [b"text", b"text", b"EFAULT", b"text"], f"{got} came")


def gone(host):
    """A reader that was killed does not wait any more."""
    with Sock((host, 0)) as r, Sock((host, 0)) as s, readers(*[lambda: r.recv()[0]] * 3) as found:
        found[0].kill()
        s.send(b"text", r.name())
        need((got := found[1].end()) == b"text", f"{got} came")
        need(not found[2].woken(), "another was woken, too")


def sender(host):
    """Messages do not wake a sender that waits for room, and room does not wake readers."""
    with Sock((host, 0)) as full, Sock((host, 0)) as s, Sock((host, 0)) as both:
        full.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        count = 0
        while outcome(s.send, bytes(1000), full.name(), socket.MSG_DONTWAIT) != "ENOBUFS":
            count += 1
        with readers(lambda: b"%d" % both.send(b"more", full.name()), *[lambda: both.recv()[0]] * 2) as found:
            writer, *reading = found
            s.send(b"text", both.name())
            need((got := reading[0].end()) == b"text", f"{got} came")
            need(not writer.woken(), "a message has woken who waits for room")
            for _ in range(count):
                full.recv()
            need((got := writer.end()) == b"4", f"{got} bytes were sent")
            # Room is an event for readers that asked for it.
            eventually("the reader waits again", reading[1].waits)


def hung(*_):
    raise AssertionError("nobody is woken any more")


def main():
    signal.signal(signal.SIGALRM, hung)
    for case in one_each, all_at_once, left, gone, sender:
        signal.alarm(PATIENCE)
        try:
            case(sys.argv[1])
        except (AssertionError, OSError) as e:
            raise SystemExit(f"{case.__name__}: {e!r}") from e
    print("all")


main()
