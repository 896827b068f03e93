# SPDX-License-Identifier: GPL-2.0
"""fragment_memory.py ORDER: leaves free memory only in pieces of 2^ORDER pages and smaller ones.

Takes almost all memory in unmovable pages, and frees every other group of 2^ORDER pages. Packet
sockets take the larger pieces that remain, one by one. Prints "fragmented" and keeps this state
until standard input ends.
"""

import array
import ctypes
import mmap
import socket
import struct
import sys
from collections import Counter

PAGE = mmap.PAGESIZE
MADV_DONTNEED_LOCKED = 24
STEP = 4 << 20
# Below this amount the kernel would begin to kill processes, in KiB.
RESERVE = 24 << 10
PFN_MASK = (1 << 55) - 1
SOL_PACKET, PACKET_RX_RING = 263, 5
TRIES = 3

libc = ctypes.CDLL(None, use_errno=True)
libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
libc.mlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def free():
    """Returns the KiB of free memory."""
    fields = dict(line.split(":") for line in open("/proc/meminfo"))
    return int(fields["MemFree"].split()[0])


def pieces():
    """Returns the number of free pieces of each order, in all zones."""
    rows = [list(map(int, line.split()[4:])) for line in open("/proc/buddyinfo")]
    return [sum(column) for column in zip(*rows)]


def take():
    """Returns areas of locked memory, which leave only RESERVE free: [(area, address)]."""
    taken = []
    while free() > RESERVE:
        area = mmap.mmap(-1, STEP, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        base = ctypes.addressof(ctypes.c_char.from_buffer(area))
        if libc.mlock(base, STEP):
            sys.exit("mlock failed")
        taken.append((area, base))
    return taken


def punch(base, order, pagemap):
    """Frees every other group of 2^order pages of an area, in the order of physical memory."""
    pagemap.seek(base // PAGE * 8)
    frames = array.array("Q", pagemap.read(STEP // PAGE * 8))
    start = None
    for i in range(len(frames) + 1):
        gone = i < len(frames) and not (frames[i] & PFN_MASK) >> order & 1
        if gone and start is None:
            start = i
        elif not gone and start is not None:
            libc.madvise(base + start * PAGE, (i - start) * PAGE, MADV_DONTNEED_LOCKED)
            start = None


def eat(order):
    """Takes all larger free pieces, the largest first, and returns the sockets that hold them.

    Pieces that the kernel reserves are not available to others either.
    """
    held, in_vain = [], Counter()
    while True:
        before = pieces()
        o = max((o for o in range(order + 1, len(before)) if before[o] and in_vain[o] < TRIES),
                default=None)
        if o is None:
            return held
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        # Block size and count, frame size and count.
        sock.setsockopt(SOL_PACKET, PACKET_RX_RING,
                        struct.pack("=IIII", PAGE << o, before[o], PAGE << o, before[o]))
        held.append(sock)
        in_vain[o] += pieces()[o] >= before[o]


def main():
    order = int(sys.argv[1])
    # Compaction would undo the fragmentation.
    write("/proc/sys/vm/compact_unevictable_allowed", "0")
    taken = take()
    with open("/proc/self/pagemap", "rb") as pagemap:
        for _, base in taken:
            punch(base, order, pagemap)
    held = eat(order)
    print("fragmented", len(held), *pieces(), flush=True)
    sys.stdin.read()


main()
