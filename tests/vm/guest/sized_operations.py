# SPDX-License-Identifier: GPL-2.0
"""sized_operations.py owner|user HERE THERE SIZE: operations of SIZE bytes between two nodes.

They are reads, writes and atomics, with local memory at two offsets in a page. The owner has the
memory, and answers each message with a digest of it. The user verifies that, and its own memory
with what is around it.
"""

import hashlib
import random
import struct
import sys

import rdma
from cases import need
from rdma import COMPARE_SWAP, DEST, FENCE, FETCH_ADD, NOTIFY_ME, READWRITE, Memory

PORT = 4017
PAGE = 4096
# Number for atomics, at the start of the owner's memory.
NUMBER = 0x1122334455667788
# Start of local memory: of the number of an atomic, and of its data.
OFFSETS = 0, 16


def pattern(size, seed):
    return random.Random(seed).randbytes(size)


def digest(data):
    return hashlib.sha256(data).digest()


def own(sock, size):
    memory = Memory(sock, size // PAGE)
    cookie = memory.register(0, size)
    rdma.send(sock, b"here", (rdma.SOL_RDS, DEST, struct.pack("=Q", cookie)))
    while (request := rdma.receive(sock)[0]) != b"end":
        if request.startswith(b"fill"):
            memory.fill(0, pattern(size, int(request.split()[1])))
        elif request == b"number":
            memory.fill(0, struct.pack("=Q", NUMBER))
        sock.send(memory.pages[:8] + digest(memory.pages[:size]))
    memory.free(cookie)


class User:
    def __init__(self, sock, size):
        self.sock, self.size = sock, size
        _, ((_kind, raw),) = rdma.receive(sock)
        self.cookie, = struct.unpack("=Q", raw)
        self.memory = Memory(sock, size // PAGE + 2)
        self.token = 0

    def ask(self, request, *controls):
        """Sends a request, and returns the start of the owner's memory, and the digest."""
        rdma.send(self.sock, request, *controls)
        return rdma.receive(self.sock)[0]

    def blank(self):
        self.memory.fill(0, b"\xee" * len(self.memory.pages))

    def operate(self, make):
        """Performs an operation, and returns the same as ask() after it."""
        self.token += 1
        control, _place = make(NOTIFY_ME | FENCE)
        rdma.send(self.sock, b"look", control)
        # The end of the operation is reported before or after the answer.
        theirs = told = None
        while theirs is None or told is None:
            data, controls = rdma.receive(self.sock)
            if data:
                theirs = data
            else:
                told = [struct.unpack("=Qii", raw)[:2] for _, raw in controls]
        need(told == [(self.token, rdma.SUCCESS)], f"operation {self.token} ended with {told}")
        return theirs

    def found(self, at, wanted, what):
        """Checks local memory, and that all else is as blank() left it."""
        pages, end = self.memory.pages, at + len(wanted)
        need(pages[at:end] == wanted, f"{what}: other bytes are in local memory")
        need(not (pages[:at] + pages[end:]).strip(b"\xee"), f"{what}: memory beside it has changed")

    def transfer(self, at, flags):
        area = (self.memory.base + at, self.size)
        return self.operate(lambda more: rdma.transfer(self.cookie, (0, self.size), [area], flags | more, self.token))

    def read(self, at, seed):
        self.ask(b"fill %d" % seed)
        self.blank()
        self.transfer(at, 0)
        self.found(at, pattern(self.size, seed), f"a read to {at}")

    def write(self, at, seed):
        self.blank()
        self.memory.fill(at, pattern(self.size, seed))
        theirs = self.transfer(at, READWRITE)
        need(theirs[8:] == digest(pattern(self.size, seed)), f"a write from {at}: other bytes arrived")

    def change(self, at):
        for kind, numbers, result in ((FETCH_ADD, [5], NUMBER + 5), (COMPARE_SWAP, [NUMBER, 7], 7)):
            self.ask(b"number")
            self.blank()

            def make(flags, kind=kind, numbers=numbers):
                return rdma.atomic(kind, self.cookie, self.memory.base + at, 0, numbers, flags, self.token), None

            theirs = self.operate(make)
            need(struct.unpack_from("=Q", theirs) == (result,), f"atomic {kind}: not {result:#x}")
            self.found(at, struct.pack("=Q", NUMBER), f"atomic {kind} to {at}")


def main():
    role, here, there, size = sys.argv[1:]
    with rdma.connected((here, PORT), (there, PORT), 120) as sock:
        if role == "owner":
            own(sock, int(size))
            return
        print("ready", flush=True)
        user = User(sock, int(size))
        for at in OFFSETS:
            user.write(at, 10 + at)
            user.read(at, 11 + at)
            user.change(at)
        rdma.send(sock, b"end")
        rdma.settle(sock)
        print(f"{user.token} operations")


main()
