# SPDX-License-Identifier: GPL-2.0
"""sharing.py WARM_UP ROUNDS ROW...: runs pairs of operations on two CPUs, one after the other.

Each CPU has a process of its own. In each of ROUNDS rounds, each step of an operation runs on CPU 0
and then on CPU 1. Each time it is between two marks for scripts/insntrace/lines.c. So memory that
CPU 0 frees in a step is not what CPU 1 frees in it. Prints a line of JSON for each row.
"""

import ctypes
import json
import mmap
import os
import select
import sys

from rds import Sock, call, sockaddr
from rdma import Memory

START, STOP, ARM, WAIT = 1, 2, 3, 4
SIZE = 64
REGION = 64 << 10
# Seconds. Only a message that was lost takes as long.
PATIENCE = 60
LOOP = "127.0.0.1"


def mark(number):
    """Returns a function that executes a mark: see scripts/insntrace/code.h."""
    code = b"\x0f\x1f\x84\x00" + bytes([number]) + b"SDR" + b"\xc3"
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    function = ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    function.memory = memory
    return function


MARKS = {x: mark(x) for x in (START, STOP, ARM, WAIT)}


def near(network):
    return f"10.9.{network}.1"


def far(network):
    return f"10.9.{network}.2"


def wait_for(sock):
    """Waits for a message. RDS may also report a socket whose peer's congestion map changed."""
    ready = select.poll()
    ready.register(sock, select.POLLIN)
    if not ready.poll(PATIENCE * 1000):
        sys.exit("no message came")


class Row:
    """A pair of operations: one object for each CPU.

    steps: names of the methods that are marked. The effects of settle() are recorded, but not its
    own accesses."""

    steps = ("operate",)

    def prepare(self):
        pass

    def settle(self):
        pass

    def finish(self):
        pass


class Send(Row):
    """A message to a socket on the same machine."""

    def __init__(self, here, there):
        self.sender, self.receiver = Sock((here, 0), PATIENCE), Sock((there, 0), PATIENCE)
        self.payload, self.to = bytes(SIZE), sockaddr(*self.receiver.name())

    def operate(self):
        call("sendto", self.sender.fileno(), self.payload, SIZE, 0, self.to, len(self.to))

    def settle(self):
        wait_for(self.receiver)

    def finish(self):
        self.receiver.recv(SIZE)


class Receive(Send):
    """The same message, received."""

    def __init__(self, here, there):
        super().__init__(here, there)
        self.buffer = ctypes.create_string_buffer(SIZE)

    def prepare(self):
        Send.operate(self)
        wait_for(self.receiver)

    def operate(self):
        call("recvfrom", self.receiver.fileno(), self.buffer, SIZE, 0, None, None)

    settle = finish = Row.settle


class Bind(Row):
    """bind() to a port that the kernel chooses, and close()."""

    steps = ("bind", "close")

    def __init__(self, here):
        self.address, self.fd = sockaddr(here, 0), None

    def prepare(self):
        self.fd = Sock().sock.detach()

    def bind(self):
        call("bind", self.fd, self.address, len(self.address))

    def close(self):
        os.close(self.fd)


class LookUp(Send):
    """A message over loopback, whose sender looks up the receiver among all bound sockets."""

    steps = ("operate", "nothing")

    def nothing(self):
        pass


class Register(Row):
    """A region made, and freed."""

    steps = ("register", "free")

    def __init__(self, here):
        self.memory, self.cookie = Memory(Sock((here, 0)), REGION // mmap.PAGESIZE), None
        self.memory.scatter()

    def register(self):
        self.cookie = self.memory.register(0, REGION)

    def free(self):
        self.memory.free(self.cookie)


ROWS = {
    "send-two-peers": lambda cpu: Send(near(0), far(cpu)),
    "send-one-peer": lambda cpu: Send(near(0), far(0)),
    "recv": lambda cpu: Receive(near(cpu), far(cpu)),
    "bind": lambda cpu: Bind(near(0)),
    "bind-lookup": lambda cpu: LookUp(LOOP, LOOP) if cpu else Bind(LOOP),
    "lookup": lambda cpu: LookUp(LOOP, LOOP),
    "region": lambda cpu: Register(near(0)),
}


def step(row, operation, marked):
    if not marked:
        operation()
        row.settle()
        return
    MARKS[START]()
    operation()
    MARKS[WAIT]()
    row.settle()
    MARKS[STOP]()


def turns(cpu, rows, counts, take, give):
    """Runs the operations of a CPU, each step when it is its turn."""
    os.sched_setaffinity(0, {cpu})
    warm_up, rounds = counts

    def turn(what, *args):
        if take() != b"x":
            sys.exit("the other process has failed")
        value = what(*args)
        give()
        return value

    for name in rows:
        row = turn(ROWS[name], cpu)
        for i in range(warm_up + rounds):
            turn(row.prepare)
            for x in row.steps:
                turn(step, row, getattr(row, x), i >= warm_up)
            turn(row.finish)
        if not cpu:
            print(json.dumps({"row": name, "rounds": rounds, "steps": len(row.steps)}), flush=True)


def main():
    warm_up, rounds, *rows = sys.argv[1:]
    counts = int(warm_up), int(rounds)
    MARKS[ARM]()
    first, second = os.pipe(), os.pipe()
    os.write(first[1], b"x")
    if os.fork() == 0:
        os.close(first[0])
        os.close(second[1])
        turns(1, rows, counts, lambda: os.read(second[0], 1), lambda: os.write(first[1], b"x"))
        os._exit(0)
    os.close(first[1])
    os.close(second[0])
    turns(0, rows, counts, lambda: os.read(first[0], 1), lambda: os.write(second[1], b"x"))
    # The last turn is that of CPU 1.
    if os.read(first[0], 1) != b"x" or os.wait()[1]:
        sys.exit("the process of CPU 1 has failed")


main()
