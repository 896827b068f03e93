# SPDX-License-Identifier: GPL-2.0
"""System calls of a 32-bit program from this 64-bit one: by the interrupt, with memory below 4 GiB.
"""

import ctypes
import mmap
import os
import struct

MAP_32BIT = 0x40
IOCTL, GETSOCKOPT, SETSOCKOPT, SENDMSG, RECVMSG = 54, 365, 366, 370, 372
# push %rbx; mov %edi, %eax; mov %esi, %ebx; xchg %ecx, %edx; mov %r8d, %esi;
# mov %r9d, %edi; int $0x80; pop %rbx; ret
CODE = bytes.fromhex("53 89f8 89f3 87ca 4489c6 4489cf cd80 5b c3")

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)


def memory(size, data=b"", protection=mmap.PROT_READ | mmap.PROT_WRITE):
    """Returns the address of memory that a 32-bit program could have."""
    address = libc.mmap(None, size, protection, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_32BIT, -1, 0)
    if address is None or address >= 1 << 32:
        raise MemoryError
    ctypes.memmove(address, data, len(data))
    return address


def syscall(number, *args):
    stub = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint] * 6)(
        memory(4096, CODE, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC))
    result = stub(number, *args, *[0] * (5 - len(args)))
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


def ioctl(fd, request, address):
    return syscall(IOCTL, fd, request, address)


def setsockopt(fd, level, option, address, size):
    return syscall(SETSOCKOPT, fd, level, option, address, size)


def getsockopt(fd, level, option, address, size):
    """Calls getsockopt(2). `size` is the address of the length."""
    return syscall(GETSOCKOPT, fd, level, option, address, size)


def sendmsg(fd, pieces, name, control=b""):
    areas = [(memory(len(x), x), len(x)) for x in pieces]
    iov = memory(8 * len(areas), b"".join(struct.pack("=II", *area) for area in areas))
    header = memory(28, struct.pack("=7I", memory(len(name), name), len(name), iov, len(areas),
                                    memory(len(control), control) if control else 0, len(control), 0))
    return syscall(SENDMSG, fd, header, 0)


def recvmsg(fd, size, room, flags=0):
    """Returns (data, [(level, type, data of a control message)], flags, name)."""
    buffer, control, name = memory(size), memory(room or 1), memory(128)
    iov = memory(8, struct.pack("=II", buffer, size))
    header = memory(28, struct.pack("=7I", name, 128, iov, 1, control, room, 0))
    count = syscall(RECVMSG, fd, header, flags)
    used, flags = struct.unpack_from("=II", ctypes.string_at(header, 28), 20)
    raw, found = ctypes.string_at(control, used), []
    while len(raw) >= 12:
        length, level, kind = struct.unpack_from("=Iii", raw)
        found.append((level, kind, raw[12:length]))
        raw = raw[(length + 3) & ~3:]
    return ctypes.string_at(buffer, count), found, flags & 0x7FFFFFFF, ctypes.string_at(name, 128)
