# SPDX-License-Identifier: GPL-2.0
"""fail_nth.py ATOMICS [NAME...]: each allocation and each copy from or to the program fails once,
in calls of the socket interface.

The default is all calls. A call reports the failure, or succeeds completely. Then the same call
succeeds. At the end there are as many sockets as before, no more pinned or charged memory, and all
send buffers are empty.

ATOMICS is 1 if the devices have them. The fault injection of the kernel has to be limited to this
module.
"""

import ctypes
import select
import socket
import struct
import sys

import rdma
from cases import IB, IB6, LOOP, LOOP6, eventually, need, outcome
from nth import Nth
from rdma import FENCE, FREE_MR, MAP, NOTIFY_ME, READWRITE
from rds import SO_RDS_TRANSPORT, SOL_RDS, Sock, call, info, libc, recvmsg

PAGE = 4096
RECVERR, CONG_MONITOR, LATENCY = 5, 6, 10
SO_TIMESTAMP = 29
INFO = range(10000, 10022)
# Tables of unsent and of unacknowledged messages.
SENT = 10012, 10013
LONG = 40000
# The last two are errors of memory that cannot be mapped, and of memory that cannot be pinned.
ERRORS = ("ENOMEM", "EFAULT", "ENOBUFS", "EAGAIN", "EIO", "EOPNOTSUPP")
# A call with more steps than this does not end.
MOST = 400


class Call:
    """A call that is repeated.

    `make` returns what the call needs, `do` is the call, `right` says if it did what it should, and
    `undo` removes its result.
    """

    def make(self):
        return None

    def right(self, told, _it):
        return told == "ok"

    def undo(self, it):
        if it is not None:
            it.sock.close()

    def refused(self, it):
        """Runs after a call that was refused, before the next one."""


class Open(Call):
    def do(self, _):
        self.sock = Sock()

    def undo(self, _):
        self.sock.sock.close()

    def refused(self, _):
        self.sock = None


class Bind(Call):
    def __init__(self, host):
        self.host = host

    def make(self):
        return Sock()

    def do(self, it):
        it.bind(self.host)

    def right(self, told, it):
        return told == "ok" and it.name()[0] == self.host


class Connect(Call):
    def __init__(self, *ends):
        self.ends = ends

    def make(self):
        return Sock((self.ends[0], 0))

    def do(self, it):
        it.connect(self.ends[1], 4001)

    def right(self, told, it):
        return told == "ok" and it.peer() == (self.ends[1], 4001)


class Option(Call):
    """A call on a socket with a known answer. The socket is bound if there is an address."""

    def __init__(self, do, answer="ok", host=IB[0]):
        self.do, self.answer, self.host = do, answer, host

    def make(self):
        return Sock(self.host and (self.host, 0))

    def right(self, told, _it):
        return told == self.answer


class Info(Call):
    """A table, with rows if it has any."""

    def __init__(self, option):
        self.option = option

    def make(self):
        return Sock((IB[0], 0))

    def do(self, it):
        room = ctypes.create_string_buffer(1 << 18)
        return call("getsockopt", it.fileno(), SOL_RDS, self.option, room, ctypes.byref(ctypes.c_uint32(len(room))))

    def right(self, told, _it):
        return isinstance(told, int) or told == "ENOPROTOOPT"


class Talk:
    """Two sockets that have exchanged messages."""

    def __init__(self, here, there):
        self.near, self.far = Sock((here, 0), 60), Sock((there, 0), 60)
        for one, other in ((self.near, self.far), (self.far, self.near)):
            one.connect(*other.name())
            one.send(b"first")
            other.recv()

    def close(self):
        """Closes the sockets.

        Before that the send buffer must have all of its room: refused sends take none.
        """
        self.near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        for _ in range(3):
            acknowledged()
            need(self.near.send(bytes(LONG), None, socket.MSG_DONTWAIT) == LONG, "there is no room")
            self.far.recv()
        acknowledged()
        for x in (self.near, self.far):
            x.sock.close()


def acknowledged():
    """Waits until all send buffers are empty."""
    eventually("all is acknowledged", lambda: not any(info(x) for x in SENT), 120)


class Message(Call):
    """A message that arrives, or is refused and does not arrive."""

    def __init__(self, talk, size):
        self.talk, self.data = talk, bytes(i % 251 for i in range(size))

    def do(self, _):
        return self.talk.near.send(self.data)

    def right(self, told, _it):
        if told != len(self.data):
            return False
        need(self.talk.far.recv()[0] == self.data, "other bytes came")
        return True

    def refused(self, _):
        need(not select.select([self.talk.far], [], [], 0)[0], "it was refused, and has come")


class Receive(Call):
    """A message that is read, or stays in the queue."""

    def __init__(self, talk, size, flags=0):
        self.talk, self.data, self.flags = talk, bytes(i % 241 for i in range(size)), flags

    def make(self):
        self.talk.near.send(self.data)
        eventually("a message to come", lambda: select.select([self.talk.far], [], [], 1)[0])

    def do(self, _):
        return recvmsg(self.talk.far, len(self.data), 200, self.flags | socket.MSG_DONTWAIT)[0]

    def right(self, told, _it):
        return told == self.data

    def undo(self, _):
        while outcome(self.talk.far.recv, 1 << 20, socket.MSG_DONTWAIT) != "EAGAIN":
            pass


class Poll(Call):
    def __init__(self, talk):
        self.talk = talk

    def do(self, _):
        return [len(x) for x in select.select([self.talk.far], [self.talk.far], [], 0)]

    def right(self, told, _it):
        return told == [0, 1, 0]


class Close(Call):
    """Closes a socket that has an unread message and registered memory. This always succeeds."""

    def make(self):
        sock = Sock((IB[0], 0), 60)
        sock.connect(*sock.name())
        sock.send(b"unread")
        self.memory = rdma.Memory(sock, 3)
        self.memory.register(0, 2 * PAGE)
        self.number = sock.sock.detach()
        return sock

    def do(self, _):
        need(libc.close(self.number) == 0, "close() fails")
        self.number = None

    def undo(self, _):
        if self.number is not None:
            libc.close(self.number)


class Register(Call):
    def __init__(self, memory, length, flags=READWRITE, dest=None):
        self.memory, self.length, self.flags, self.dest = memory, length, flags, dest

    def do(self, _):
        self.cookie = None
        self.cookie = rdma.register(self.memory.sock, self.memory.base + 100, self.length, self.flags, self.dest)
        return self.cookie

    def right(self, told, _it):
        return isinstance(told, int) and told != 0

    def undo(self, _):
        if self.cookie is not None:
            self.memory.free(self.cookie, rdma.INVALIDATE)


class Free(Call):
    """Frees a region. If the arguments cannot be read it stays; otherwise the cookie is invalid."""

    def __init__(self, memory, flags):
        self.memory, self.flags = memory, flags

    def make(self):
        self.cookie = self.memory.register(0, PAGE)

    def do(self, _):
        self.memory.free(self.cookie, self.flags)

    def undo(self, _):
        pass


class Operation(Call):
    """A message with an operation, which succeeds or is reported to have failed."""

    def __init__(self, pair, cookie, ask):
        self.pair, self.cookie, self.ask, self.token = pair, cookie, ask, 0

    def do(self, _):
        self.token += 1
        return self.ask(self.pair, self.cookie, self.token)

    def right(self, told, _it):
        if isinstance(told, str):
            return False
        found = rdma.status(self.pair.a)
        need(found[0] == self.token, f"{found} instead of operation {self.token}")
        if found[1] == rdma.SUCCESS:
            # A message may have arrived although its operation failed.
            while self.pair.b.recv()[0] != b"%d" % self.token:
                pass
            return True
        # Other operations may have been in flight with it when it failed: those must be repeated.
        need(found[1] in (rdma.DROPPED, rdma.OTHER_ERROR), f"{found}")
        need(self.right(outcome(self.do, None), None), "the next one fails, too")
        return True

    def refused(self, _):
        for s in (self.pair.a, self.pair.b):
            need(not select.select([s], [], [], 0)[0], "it was refused, and something is told")


class Map(Call):
    """A message that registers memory. It carries the cookie."""

    def __init__(self, pair):
        self.pair = pair

    def do(self, _):
        ours = self.pair.ours
        args = struct.pack("=QQQQ", ours.base, PAGE, ours.base + 40 * PAGE, READWRITE)
        return rdma.send(self.pair.a, b"map", (SOL_RDS, MAP, args))

    def right(self, told, _it):
        if told != 3:
            return False
        need(self.pair.b.recv()[0] == b"map", "another message")
        self.pair.ours.free(struct.unpack_from("=Q", self.pair.ours.pages, 40 * PAGE)[0], rdma.INVALIDATE)
        return True


def on_a_socket(talks, loop):
    """Returns calls on one socket, or on a pair of sockets that are connected."""
    number = struct.pack("=i", 1)
    calls = {"socket": Open(), "close": Close(), "poll": Poll(talks[0])}
    for host in (IB[0], IB6[0], LOOP, LOOP6):
        calls[f"bind {host}"] = Bind(host)
    for ends in (IB, IB6, (LOOP, LOOP)):
        calls[f"connect {ends[1]}"] = Connect(*ends)
    for name, option in (("RECVERR", RECVERR), ("CONG_MONITOR", CONG_MONITOR), ("TIMESTAMP", SO_TIMESTAMP)):
        calls[f"set {name}"] = Option(lambda s, x=option: s.set_raw(x, number))
    calls |= {
        "set LATENCY": Option(lambda s: s.set_raw(LATENCY, bytes((3, 0, 1, 2)))),
        "cancel": Option(lambda s: s.cancel(IB[1], 4001)),
        "choose a transport": Option(lambda s: s.pin("infiniband"), host=None),
        "get RECVERR": Option(lambda s: s.sock.getsockopt(SOL_RDS, RECVERR), 0),
        "get TRANSPORT": Option(lambda s: s.sock.getsockopt(SOL_RDS, SO_RDS_TRANSPORT), 0),
        "set tos": Option(lambda s: s.set_tos(0)),
        "get tos": Option(lambda s: s.tos(), 0),
        "getsockname": Option(lambda s: s.name()[0], IB[0]),
    }
    calls |= {f"info {x}": Info(x) for x in INFO}
    for where, talk in zip(("device", "device6", "loop"), (*talks, loop)):
        for size in (0, 100, LONG):
            calls[f"send {size} {where}"] = Message(talk, size)
            calls[f"receive {size} {where}"] = Receive(talk, size)
        calls[f"peek {where}"] = Receive(talk, 5000, socket.MSG_PEEK)
    return calls


def of_memory(pair, atomics):
    """Returns calls on memory."""
    cookie = pair.theirs.register(0, 40 * PAGE)
    areas = [(100, 30 * PAGE)]
    operations = {
        "write": lambda p, c, t: p.write(b"%d" % t, c, areas, t),
        "write pieces": lambda p, c, t: p.write(b"%d" % t, c, [(i * PAGE, 100) for i in range(4)], t),
        "read": lambda p, c, t: p.read(b"%d" % t, c, areas, t, FENCE),
        "add": lambda p, c, t: rdma.send(p.a, b"%d" % t, rdma.atomic(rdma.FETCH_ADD, c, p.ours.base, 0, [1], NOTIFY_ME, t)),
    }
    if not atomics:
        del operations["add"]
    calls = {name: Operation(pair, cookie, ask) for name, ask in operations.items()}
    return calls | {
        "get": Register(pair.ours, 30 * PAGE), "get read only": Register(pair.ours, PAGE, 0),
        "get for a destination": Register(pair.ours, PAGE, dest=rdma.B),
        "free": Free(pair.ours, 0), "free at once": Free(pair.ours, rdma.INVALIDATE),
        "flush": Option(lambda s: s.set_raw(FREE_MR, struct.pack("=QQ", 0, 0))), "map": Map(pair),
    }


def step(name, what, nth, number):
    """Makes one call whose NUMBERth step fails, and repeats it without a fault if it is refused.

    Returns how many more steps were needed to reach the NUMBERth, and whether the call was refused.
    """
    it = what.make()
    nth.begin(number)
    told = outcome(what.do, it)
    left = nth.end()
    refused = told in ERRORS
    if refused:
        need(left == 0, f"{name}, step {number}: {told} without a fault")
        what.refused(it)
        told = outcome(what.do, it)
    need(what.right(told, it), f"{name}, step {number}: {str(told)[:100]}, {refused=}")
    what.undo(it)
    return left, refused


def sockets():
    with open("/proc/net/protocols", encoding="ascii") as f:
        return next(int(line.split()[2]) for line in f if line.startswith("RDS "))


def each(calls):
    nth = Nth("thread-self")
    for name, what in calls.items():
        need(step(name, what, nth, MOST)[0], f"{name}: more than {MOST} steps")
        before = sockets(), rdma.pins(), rdma.charged()
        refusals = left = number = 0
        while not left:
            number += 1
            left, refused = step(name, what, nth, number)
            refusals += refused
        rdma.unpinned(*before[1:])
        eventually(f"{name}: sockets to go", lambda was=before[0]: sockets() == was)
        print(f"{name}: {number - 1} steps, {refusals} of them needed", flush=True)
        yield name, number - 1, refusals
    nth.close()


def main(atomics, *names):
    before = sockets()
    with rdma.Pair(50) as pair:
        pair.ours.scatter()
        talks = [Talk(*ends) for ends in (IB, IB6, (LOOP, LOOP))]
        calls = on_a_socket(talks[:2], talks[2]) | of_memory(pair, int(atomics))
        steps = list(each({x: calls[x] for x in names or calls}))
        for talk in talks:
            talk.close()
    eventually("all sockets to go", lambda: sockets() == before)
    if not names:
        seen = {name for name, count, _ in steps if count}
        need({"socket", "set RECVERR", "send 100 device", "get", "map", "write"} <= seen, f"no step in one of {seen}")


if __name__ == "__main__":
    main(*sys.argv[1:])
