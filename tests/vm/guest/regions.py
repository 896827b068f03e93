# SPDX-License-Identifier: GPL-2.0
"""regions.py CASE: regions of two devices, of devices that fail, and of operations that fail, on
one machine.

For faults the fault injection of the kernel has to be limited to this module.
"""

import contextlib
import ctypes
import json
import os
import resource
import socket
import subprocess
import sys
import time
from threading import Thread

import rdma
from cases import IB, eventually, need, outcome, play
from knobs import knob
from rdma import INVALIDATE, READWRITE, SILENT, USE_ONCE, B, Pair, unpinned
from rds import call, counters
from reset import reset
from statuses import connect, wire

PAGE = 4096
DEVICES = ("rdsx0", "rdsx1")
SETRESUID = 117
# A network device that has no address loses its routes.
OTHER = "10.9.0.101/32"


def devices(*what):
    return json.loads(subprocess.run(["rdma", "-j", "-dd", *what], check=True, capture_output=True).stdout or "[]")


@contextlib.contextmanager
def failing(device, **faults):
    """Makes a device fail in these ways, each a number of times."""
    knob("device", next(x["ifindex"] for x in devices("dev") if x["ifname"] == device))
    for name, times in faults.items():
        knob(f"{name}/times", times)
        knob(f"{name}/probability", 100)
    try:
        yield
    finally:
        for name in faults:
            knob(f"{name}/probability", 0)
        knob("device", (1 << 32) - 1)


@contextlib.contextmanager
def silent_device(p, made=READWRITE, freed=INVALIDATE):
    """Makes the device of p.a not report the end of a region, for which a program waits.

    The region was registered with INVALIDATE, or is freed with it. Yields the list of events, of
    which "ended" must be the last.
    """
    order = []
    cookie = p.ours.register(0, PAGE, made)

    def free():
        p.ours.free(cookie, freed)
        order.append("ended")

    with failing(DEVICES[0], lose_registration=100):
        waiting = Thread(target=free)
        waiting.start()
        try:
            eventually("the device is asked", lambda: knob("lose_registration/times") < 100)
            yield order
            # Two threads that have waited for the same event continue at the same time.
            waiting.join(0.5)
        finally:
            still = waiting.is_alive()
            waiting.join()
    need(still and order[-1] == "ended" and len(order) > 1, f"{order}, {still}")


def own_euid(uid):
    """Sets the user of this thread. The function of the C library waits for all threads."""
    call("syscall", SETRESUID, ctypes.c_long(-1), ctypes.c_long(uid), ctypes.c_long(-1))


def apart():
    """A program that uses another device does not wait."""
    with Pair(8) as p:
        before = p.theirs.register(0, PAGE)
        # One by one: the device is silent for a few seconds only, and the machine may be slow.
        with silent_device(p, READWRITE | INVALIDATE, 0) as order:
            p.theirs.free(before)
            p.theirs.free(0)
            order.append("flushed")
        with silent_device(p) as order:
            p.theirs.free(p.theirs.register(PAGE, PAGE), INVALIDATE)
            order.append("registered, and ended")
        with silent_device(p) as order:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (PAGE, PAGE))
            own_euid(1000)
            try:
                need(outcome(p.theirs.register, 0, 2 * PAGE) == "ENOMEM", "two pages are registered")
            finally:
                own_euid(0)
            order.append("refused")


def closed():
    """A socket with regions of the silent device is closed.

    Its pages are released when the device cannot use them any more.
    """
    with Pair(8) as p:
        other = rdma.connected((IB[0], 4003), B)
        theirs = rdma.Memory(other, 4)
        pins = rdma.pins()
        theirs.register(0, 3 * PAGE)
        with silent_device(p) as order:
            other.sock.close()
            order.append("closed")
            # The page of the pending region is pinned, too.
            held = rdma.pins() - pins
            need(held == 4 or "ended" in order, f"{held} pages are pinned")
        unpinned(pins)


def keep_source(p, cookie, area):
    """The region of an operation's source is kept: its program is notified nevertheless."""
    with failing(DEVICES[0], fail_dereg_mr=1):
        # The registration is complete; the completion of its end is lost.
        knob("lose_registration/times", 1)
        knob("lose_registration/space", 2)
        knob("lose_registration/probability", 100)
        p.write(b"", cookie, [area], 1, SILENT)
        need(rdma.status(p.a) == (1, rdma.SUCCESS), "its end")
        # The program is notified before the device is asked.
        eventually("it is counted", lambda: counters()["ib_mr_kept"] == 2)
        knob("lose_registration/probability", 0)


def kept():
    """The device does not end a region: its pages stay pinned, and all else continues."""
    p = Pair()
    p.ours.scatter()
    # Within a MiB, so that it is one region.
    area = -p.ours.base % (1 << 20), 30 * PAGE
    connect(p)
    theirs = p.theirs.register(0, 30 * PAGE)
    mine = p.ours.register(0, PAGE)
    pins = rdma.pins()
    with failing(DEVICES[0], lose_registration=1, fail_dereg_mr=1):
        p.ours.free(mine, INVALIDATE)
    need(counters()["ib_mr_kept"] == 1, "it is not counted")
    need(rdma.pins() == pins, "the page is not pinned any more")
    # Pages of an operation need a region only without an IOMMU, which makes them contiguous.
    count = 0 if os.listdir("/sys/class/iommu") else 30
    if count:
        keep_source(p, theirs, area)
    unpinned(pins + count)
    p.write(b"good", theirs, [area], 2)
    need(rdma.receive(p.b)[0] == b"good" and rdma.status(p.a) == (2, rdma.SUCCESS), "another one")
    p.ours.free(p.ours.register(0, PAGE), INVALIDATE)
    need(rdma.pins() == pins + count, "it is given back")
    p.theirs.free(theirs, INVALIDATE)
    p.a.sock.close()
    p.b.sock.close()
    unpinned(p.pins + 1 + count)


def refused():
    """The device refuses one of several work requests that are posted together.

    If it refuses a frame, all are done on the next connection. If it refuses the operation behind
    the frames, the others are done on this connection.
    """
    with Pair(8) as p:
        cookie = p.theirs.register(0, PAGE)
        for number in range(1, 7):
            reset(*IB)
            knob("fail_post/space", number)
            with failing(DEVICES[0], fail_post=1):
                # All of them wait for a connection.
                for data in (b"first", b"second"):
                    rdma.send(p.a, data)
                p.write(b"third", cookie, [(0, 100)], number)
                found = rdma.status(p.a)
                left = knob("fail_post/times")
            need(found in ((number, rdma.SUCCESS), (number, rdma.DROPPED)), f"{found}, with {left} refused")
            rdma.send(p.a, b"last")
            came = list(iter(lambda: rdma.receive(p.b)[0], b"last"))
            need(came == [b"first", b"second"] + [b"third"] * (found[1] == rdma.SUCCESS), f"{found}, {came}")


def full():
    """A device that cannot have more regions frees those in the free list, whatever their size.

    It also reuses those that have just been freed.
    """
    sizes = [PAGE, 30 * PAGE]
    # One more than the free list keeps of a size.
    count = 65
    with Pair(30) as p:
        for wanted, other in (sizes, sizes[::-1]):
            for cookie in [p.ours.register(0, other) for _ in range(20)]:
                p.ours.free(cookie, INVALIDATE)
            need(len(regions(DEVICES[0])) >= 20, "they are not kept")
            with failing(DEVICES[0], fail_alloc_mr=1):
                cookies = [p.ours.register(0, wanted) for _ in range(count)]
                need(knob("fail_alloc_mr/times") == 0, "there were enough")
            need(len(regions(DEVICES[0])) == count, "others are kept still")
            with failing(DEVICES[0], fail_alloc_mr=1000):
                for _ in range(100):
                    p.ours.free(cookies.pop())
                    cookies.append(p.ours.register(0, wanted))
            for cookie in cookies:
                p.ours.free(cookie, INVALIDATE)


def ip(*what):
    subprocess.run(["ip", *what], check=True)


@contextlib.contextmanager
def address_moved():
    """Moves the first address to the other device for a while."""
    ip("addr", "add", OTHER, "dev", "rdsv0")
    ip("addr", "del", f"{IB[0]}/32", "dev", "rdsv0")
    ip("addr", "add", f"{IB[0]}/32", "dev", "rdsv1")
    try:
        yield
    finally:
        ip("addr", "del", f"{IB[0]}/32", "dev", "rdsv1")
        ip("addr", "add", f"{IB[0]}/32", "dev", "rdsv0")
        ip("addr", "del", OTHER, "dev", "rdsv0")


def soon(function, *args):
    """Returns the result of a call that fails until the address exists."""
    end = time.monotonic() + 60
    while isinstance(told := outcome(function, *args), str) and told in ("ENODEV", "EADDRNOTAVAIL"):
        need(time.monotonic() < end, told)
        time.sleep(0.05)
    return told


def same_key():
    """Two devices have given the same key: each region is freed by itself.

    Soft-RoCE numbers its regions, and eight bits of a key change each time.
    """
    with Pair(8) as p:
        # Two, as the first region of the other device may not get the key of the first one.
        first = [p.ours.register(0, PAGE, READWRITE | USE_ONCE) for _ in range(2)]
        with address_moved():
            for _ in range(600):
                cookie = soon(p.ours.register, 0, PAGE, READWRITE | USE_ONCE)
                need(isinstance(cookie, int), f"{cookie}")
                if cookie in first:
                    break
                p.ours.free(cookie, INVALIDATE)
            else:
                raise AssertionError(f"there was none of {first}")
            # An operation would be lost with the previous connection.
            connect(p)
            # A peer reports the use of the region that it could use.
            control, _place = rdma.transfer(cookie, (0, 10), [(p.theirs.base, 10)], READWRITE)
            rdma.send(p.b, b"used", control)
            need(rdma.receive(p.a)[0] == b"used", "the message")
            need(p.ours.free(cookie, INVALIDATE) is None, "that of the other device has gone, too")
            need(outcome(p.ours.free, cookie) == "EINVAL", "there are more")
            first.remove(cookie)
        p.ours.free(first[0], INVALIDATE)


def regions(device):
    """Returns the numbers of a device's regions."""
    return {x["mrn"] for x in devices("res", "show", "mr") if x["ifname"] == device}


def interrupted():
    """The region of a read that fails on iWARP is not used again."""
    size = 1 << 20
    with Pair(300) as p:
        p.theirs.register(0, PAGE)
        theirs = p.theirs.register(0, size)
        connect(p)
        # A read that succeeds leaves its region for reuse.
        p.read(b"", theirs, [(0, size)], 1, SILENT)
        need(rdma.status(p.a) == (1, rdma.SUCCESS), "the first read")
        spare = regions(DEVICES[0])
        need(spare, "no region is left to be used again")
        with wire("loss", "100%", ends=("rdsv0",)):
            p.read(b"", theirs, [(0, size)], 2, SILENT)
            need(regions(DEVICES[0]) == spare, "it uses another one")
            reset(*IB)
            need(rdma.status(p.a) == (2, rdma.DROPPED), "the second read")
        eventually("the region has gone", lambda: not regions(DEVICES[0]) & spare)


def stalled(address):
    """Returns the largest number of unsent bytes of a TCP socket at an address.

    Only sockets that have repeated a segment without an answer count."""
    local = f"{int.from_bytes(socket.inet_aton(address), sys.byteorder):08X}:"
    with open("/proc/net/tcp", encoding="ascii") as f:
        rows = [line.split() for line in f.readlines()[1:]]
    return max((int(x[4].split(":")[0], 16) for x in rows if x[1].startswith(local) and int(x[6], 16)), default=0)


def answered():
    """A region is freed while iWARP answers a read from it.

    The answer has no bytes of the next region, and the memory is kept until then.
    """
    size = 1 << 20
    with Pair(600) as p:
        p.theirs.pages[:size] = b"x" * size
        p.theirs.pages[size:2 * size] = b"m" * size
        cookie = p.theirs.register(0, size)
        connect(p)
        # The first registration needs the link, which loses all packets later.
        p.read(b"", cookie, [(0, PAGE)], 1, SILENT)
        need(rdma.status(p.a) == (1, rdma.SUCCESS), "the first read")
        unpinned(pins := p.pins + size // PAGE)
        with wire("loss", "100%", ends=("rdsv1",)):
            p.read(b"", cookie, [(0, size)], 2, SILENT)
            # TCP has repeated a segment. So the device has long filled the send buffer of TCP, and
            # has the rest of an answer to send.
            eventually("an answer waits", lambda: stalled(IB[1]) > 4 * PAGE)
            p.theirs.free(cookie, INVALIDATE)
            marked = p.theirs.register(size, size)
            # In addition to the freed region: the target of the read, and the next region.
            more, wanted = rdma.pins() - pins, 2 * size // PAGE
            need(more == wanted, f"{more} more pages are pinned than the freed ones, not {wanted}")
        # The read may take several answers, and the next one is refused.
        found = rdma.status(p.a)
        need(found in ((2, rdma.SUCCESS), (2, rdma.DROPPED), (2, rdma.REMOTE_ERROR)), f"the read: {found}")
        got = set(p.ours.pages[:size])
        need(got <= {0, ord("x")}, f"it has brought {got}")
        unpinned(pins)
        p.theirs.free(marked, INVALIDATE)


if __name__ == "__main__":
    play(globals(), sys.argv[1:2])
