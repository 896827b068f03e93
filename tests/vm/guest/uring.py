# SPDX-License-Identifier: GPL-2.0
"""The part of io_uring that a test of sockets needs.

It has one thread, and never fills the ring.
"""

import ctypes
import mmap
import os
import struct

POLL_ADD, SENDMSG, RECVMSG, ASYNC_CANCEL, SEND, RECV, SEND_ZC = 6, 9, 10, 14, 26, 27, 47
SETUP, ENTER = 425, 426
OFF_SQ_RING, OFF_SQES = 0, 0x10000000
GETEVENTS = 1
# LINK: the next request begins when this one is complete. ASYNC: a thread of the ring does it.
LINK, ASYNC = 1 << 2, 1 << 4
ENTRIES = 8

libc = ctypes.CDLL(None, use_errno=True)


def syscall(number, *args):
    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, args))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


class Ring:
    def __init__(self):
        params = ctypes.create_string_buffer(120)
        self.fd = syscall(SETUP, ENTRIES, ctypes.addressof(params))
        fields = struct.unpack("=30I", params.raw)
        entries = fields[1]
        self.sq, self.cq = fields[10:17], fields[20:26]
        size = max(self.sq[6] + 4 * entries, self.cq[5] + 16 * entries)
        # One mapping has both rings.
        self.ring = mmap.mmap(self.fd, size, offset=OFF_SQ_RING)
        self.sqes = mmap.mmap(self.fd, 64 * ENTRIES, offset=OFF_SQES)
        self.queued = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)

    def word(self, offset):
        return struct.unpack_from("=I", self.ring, offset)[0]

    def queue(self, opcode, fd, buffer, size, tag, how=0):
        self._queue(opcode, fd, ctypes.addressof(buffer), size, 0, tag, how)

    def poll(self, fd, events, tag, how=0):
        self._queue(POLL_ADD, fd, 0, 0, events, tag, how)

    def cancel(self, which, tag):
        """Cancels what was queued with another tag."""
        self._queue(ASYNC_CANCEL, -1, which, 0, 0, tag)

    def _queue(self, opcode, fd, address, size, flags, tag, how=0):
        tail = self.word(self.sq[1])
        slot = tail & self.word(self.sq[2])
        entry = struct.pack("=BBHiQQIIQ24x", opcode, how, 0, fd, 0, address, size, flags, tag)
        self.sqes[64 * slot:64 * slot + 64] = entry
        struct.pack_into("=I", self.ring, self.sq[6] + 4 * slot, slot)
        struct.pack_into("=I", self.ring, self.sq[1], tail + 1)
        self.queued += 1

    def enter(self, wanted):
        """Submits what is queued, and waits until there are `wanted` results."""
        syscall(ENTER, self.fd, self.queued, wanted, GETEVENTS, 0, 0)
        self.queued = 0

    def results(self):
        """Returns {tag: first result} of completed requests."""
        head, found = self.word(self.cq[0]), {}
        while head != self.word(self.cq[1]):
            at = self.cq[5] + 16 * (head & self.word(self.cq[2]))
            tag, result = struct.unpack_from("=Qi", self.ring, at)
            found.setdefault(tag, result)
            head += 1
        struct.pack_into("=I", self.ring, self.cq[0], head)
        return found
