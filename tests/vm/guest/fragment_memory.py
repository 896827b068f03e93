# SPDX-License-Identifier: GPL-2.0
"""fragment_memory.py: leaves hardly any free memory in pieces larger than a page.

Takes almost all memory, in pages that nobody may move, and gives every other page back. Prints how many
free pieces of 64 KiB or more are left, and keeps things so until its input ends.
"""

import ctypes
import mmap
import sys

PAGE = mmap.PAGESIZE
MADV_DONTNEED_LOCKED = 24
STEP = 4 << 20
# Below this the kernel would begin to kill, in KiB.
RESERVE = 16 << 10
SHARD_ORDER = 4

libc = ctypes.CDLL(None, use_errno=True)
libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
libc.mlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def free():
    """KiB of free memory."""
    fields = dict(line.split(":") for line in open("/proc/meminfo"))
    return int(fields["MemFree"].split()[0])


def large_pieces():
    return sum(int(count) << order for line in open("/proc/buddyinfo")
               for order, count in enumerate(line.split()[4 + SHARD_ORDER:]))


def main():
    # Compaction would undo it.
    write("/proc/sys/vm/compact_unevictable_allowed", "0")
    write("/proc/sys/vm/drop_caches", "3")
    taken = []
    while free() > RESERVE:
        area = mmap.mmap(-1, STEP)
        base = ctypes.addressof(ctypes.c_char.from_buffer(area))
        if libc.mlock(base, STEP):
            sys.exit("mlock failed")
        taken.append((area, base))
    for _, base in taken:
        for offset in range(0, STEP, 2 * PAGE):
            libc.madvise(base + offset, PAGE, MADV_DONTNEED_LOCKED)
    print("pieces", large_pieces(), flush=True)
    sys.stdin.read()


main()
