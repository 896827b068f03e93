# SPDX-License-Identifier: GPL-2.0
"""each_step.py own|device|first|first_refused|first_own ATOMICS: each step of a registration and of an operation fails
once: those that the calls of the program itself take, or those of the device, whoever takes them, or those that the
kernel's workers take in the first registration, where one that fails may have to refuse it, or the program. Whatever
fails, all else works, and nothing is left. ATOMICS is 1 if the devices have them.

The kernel's fault injection has to be for this module only, or for one function of it."""

import contextlib
import glob
import select
import struct
import sys

import rdma
from cases import need, outcome
from knobs import knob
from nth import Nth
from rdma import MAP, NOTIFY_ME, READWRITE, Pair, unpinned
from rds import SOL_RDS

PAGE = 4096
# The last is of memory that cannot be pinned.
ERRORS = ("ENOMEM", "ENOBUFS", "EIO", "EFAULT", "EAGAIN", "EOPNOTSUPP")


def get(p, _cookie, _token):
    return p.ours.register(100, 30 * PAGE)


def sent_along(p, _cookie, token):
    args = struct.pack("=QQQQ", p.ours.base, PAGE, p.ours.base + 40 * PAGE, READWRITE)
    rdma.send(p.a, b"%d" % token, (SOL_RDS, MAP, args))
    return struct.unpack_from("=Q", p.ours.pages, 40 * PAGE)[0]


def free(p, _cookie, _token):
    p.ours.free(p.mine, rdma.INVALIDATE)


def write(p, cookie, token):
    p.write(b"%d" % token, cookie, [(100, PAGE)], token)


def write_pieces(p, cookie, token):
    p.write(b"%d" % token, cookie, [(i * PAGE, 100) for i in range(4)], token)


def write_scattered(p, cookie, token):
    p.write(b"%d" % token, cookie, [(100, 30 * PAGE)], token)


def read(p, cookie, token):
    p.read(b"%d" % token, cookie, [(100, 30 * PAGE)], token)


def add(p, cookie, token):
    rdma.send(p.a, b"%d" % token, rdma.atomic(rdma.FETCH_ADD, cookie, p.ours.base, 0, [1], NOTIFY_ME, token))


OPERATIONS = (write, write_pieces, write_scattered, read, *[add] * int(sys.argv[2]))


def judge(p, call, cookie, token, end=lambda: None):
    """One call, with whatever fails of it until end(): refused with an error, or done, or told to have failed, once. If it
    failed on its way, the next ones are not to."""
    told = outcome(call, p, cookie, token)
    end()
    if isinstance(told, int):
        p.ours.free(told, rdma.INVALIDATE)
        return
    need(told == "ok" or told in ERRORS, f"{call.__name__}: {told}")
    if told == "ok" and call in OPERATIONS:
        found, how = rdma.status(p.a)
        need(found == token and how in (rdma.SUCCESS, rdma.DROPPED, rdma.OTHER_ERROR), f"{call.__name__}: {found}, {how}")
        if how != rdma.SUCCESS:
            works(p, cookie, token)


def works(p, cookie, token):
    """Until the connection is there again, if it was that which failed. Takes all messages that have come."""
    while True:
        p.write(b"works", cookie, [(0, 100)], token)
        found, how = rdma.status(p.a)
        need(found == token and how in (rdma.SUCCESS, rdma.DROPPED, rdma.OTHER_ERROR), f"then: {found}, {how}")
        if how == rdma.SUCCESS:
            break
    while rdma.receive(p.b)[0] != b"works":
        pass


def clean(p, before, what):
    unpinned(*before)
    need(not select.select([p.a], [], [], 0)[0], f"{what}: more is told")


def renew(p):
    """The device fails, and so does the queue pair by which it registers memory, and the one that is made then. The next one
    is made when it is needed."""
    told = None
    while told != "EIO":
        knob("fail_post/times", 4)
        knob("fail_post/space", 0)
        knob("fail_post/probability", 100)
        # Two work requests each, with atomic operations and without.
        told = outcome(p.ours.register, 0, PAGE, 0)
        knob("fail_post/probability", 0)
        # What the connection has just posted may have failed instead.
        if isinstance(told, int):
            p.ours.free(told, rdma.INVALIDATE)
        else:
            need(told == "EIO", f"{told}, though the device fails")


def own(p, cookie):
    """Those of the calls of this thread."""
    nth = Nth("thread-self")
    left = 0

    def end():
        nonlocal left
        left = nth.end()

    before = rdma.pins(), rdma.charged()
    steps = {}
    for call in (get, sent_along, free, *OPERATIONS):
        for number in range(1, 500):
            p.mine = p.ours.register(0, PAGE)
            nth.begin(number)
            judge(p, call, cookie, number, end)
            told = outcome(p.ours.free, p.mine, rdma.INVALIDATE)
            need(told == "ok" or call is free and told == "EINVAL", f"{call.__name__}, step {number}: {told}")
            clean(p, before, f"{call.__name__}, step {number}")
            if left:
                break
        works(p, cookie, 1000)
        steps[call.__name__] = number - 1
    print(steps, flush=True)
    need(all(steps.values()), "a call without a step that can fail")


def workers():
    """Those that there are now."""
    for path in glob.glob("/proc/[0-9]*/comm"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(path, encoding="ascii") as f:
                if f.read().startswith("kworker/"):
                    yield Nth(path.split("/")[2])


def first(p, cookie, threads=workers):
    """Those by which the device's own queue pair is made."""
    before = rdma.pins(), rdma.charged()
    told, number, left = [], 1, []
    while not any(0 < x < number for x in left):
        # A worker that has just come has no number.
        number += 0 in left
        renew(p)
        with contextlib.ExitStack() as stack:
            some = [stack.enter_context(contextlib.closing(x)) for x in threads()]
            # Workers that have nothing to do end.
            for thread in some:
                with contextlib.suppress(ProcessLookupError):
                    thread.begin(number)
            told.append(outcome(p.ours.register, 0, PAGE))
            left, ended = [], False
            for thread in some:
                try:
                    left.append(thread.end())
                except ProcessLookupError:
                    ended = True
        if isinstance(told[-1], int):
            p.ours.free(told.pop(), rdma.INVALIDATE)
            told.append("ok")
        # A worker may have ended since the step failed, which takes a while to be noticed: nothing tells of it then, and
        # the step comes again.
        need(told[-1] == "ok" or (0 in left or ended) and told[-1] in ERRORS, f"step {number}: {told[-1]}")
        works(p, cookie, 1000)
        p.ours.free(p.ours.register(0, PAGE), rdma.INVALIDATE)
        clean(p, before, f"step {number}")
    print(number - 1, {x: told.count(x) for x in told}, flush=True)
    need(number > 1 and told[-1] == "ok", "no step was seen")
    return told


def first_refused(p, cookie):
    """Who asks hears that a step has failed, and does not wait until the CM asks again."""
    told = first(p, cookie)
    need("EIO" in told, f"{told}, though a step has failed")


def first_own(p, cookie):
    first(p, cookie, lambda: [Nth("thread-self")])


def device(p, cookie):
    """The same of what the device is asked for, also by the kernel's own threads."""
    before = rdma.pins(), rdma.charged()
    steps = {}
    for fault in ("fail_map", "fail_alloc_mr", "fail_post"):
        for number in range(1, 100):
            knob(f"{fault}/times", 1)
            # So many are spared, one more than that as the kernel counts.
            knob(f"{fault}/space", number)
            knob(f"{fault}/probability", 100)
            for call in (get, sent_along, *OPERATIONS):
                judge(p, call, cookie, number)
            left = knob(f"{fault}/times")
            knob(f"{fault}/probability", 0)
            works(p, cookie, 1000)
            clean(p, before, f"{fault}, step {number}")
            if left:
                break
        steps[fault] = number - 1
    print(steps, flush=True)


if __name__ == "__main__":
    with Pair(50) as pair:
        pair.ours.scatter()
        theirs = pair.theirs.register(0, 40 * PAGE)
        works(pair, theirs, 1000)
        globals()[sys.argv[1]](pair, theirs)
