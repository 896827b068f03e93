# SPDX-License-Identifier: GPL-2.0
"""The frequency of the host's TSC, which QEMU's TCG passes on to guests.

A guest that measures it on a busy host may get a wrong result, by a factor of up to nine. All of
its time limits are then wrong, too."""

import ctypes
import mmap
import time
from functools import cache

# rdtsc; shl rdx, 32; or rax, rdx; ret
READ = bytes.fromhex("0f31 48c1e220 4809d0 c3")
SECONDS = 0.05
# Number of reads of both clocks; the fastest one counts.
LOOKS = 100


def look(read):
    """Returns (nanoseconds of the monotonic clock, TSC) of one moment."""
    found = []
    for _ in range(LOOKS):
        before, ticks, after = time.monotonic_ns(), read(), time.monotonic_ns()
        found.append((after - before, before, ticks))
    _, at, ticks = min(found)
    return at, ticks


@cache
def khz():
    """Returns the frequency in kHz."""
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as code:
        code.write(READ)
        place = ctypes.c_char.from_buffer(code)
        read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(place))
        began, first = look(read)
        time.sleep(SECONDS)
        ended, last = look(read)
        # The mapping can be closed once nothing refers to it.
        del read, place
    return round((last - first) * 1_000_000 / (ended - began))
