# SPDX-License-Identifier: GPL-2.0
"""each_step.py own|device|first|first_refused|first_own ATOMICS: each step of a registration and of
an operation fails once.

The steps are those of the calls of this thread (own), or those of the device in any thread
(device). With first they are steps of the kernel's workers in the first registration, with
first_own those of this thread. With first_refused a worker's failed step must refuse the
registration.

After each failure everything else works, and nothing is left. ATOMICS is 1 if the devices have
them.

The fault injection of the kernel has to be limited to this module, or to one function of it.
"""

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
# The last error is that of memory that cannot be pinned.
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
    """Runs one call, of which steps may fail until end().

    The call is refused with an error, or succeeds, or its failure is reported once. If it failed in
    flight, the next operations must succeed.
    """
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
    """Writes until the connection is up again, in case it failed.

    Receives all messages that have arrived.
    """
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
    """Makes the registration queue pair of the device fail, and the one that replaces it.

    The next one is created when it is needed.
    """
    told = None
    while told != "EIO":
        knob("fail_post/times", 4)
        knob("fail_post/space", 0)
        knob("fail_post/probability", 100)
        # Each takes two work requests, with atomic operations and without.
        told = outcome(p.ours.register, 0, PAGE, 0)
        knob("fail_post/probability", 0)
        # A post of the connection may have failed instead.
        if isinstance(told, int):
            p.ours.free(told, rdma.INVALIDATE)
        else:
            need(told == "EIO", f"{told}, though the device fails")


def own(p, cookie):
    """Makes the steps of calls of this thread fail."""
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
    """Yields the kernel's workers that exist now."""
    for path in glob.glob("/proc/[0-9]*/comm"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(path, encoding="ascii") as f:
                if f.read().startswith("kworker/"):
                    yield Nth(path.split("/")[2])


def first(p, cookie, threads=workers):
    """Makes the steps fail that create the device's own queue pair."""
    before = rdma.pins(), rdma.charged()
    told, number, left = [], 1, []
    while not any(0 < x < number for x in left):
        # If no step has failed the number stays: a new worker has no fault set.
        number += 0 in left
        renew(p)
        with contextlib.ExitStack() as stack:
            some = [stack.enter_context(contextlib.closing(x)) for x in threads()]
            # Idle workers may end.
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
        # The worker may have ended after its step failed, as the failure takes a while to be
        # noticed. Then nothing shows that the step failed, and it is repeated.
        need(told[-1] == "ok" or (0 in left or ended) and told[-1] in ERRORS, f"step {number}: {told[-1]}")
        works(p, cookie, 1000)
        p.ours.free(p.ours.register(0, PAGE), rdma.INVALIDATE)
        clean(p, before, f"step {number}")
    print(number - 1, {x: told.count(x) for x in told}, flush=True)
    need(number > 1 and told[-1] == "ok", "no step was seen")
    return told


def first_refused(p, cookie):
    """The caller gets the error of a failed step, and does not wait until the CM asks again."""
    told = first(p, cookie)
    need("EIO" in told, f"{told}, though a step has failed")


def first_own(p, cookie):
    first(p, cookie, lambda: [Nth("thread-self")])


def device(p, cookie):
    """Makes the steps of the device fail, also those in threads of the kernel."""
    before = rdma.pins(), rdma.charged()
    steps = {}
    for fault in ("fail_map", "fail_alloc_mr", "fail_post"):
        for number in range(1, 100):
            knob(f"{fault}/times", 1)
            # The kernel spares one step less than `space`.
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
