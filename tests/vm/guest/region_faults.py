# SPDX-License-Identifier: GPL-2.0
"""region_faults.py reg_mr|local_inv|unmapped_region TIMES: a device refuses to register memory, or
to invalidate a key, or has no mapping of registered memory, so many times. Prints the outcome of
the program's call. Needs the devices of tests/vm/faulty.
"""

import sys

import rdma
from cases import eventually, need, outcome
from rdma import INVALIDATE, SILENT, Pair
from statuses import connect

PAGE = 4096
FAULTS = "/sys/kernel/debug/rxe_faults"


def knob(name, value=None):
    with open(f"{FAULTS}/{name}", "r" if value is None else "w", encoding="ascii") as f:
        return int(f.read()) if value is None else f.write(str(value))


def transfer(p, cookie, token):
    """Writes to a peer's memory and returns the status."""
    p.ours.fill(0, bytes([token]) * PAGE)
    p.write(b"", cookie, [(0, PAGE)], token, SILENT)
    found, how = rdma.status(p.a)
    need(found == token, f"{found} ended instead of {token}")
    return how


def reg_mr(p):
    """Returns how the registration ends, and the key of the next one."""
    told = outcome(p.theirs.register, 0, PAGE)
    return told if isinstance(told, str) else "registered", p.theirs.register(0, PAGE)


def local_inv(p):
    """The key ends all the same. Returns how the call ends, and another key."""
    old = p.theirs.register(0, PAGE)
    need(transfer(p, old, 1) == rdma.SUCCESS, "the memory was not written")
    told = outcome(p.theirs.free, old, INVALIDATE)
    p.theirs.fill(0, bytes(PAGE))
    need(transfer(p, old, 2) != rdma.SUCCESS, "the old key still works")
    need(p.theirs.pages[:PAGE] == bytes(PAGE), "the old key still reaches the memory")
    return told, p.theirs.register(0, PAGE)


def unmapped_region(p):
    """Returns how a write of a peer to the memory ends, and another key."""
    cookie = p.theirs.register(0, PAGE)
    how = transfer(p, cookie, 1)
    need(p.theirs.pages[:PAGE] == bytes(PAGE), "the memory was written")
    p.theirs.free(cookie, INVALIDATE)
    told = "refused" if how == rdma.REMOTE_ERROR else f"status {how}"
    return told, p.theirs.register(0, PAGE)


def main():
    case, times = sys.argv[1:]
    with Pair() as p:
        connect(p)
        # Registrations need a connection of the device with itself, which comes up at the first.
        p.theirs.free(p.theirs.register(0, PAGE), INVALIDATE)
        knob(f"{case}/times", times)
        told, cookie = globals()[case](p)
        need(knob(f"{case}/times") == 0, "the device refused too little")
        # A wrong key has ended the connection. What is lost with it is reported, too.
        eventually("the new key works", lambda: transfer(p, cookie, 3) == rdma.SUCCESS)
        need(p.theirs.pages[:PAGE] == b"\3" * PAGE, "the memory was not written")
        print(told)


main()
