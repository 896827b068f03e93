# SPDX-License-Identifier: GPL-2.0
"""fail_load.py MODULE EVERY: allocations of the module's init, and of its exit, fail once each.

Every EVERYth fails, from a random one on. Either the load is refused and leaves nothing, or the
module works. The next load succeeds, and an unload always does. MODULE is not loaded at the
beginning, nor at the end.
"""

import glob
import os
import random
import sys

from cases import LOOP, need, outcome
from nth import Nth
from rds import Sock, call

FINIT_MODULE, DELETE_MODULE = 313, 176
NAME = "rds_rust"
FOLDERS = ("failslab", "fail_page_alloc", "fail_usercopy")
# Errors of a load.
ERRORS = ("ENOMEM",)


def within(start, end):
    """Limits faults to calls that have code of this range among their callers."""
    for folder in FOLDERS:
        for knob, value in ("start", start), ("end", end):
            with open(f"/sys/kernel/debug/{folder}/require-{knob}", "w", encoding="ascii") as f:
                f.write(str(value))


def within_init():
    """Returns the range of the function that calls a module's init.

    The address of the module is not known before the load.
    """
    with open("/proc/kallsyms", encoding="ascii") as f:
        found = [(int(address, 16), name) for address, kind, name, *module in map(str.split, f)
                 if kind in "tT" and not module]
    start, = [address for address, name in found if name == "do_one_initcall"]
    return start, min(address for address, _ in found if address > start)


def within_module():
    with open("/proc/modules", encoding="ascii") as f:
        size, address = next((x[1], x[5]) for x in map(str.split, f) if x[0] == NAME)
    start = int(address, 16)
    return start, start + int(size)


def traces():
    """Returns the traces of the module outside its own memory."""
    with open("/proc/slabinfo", encoding="ascii") as f:
        found = {x.split()[0] for x in f if x.startswith("rds")}
    with open("/proc/net/protocols", encoding="ascii") as f:
        found |= {x.split()[0] for x in f} & {"RDS"}
    for place in ("/sys/module", "/proc/sys/net", "/sys/kernel/debug", "/sys/kernel/tracing/events", "/sys/kernel/slab"):
        found |= set(glob.glob(f"{place}/rds*"))
    return found


def gone(before, what):
    need(not (left := traces() - before), f"{what}: {left} is left")


def load(file):
    call("syscall", FINIT_MODULE, file, b"", 0)


def unload():
    call("syscall", DELETE_MODULE, NAME.encode(), os.O_NONBLOCK)


def works():
    with Sock((LOOP, 0), 60) as s:
        s.send(b"works", s.name())
        need(s.recv()[0] == b"works", "another message")


def main(path, every):
    every = int(every)
    file, nth = os.open(path, os.O_RDONLY), Nth("thread-self")
    before, init = traces(), within_init()
    steps, refused = {"load": None, "unload": None}, 0
    number = random.randint(1, every)
    while None in steps.values():

        def attempt(what, call, *args):
            """Makes the NUMBERth step of the call fail, if there are so many."""
            nth.begin(number)
            told = outcome(call, *args)
            left = nth.end()
            if left and steps[what] is None:
                steps[what] = number - left
            return told, not left

        within(*init)
        told, failed = attempt("load", load, file)
        need(told == "ok" or failed and told in ERRORS, f"load, step {number}: {told}")
        if told != "ok":
            refused += 1
            gone(before, f"load, step {number}")
            load(file)
        works()
        within(*within_module())
        told, _ = attempt("unload", unload)
        need(told == "ok", f"unload, step {number}: {told}")
        gone(before, f"unload, step {number}")
        number += every
    os.close(file)
    print(f"{steps}, every {every}th; {refused} loads refused", flush=True)
    need(refused and steps["load"] > 50, "hardly any step was seen")


if __name__ == "__main__":
    main(*sys.argv[1:])
