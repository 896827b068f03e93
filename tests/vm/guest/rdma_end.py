# SPDX-License-Identifier: GPL-2.0
"""rdma_end.py owner|user HERE THERE ROUNDS [insist [unheard]] [most]: operations between two nodes.

The owner sends cookies of its memory. The user writes there and reads what it finds, and sends a
message after each. With "insist" the user repeats operations that ended with a connection. With
"unheard" the end of a connection is not reported for writes, so the user reads the memory to check.

With "most", operations are on the largest number of bytes and pieces of local memory, otherwise on
one piece of SIZE bytes.
"""

import errno
import itertools
import mmap
import random
import struct
import sys
import time

import rdma
from rdma import DEST, FENCE, MAP, NOTIFY_ME, READWRITE, Memory

SIZE = 40000
MOST, PIECES = 1 << 20, 1024
PORT = 4010


def pattern(seed, size):
    return random.Random(seed).randbytes(size)


def memory_for(sock, size):
    """Returns memory for the data, for a check, and for a cookie."""
    return Memory(sock, 4 * size // mmap.PAGESIZE + 11)


def cut(address, size, pieces):
    """Returns pieces of memory, one behind the other."""
    each = size // pieces
    return [(address + i * each, each) for i in range(pieces)]


def offer(sock, memory, at, size):
    """Sends a cookie of memory that the message registers.

    C RDS fails with EAGAIN while there is no connection.
    """
    while True:
        args = (rdma.SOL_RDS, MAP, struct.pack("=QQQQ", memory.base + at, size, memory.base + 4 * size, READWRITE))
        try:
            rdma.send(sock, b"here", args)
            return struct.unpack_from("=Q", memory.pages, 4 * size)[0]
        except OSError as e:
            if e.errno != errno.EAGAIN:
                raise
            time.sleep(0.1)


def own(sock, rounds, size):
    memory = memory_for(sock, size)
    # Soft-iWARP has no region of 257 pages.
    at = 0 if size == MOST else 100
    for number in range(rounds):
        memory.fill(at, pattern(number, size))
        cookie = offer(sock, memory, at, size)
        data, _ = rdma.receive(sock)
        assert data == b"read", f"{number}: {data}"
        data, _ = rdma.receive(sock)
        assert data == b"written", f"{number}: {data}"
        assert memory.pages[at:at + size] == pattern(number + 1, size), f"{number}: other bytes"
        memory.free(cookie)
        rdma.send(sock, b"seen")
    rdma.settle(sock)
    print("owner: done", flush=True)


class Inbox:
    """Contents of a socket: messages in order, and notifications of operations, which may be late.
    """

    def __init__(self, sock):
        self.sock, self.messages, self.ends = sock, [], {}

    def look(self):
        data, controls = rdma.receive(self.sock)
        if not controls or controls[0][0] == DEST:
            self.messages.append((data, controls))
            return
        for kind, raw in controls:
            token, how, _ = struct.unpack("=Qii", raw)
            assert kind == rdma.STATUS and token not in self.ends, f"{controls}"
            self.ends[token] = how

    def message(self):
        while not self.messages:
            self.look()
        return self.messages.pop(0)

    def end(self, token):
        while token not in self.ends:
            self.look()
        return self.ends[token]


def use(sock, rounds, size, pieces, insist, unheard):
    memory = memory_for(sock, size)
    inbox, tokens = Inbox(sock), itertools.count()
    for number in range(rounds):
        data, controls = inbox.message()
        assert data == b"here", f"{number}: {data}"
        (kind, raw), = controls
        assert kind == DEST, f"{number}: {controls}"
        cookie, = struct.unpack("=Q", raw)

        def operate(flags, message, at=7):
            """Makes an operation. The message goes with it, or follows when it has succeeded."""
            while True:
                token = next(tokens)
                control, _place = rdma.transfer(cookie, (0, size), cut(memory.base + at, size, pieces),
                                                flags | NOTIFY_ME, token)
                rdma.send(sock, b"" if insist else message, control)
                how = inbox.end(token)
                # An operation that the device abandoned has an error of its own.
                if not (insist and how in (rdma.DROPPED, rdma.OTHER_ERROR)):
                    break
            assert how == rdma.SUCCESS, f"{number}: {inbox.ends}"

        def follow(message):
            if insist:
                rdma.send(sock, message)

        silent = rdma.SILENT if insist else 0
        operate(FENCE | silent, b"read")
        follow(b"read")
        assert memory.pages[7:7 + size] == pattern(number, size), f"{number}: other bytes"
        memory.fill(7, pattern(number + 1, size))
        operate(READWRITE | silent, b"written")
        there = 2 * size
        while unheard:
            operate(FENCE | silent, b"", there)
            if memory.pages[there:there + size] == pattern(number + 1, size):
                break
            operate(READWRITE | silent, b"")
        follow(b"written")
        assert inbox.message() == (b"seen", []), f"{number}"
    print("user: done", flush=True)


if __name__ == "__main__":
    role, here, there, rounds, *how = sys.argv[1:]
    size, pieces = (MOST, PIECES) if "most" in how else (SIZE, 1)
    end = rdma.connected((here, PORT), (there, PORT), 120)
    if role == "user":
        # C RDS registers nothing without a connection.
        rdma.send(end, b"")
        use(end, int(rounds), size, pieces, "insist" in how, "unheard" in how)
    else:
        print("owner: ready", flush=True)
        rdma.receive(end)
        own(end, int(rounds), size)
