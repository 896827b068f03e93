# SPDX-License-Identifier: GPL-2.0
"""rdma_end.py owner|user HERE THERE ROUNDS [insist [unheard]]: operations between two nodes. The owner sends cookies of its
memory; the user writes there and reads what it finds, and says when it has. If it insists, it does again what ended with a
connection; that is not told of a write if it is unheard, so it looks."""

import errno
import itertools
import random
import struct
import sys
import time

import rdma
from rdma import DEST, FENCE, MAP, NOTIFY_ME, READWRITE, Memory

SIZE = 40000
PORT = 4010


def pattern(seed):
    return random.Random(seed).randbytes(SIZE)


def offer(sock, memory, at):
    """Sends a cookie of memory that is registered for that. C asks to try again while there is no connection."""
    while True:
        args = (rdma.SOL_RDS, MAP, struct.pack("=QQQQ", memory.base + at, SIZE, memory.base + 4 * SIZE, READWRITE))
        try:
            rdma.send(sock, b"here", args)
            return struct.unpack_from("=Q", memory.pages, 4 * SIZE)[0]
        except OSError as e:
            if e.errno != errno.EAGAIN:
                raise
            time.sleep(0.1)


def own(sock, rounds):
    memory = Memory(sock, 50)
    for number in range(rounds):
        memory.fill(100, pattern(number))
        cookie = offer(sock, memory, 100)
        data, _ = rdma.receive(sock)
        assert data == b"read", f"{number}: {data}"
        data, _ = rdma.receive(sock)
        assert data == b"written", f"{number}: {data}"
        assert memory.pages[100:100 + SIZE] == pattern(number + 1), f"{number}: other bytes"
        memory.free(cookie)
        rdma.send(sock, b"seen")
    rdma.settle(sock)
    print("owner: done", flush=True)


class Inbox:
    """What a socket has received: messages in order, and ends of operations, which may be late."""

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


def use(sock, rounds, insist, unheard):
    memory = Memory(sock, 50)
    inbox, tokens = Inbox(sock), itertools.count()
    for number in range(rounds):
        data, controls = inbox.message()
        assert data == b"here", f"{number}: {data}"
        (kind, raw), = controls
        assert kind == DEST, f"{number}: {controls}"
        cookie, = struct.unpack("=Q", raw)

        def operate(flags, message, at=7):
            """The message goes with the operation, or behind it, when that has ended well."""
            while True:
                token = next(tokens)
                control, _place = rdma.transfer(cookie, (0, SIZE), [(memory.base + at, SIZE)], flags | NOTIFY_ME, token)
                rdma.send(sock, b"" if insist else message, control)
                how = inbox.end(token)
                # The one that the device gave up has an error of its own.
                if not (insist and how in (rdma.DROPPED, rdma.OTHER_ERROR)):
                    break
            assert how == rdma.SUCCESS, f"{number}: {inbox.ends}"

        def follow(message):
            if insist:
                rdma.send(sock, message)

        silent = rdma.SILENT if insist else 0
        operate(FENCE | silent, b"read")
        follow(b"read")
        assert memory.pages[7:7 + SIZE] == pattern(number), f"{number}: other bytes"
        memory.fill(7, pattern(number + 1))
        operate(READWRITE | silent, b"written")
        there = 2 * SIZE
        while unheard:
            operate(FENCE | silent, b"", there)
            if memory.pages[there:there + SIZE] == pattern(number + 1):
                break
            operate(READWRITE | silent, b"")
        follow(b"written")
        assert inbox.message() == (b"seen", []), f"{number}"
    print("user: done", flush=True)


if __name__ == "__main__":
    role, here, there, rounds, *how = sys.argv[1:]
    end = rdma.connected((here, PORT), (there, PORT), 120)
    if role == "user":
        # C registers nothing without a connection.
        rdma.send(end, b"")
        use(end, int(rounds), "insist" in how, "unheard" in how)
    else:
        print("owner: ready", flush=True)
        rdma.receive(end)
        own(end, int(rounds))
