# SPDX-License-Identifier: GPL-2.0
"""Stops system calls in the midst of a copy."""

import ctypes
import fcntl
import mmap
import os
import struct

from rds import call, libc


class Uffd:
    """A page that is missing until fill() or remove(): who touches it waits."""

    SYSCALL, API, REGISTER, ZEROPAGE = 323, 0xc018aa3f, 0xc020aa00, 0xc020aa04
    MISSING = 1

    def __init__(self):
        self.fd = os.fdopen(libc.syscall(self.SYSCALL, os.O_CLOEXEC), "rb", buffering=0)
        fcntl.ioctl(self.fd, self.API, bytearray(struct.pack("=QQQ", 0xaa, 0, 0)))
        self.page = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.at = ctypes.addressof(ctypes.c_char.from_buffer(self.page))
        fcntl.ioctl(self.fd, self.REGISTER,
                    bytearray(struct.pack("=QQQQ", self.at, mmap.PAGESIZE, self.MISSING, 0)))

    def wait(self):
        """Until someone touches it."""
        self.fd.read(32)

    def fill(self):
        fcntl.ioctl(self.fd, self.ZEROPAGE, bytearray(struct.pack("=QQQq", self.at, mmap.PAGESIZE, 0, 0)))

    def remove(self):
        """There is no such page: who waits meets EFAULT."""
        call("munmap", ctypes.c_void_p(self.at), mmap.PAGESIZE)
        self.fd.close()
