# SPDX-License-Identifier: GPL-2.0
"""bounced_operations.py HOST PEER: begins operations whose local memory takes bounce buffers.

PEER does not answer, so they hold the buffers until their sockets are closed. Prints nothing.
"""

import errno
import os
import socket
import sys
import threading

import rdma
from cases import WAITS_IN, eventually, need
from rdma import NOTIFY_ME, READWRITE

HOST, PEER = sys.argv[1], (sys.argv[2], 4002)
SIZE = 1 << 20
SLOT = 2048
USERS = (1000, 1001)


def slots(name):
    with open(f"/sys/kernel/debug/swiotlb/io_tlb_{name}", encoding="ascii") as f:
        return int(f.read()) * SLOT


class Sender:
    """A socket, and memory for its operations."""

    def __init__(self):
        self.sock = rdma.connected((HOST, 0), PEER, 0)
        self.memory = rdma.Memory(self.sock, SIZE // 4096)
        self.memory.fill(0, b"x" * SIZE)

    def begin(self, flags=0):
        """Begins a write of 1 MiB."""
        control, _place = rdma.transfer(1, (0, SIZE), [(self.memory.base, SIZE)], READWRITE | NOTIFY_ME)
        rdma.send(self.sock, b"", control, flags=flags)

    def fill(self):
        """Begins operations until a call would have to wait. Returns their number."""
        count = 0
        while True:
            try:
                self.begin(socket.MSG_DONTWAIT)
            except OSError as e:
                need(e.errno == errno.EAGAIN, f"operation {count + 1}: {e}")
                return count
            count += 1

    def fill_all(self, count):
        """Begins this many operations as others release their buffers, and no more."""
        begun = 0

        def more():
            nonlocal begun
            begun += self.fill()
            return begun >= count

        eventually(f"{count} operations begin", more)
        need(begun + self.fill() == count, f"more than {count} operations begin")

    def close(self):
        self.sock.sock.close()


class User:
    """Another user, whose program fills the bounce buffers as far as it may."""

    def __init__(self, user):
        from_child, to_parent = os.pipe()
        from_parent, self.to_child = os.pipe()
        self.child = os.fork()
        if not self.child:
            os.close(self.to_child)
            os.setuid(user)
            sender = Sender()
            os.write(to_parent, bytes([sender.fill()]))
            os.read(from_parent, 1)
            os._exit(0)
        os.close(to_parent)
        os.close(from_parent)
        self.count, = os.read(from_child, 1)
        os.close(from_child)

    def end(self):
        os.close(self.to_child)
        os.waitpid(self.child, 0)


limit = slots("nslabs") // 8
before = slots("used")
most = limit // SIZE

# Users leave as much to others as they have.
users = [User(user) for user in USERS]
counts = [user.count for user in users]
need(counts == [most // 2, most // 4], f"users have begun {counts} operations of {most}")
for user in reversed(users):
    user.end()
eventually("the buffers of users are released", lambda: slots("used") < before + SIZE)

# Root is restricted by the limit of all.
first = Sender()
first.fill_all(most)
held = slots("used") - before
need(held < limit + SIZE, f"{held} bytes of bounce buffers are in use")

# A call that may wait does so until others release their buffers.
second = Sender()
blocked = threading.Thread(target=second.begin)
blocked.start()
wchan = f"/proc/self/task/{blocked.native_id}/wchan"


def waits():
    with open(wchan, encoding="ascii") as file:
        return file.read() == WAITS_IN


eventually("the call waits", waits)
first.close()
blocked.join(60)
need(not blocked.is_alive(), "the call still waits")
second.fill_all(most - 1)
second.close()
eventually("all buffers are released", lambda: slots("used") < before + SIZE)
