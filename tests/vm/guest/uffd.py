# SPDX-License-Identifier: GPL-2.0
"""Pauses system calls in the middle of a copy."""

import ctypes
import fcntl
import mmap
import os
import struct

from rds import call, libc


class Uffd:
    """Pages, one by default, that are missing until fill() or remove().

    A thread that touches them waits.
    """

    SYSCALL, API, REGISTER, ZEROPAGE = 323, 0xc018aa3f, 0xc020aa00, 0xc020aa04
    MISSING = 1

    def __init__(self, size=mmap.PAGESIZE):
        self.fd = os.fdopen(libc.syscall(self.SYSCALL, os.O_CLOEXEC), "rb", buffering=0)
        fcntl.ioctl(self.fd, self.API, bytearray(struct.pack("=QQQ", 0xaa, 0, 0)))
        self.size = size
        self.pages = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.at = ctypes.addressof(ctypes.c_char.from_buffer(self.pages))
        fcntl.ioctl(self.fd, self.REGISTER, bytearray(struct.pack("=QQQQ", self.at, size, self.MISSING, 0)))

    def wait(self):
        """Waits until a thread touches them."""
        self.fd.read(32)

    def fill(self):
        fcntl.ioctl(self.fd, self.ZEROPAGE, bytearray(struct.pack("=QQQq", self.at, self.size, 0, 0)))

    def remove(self):
        """Unmaps the pages: a call that waits fails with EFAULT."""
        call("munmap", ctypes.c_void_p(self.at), self.size)
        self.fd.close()
