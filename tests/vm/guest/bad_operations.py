# SPDX-License-Identifier: GPL-2.0
"""bad_operations.py owner HERE THERE | user HERE THERE ROUNDS TOLD: operations between two nodes
that the peer's device has to refuse.

Small valid operations run between them. The owner has memory that peers may write, memory that
peers may only read, and memory that it has freed. TOLD is 1 if the device reports each refusal, as
RoCE devices do; otherwise an operation may simply be dropped.
"""

import sys

import rdma
from rdma import INVALIDATE, NOTIFY_ME, READWRITE, Memory
from rdma_end import Inbox

PORT, PAGE, SIZE = 4020, 4096, 10000
# Offsets of areas in the owner's memory, in bytes. The pages between them are not registered.
WRITABLE, READABLE, FREED = PAGE + 100, 10 * PAGE, 20 * PAGE
FILL = 0x5a
# Payload of the message of an operation. On iWARP nothing else reveals that a write was refused.
BESIDE = b"beside"


def own(sock):
    memory = Memory(sock, 30)
    memory.fill(0, bytes([FILL]) * len(memory.pages))
    memory.make_read_only(READABLE, 3 * PAGE)
    cookies = [memory.register(at, SIZE, flags)
               for at, flags in ((WRITABLE, READWRITE), (READABLE, 0), (FREED, READWRITE))]
    memory.free(cookies[2], INVALIDATE)
    rdma.send(sock, b" ".join(b"%d" % cookie for cookie in cookies))
    while (data := rdma.receive(sock)[0]) != b"done":
        assert data == BESIDE, data
    for begin, end in ((0, WRITABLE), (WRITABLE + SIZE, len(memory.pages))):
        assert memory.pages[begin:end] == bytes([FILL]) * (end - begin), "bytes have changed that no peer may write"
    memory.free(cookies[0])
    memory.free(cookies[1])
    print("owner: done", flush=True)


class User:
    def __init__(self, sock, told):
        self.sock, self.told = sock, told
        self.inbox, self.memory = Inbox(sock), Memory(sock, 10)
        self.token = 0
        data, _ = self.inbox.message()
        self.cookies = [int(x) for x in data.split()]

    def ends(self, cookie, remote, local, flags):
        """Returns the status of an operation, which uses `remote` bytes of the remote memory."""
        self.token += 1
        control, _place = rdma.transfer(cookie, remote, [(self.memory.base + local, remote[1])],
                                        flags | NOTIFY_ME, self.token)
        rdma.send(self.sock, BESIDE, control)
        return self.inbox.end(self.token)

    def adds(self, cookie, at):
        """Returns the status of an addition."""
        self.token += 1
        control = rdma.atomic(rdma.FETCH_ADD, cookie, self.memory.base, at, [1], NOTIFY_ME, self.token)
        rdma.send(self.sock, BESIDE, control)
        return self.inbox.end(self.token)

    def until(self, wanted, operate, *operation):
        """Repeats the operation while the end of the connection, which has another cause, drops it.
        """
        while (how := operate(*operation)) != wanted:
            assert how in (rdma.DROPPED, rdma.OTHER_ERROR), how
            if wanted == rdma.REMOTE_ERROR and not self.told:
                break

    def bad(self, *operation):
        self.until(rdma.REMOTE_ERROR, self.ends, *operation)

    def good(self, *operation):
        self.until(rdma.SUCCESS, self.ends, *operation)

    def round(self, number):
        writable, readable, freed = self.cookies
        self.bad(writable ^ 0xff, (0, 8), 0, READWRITE)
        self.bad(writable ^ 0xff00, (0, 8), 0, 0)
        self.bad(writable, (0, SIZE + 1), 0, READWRITE)
        self.bad(writable, (SIZE - 1, 2), 0, 0)
        self.bad(writable, (SIZE, 1), 0, 0)
        self.bad(readable, (0, 100), 0, READWRITE)
        self.bad(freed, (0, 100), 0, 0)
        self.bad(freed, (0, 100), 0, READWRITE)
        # Devices that report each refusal are those that have atomic operations.
        if self.told:
            self.until(rdma.REMOTE_ERROR, self.adds, readable, 0)
            self.until(rdma.REMOTE_ERROR, self.adds, writable ^ 0xff00, 4)
        at = 1
        for size in (1, 7, 8, 9):
            data = bytes((number + at + i) % 256 for i in range(size))
            self.memory.fill(PAGE - 3, data)
            self.good(writable, (at, size), PAGE - 3, READWRITE)
            self.good(writable, (at, size), 2 * PAGE + 5, 0)
            assert self.memory.pages[2 * PAGE + 5:2 * PAGE + 5 + size] == data, f"{size} bytes at {at} are others"
            at += 2 * size
        self.good(readable, (SIZE - 1, 1), 0, 0)
        assert self.memory.pages[0] == FILL, "another byte was read"


if __name__ == "__main__":
    role, here, there, *rest = sys.argv[1:]
    end = rdma.connected((here, PORT), (there, PORT), 120)
    if role == "owner":
        print("owner: ready", flush=True)
        rdma.receive(end)
        own(end)
    else:
        rounds, told = map(int, rest)
        rdma.send(end, b"")
        user = User(end, told)
        for i in range(rounds):
            user.round(i)
            print(f"user: round {i}", flush=True)
        rdma.send(end, b"done")
        rdma.settle(end)
