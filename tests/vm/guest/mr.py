# SPDX-License-Identifier: GPL-2.0
"""mr.py LIBRARY ATOMICS: registered memory of a program, as peers that use verbs see it.

LIBRARY is verbs.c, compiled. ATOMICS is 1 if the devices have them. The network is that of
rogue.py.
"""

import mmap
import select
import struct
import sys

import frames
import peer
import rdma
from cases import outcome
from peer import FETCH_AND_ADD, READ, SEND_WITH_INVALIDATE, WRITE, WRITE_WITH_IMM, Home, Peer, PeerError
from rdma import FREE_MR, GET_MR, GET_MR_FOR_DEST, INVALIDATE, READWRITE, USE_ONCE
from rds import Sock, sockaddr
from regions import devices
from rogue import DEVICE, MINE, NODE, connected, is_iwarp, need

RDMA = 2


class Memory(rdma.Memory):
    """Memory of a program with its own socket."""

    def __init__(self, home, pages=3):
        with home.at_home():
            super().__init__(Sock((NODE, 0)), pages)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.sock.close()


def tried(home, opcode, cookie, at, data):
    """Returns the result of an operation of a new peer, or None."""
    with Peer(MINE[0], NODE) as p:
        p.open()
        # The passive side of soft-iWARP may not see the first frame before the second, and nothing
        # follows a read.
        need(p.ping(), "there is no connection")
        brought = p.operate(opcode, cookie, at, data)
        # On iWARP a write completes before it is refused.
        if brought is not None and not p.ping():
            brought = None
        if brought is None:
            p.await_end()
        else:
            p.settle()
    return brought


def uses(home):
    """A peer reads and writes, over one connection and the next."""
    with Memory(home) as m:
        cookie = m.register(100, 5000)
        need(cookie >> 32 == (m.base + 100) % mmap.PAGESIZE, f"the cookie is {cookie:#x}")
        for at in (0, 7, 4090, 4990):
            data = bytes([at % 251 + 1]) * 10
            need(tried(home, WRITE, cookie, at, data) is not None, f"a write at {at} was refused")
            need(m.pages[100 + at:110 + at] == data, f"a write at {at} is not there")
            brought = tried(home, READ, cookie, at, bytes(10))
            need(brought == data, f"a read at {at} brought {brought}")
        need(m.pages[90:100] == bytes(10) and m.pages[5100:5110] == bytes(10), "too much was written")


def largest(home):
    """Registers 1 MiB that takes a part of 257 pages, of the last one a byte.

    The device of soft-iWARP has room for 256 only.
    """
    size, at = 1 << 20, 1
    with Memory(home, 257) as m:
        if is_iwarp():
            need(outcome(m.register, at, size) == "EMSGSIZE", "soft-iWARP has room for 257 pages")
            at = 0
        cookie = m.register(at, size)
        for place in (0, size // 2, size - 10):
            data = bytes([place % 251 + 1]) * 10
            need(tried(home, WRITE, cookie, place, data) is not None, f"a write at {place} was refused")
            need(m.pages[at + place:at + place + 10] == data, f"a write at {place} is not there")
            need(tried(home, READ, cookie, place, bytes(10)) == data, f"a read at {place} brought something else")
        need(tried(home, WRITE, cookie, size - 9, bytes(10)) is None, "it got to what is behind")


def adds(home):
    with Memory(home) as m:
        cookie = m.register(0, 4096)
        m.pages[8:16] = struct.pack("=Q", 41)
        brought = tried(home, FETCH_AND_ADD, cookie, 8, bytes(8))
        need(brought == struct.pack("=Q", 41), f"fetch and add brought {brought}")


def limits(home):
    """Accesses outside the registered memory, or against the flags of the registration."""
    with Memory(home) as m:
        cookie = m.register(100, 5000)
        for what, opcode, at in (("before", WRITE, -1), ("behind", WRITE, 4991), ("far", READ, 1 << 40)):
            need(tried(home, opcode, cookie, at, bytes(10)) is None, f"it got to what is {what}")
        need(tried(home, WRITE, cookie ^ 1, 0, bytes(10)) is None, "another key will do")
        need(tried(home, WRITE, cookie, 0, bytes(10)) is not None, "the key is no good any more")
        m.make_read_only(0, mmap.PAGESIZE)
        readable = m.register(0, 100, flags=0)
        need(tried(home, READ, readable, 0, bytes(10)) is not None, "memory that is only to be read is not")
        need(tried(home, WRITE, readable, 0, bytes(10)) is None, "memory that is only to be read is written")


def ends(home):
    """Frees regions: at once, with others, and with the socket."""
    with Memory(home) as m:
        cookie = m.register(0, 100)
        m.free(cookie, INVALIDATE)
        need(tried(home, READ, cookie, 0, bytes(10)) is None, "it outlives its end")
        need(outcome(m.free, cookie) == "EINVAL", "it can be freed twice")
        some = [m.register(0, 100) for _ in range(100)]
        need(len(set(some) | {cookie}) == 101, "keys come again too soon")
        for each in some:
            m.free(each)
        seen = set()
        for _ in range(600):
            cookie = m.register(0, 100)
            m.free(cookie, INVALIDATE)
            seen.add(cookie)
        need(len(seen) == 600, f"of 600 keys, {600 - len(seen)} were there before")
        m.free(0)
        need(tried(home, READ, some[50], 0, bytes(10)) is None, "it outlives the end of all")
        kept = m.register(0, 100)
    with Memory(home) as m:
        # Frees the regions that the closed socket had.
        m.free(0)
        need(tried(home, READ, kept, 0, bytes(10)) is None, "it outlives its socket")


def ended(home):
    """A peer invalidates a region itself, with the frame of a message.

    Verbs permit this if the peer knows the key. It is no valid frame of RDS, and ends the
    connection.
    """
    with Memory(home) as m:
        cookie, other, port = m.register(0, 100), m.register(0, 100), m.sock.name()[1]
        with connected(home) as p:
            need(p.ping(), "there is no connection")
            p.aim(cookie)
            before = home.counters()["ib_rx_misused"]
            p.send(frames.message(p.number(), b"ended", dport=port, sport=4000), opcode=SEND_WITH_INVALIDATE)
            p.await_end()
            need(home.counters()["ib_rx_misused"] == before + 1, "it ended for something else")
            need(not select.select([m.sock], [], [], 0)[0], "the message came")
        need(tried(home, READ, cookie, 0, bytes(10)) is None, "it outlives its end")
        need(tried(home, READ, other, 0, bytes(10)) is not None, "another one has ended, too")
        need(outcome(m.free, cookie, INVALIDATE) == "ok", "its program cannot end it")
        m.free(other, INVALIDATE)
        need(rdma.pins() == 0, f"{rdma.pins()} pages are pinned")
        for _ in range(2):
            need(tried(home, READ, m.register(0, 100), 0, bytes(10)) is not None, "the next one is no good")


def told(home):
    """A peer writes with immediate data to memory of which it has the key.

    This uses up a receive, for which the device reports the number of written bytes. The receive
    contains an earlier frame, or nothing.
    """
    with Memory(home) as m:
        cookie, port = m.register(0, 100), m.sock.name()[1]
        for size in (64, 0):
            with connected(home) as p:
                frame = frames.message(p.number(), b"sixteen bytes...", dport=port, sport=4000)[:size]
                p.aim(cookie)
                before = home.counters()["ib_rx_misused"]
                p.send(frame, opcode=WRITE_WITH_IMM)
                p.await_end()
                need(home.counters()["ib_rx_misused"] == before + 1, f"{size} bytes: it ended for something else")
            need(m.pages[:size] == frame, f"{size} bytes: they are not there")
            need(not select.select([m.sock], [], [], 0)[0], f"{size} bytes: a message came")
        need(tried(home, READ, cookie, 0, bytes(64)) == m.pages[:64], "the key is no good any more")


def foreign(home):
    """A peer invalidates keys that it was not given.

    These are another key, that of all memory, and that of an operation of the node. A device
    permits this if the peer guesses the key. The peer's connection ends, and everything else
    continues.
    """
    with Memory(home, 300) as m, Memory(home) as other:
        cookie, port = other.register(0, 100), other.sock.name()[1]
        m.scatter()
        guessed = key_of_operation(m, 30 * mmap.PAGESIZE, READWRITE)
        # Soft-iWARP does not compare the low 8 bits of a key that is invalidated.
        unknown = cookie ^ (1 << 31 if is_iwarp() else 1)
        # Soft-iWARP would invalidate that of all memory, and could not send any more.
        whole = set() if is_iwarp() else keys("pd", "local_dma_lkey")
        for what, key in (("another key", unknown), ("the operation's", guessed),
                          *(("that of all memory", key) for key in whole)):
            with Peer(MINE[0], NODE) as p:
                p.open()
                need(p.ping(), "there is no connection")
                p.aim(key)
                p.send(frames.message(p.number(), b"ended", dport=port, sport=4000), opcode=SEND_WITH_INVALIDATE)
                p.await_failure()
                p.disconnect()
            need(not select.select([other.sock], [], [], 0)[0], f"{what}: the message came")
            need(tried(home, READ, cookie, 0, bytes(10)) is not None, f"{what}: a region has ended, too")


def key_of_operation(memory, size, flags):
    """Begins an operation that waits for a peer that does not exist. Returns the key of the region
    that it uses.

    Its local memory begins with a MiB. Memory that crosses into the next one needs two regions.
    """
    before, start = keys("mr", "rkey"), memory.base + -memory.base % (1 << 20)
    control, _place = rdma.transfer(0x1234, (0, size), [(start, size)], flags)
    memory.sock.connect(MINE[7], 4000)
    rdma.send(memory.sock, b"", control)
    key, = keys("mr", "rkey") - before
    return key


def keys(what, kind):
    """Returns the keys of the node's device."""
    return {int(x[kind], 16) for x in devices("res", "show", what) if x["ifname"] == DEVICE and kind in x}


def everything(home):
    """A peer uses the key of all memory, with which the node addresses memory that is not
    registered."""
    with open("/proc/kallsyms", encoding="ascii") as f:
        at = next(int(line.split()[0], 16) for line in f if line.split()[2] == "linux_banner")
    # The key of the CM is one of them. Soft-RoCE checks the access rights.
    found = {tried(home, READ, key, at, bytes(13)) for key in keys("pd", "local_dma_lkey")}
    wanted = {b"Linux version"} if is_iwarp() else {None}
    need(wanted <= found <= wanted | {None}, f"it brought {found}")
    for key in keys("pd", "local_dma_lkey"):
        need(tried(home, WRITE, key, at, b"overwritten!") is None, "it can be written")


def own(home):
    """A peer accesses memory of an operation of the node, which waits for a peer that does not
    exist.

    The attacker has a connection, and guesses the key of the operation's region.
    """
    for what, flags in (("source", READWRITE), ("sink", 0)):
        with Memory(home, 300) as m:
            # Few pieces would not need a region.
            m.scatter()
            at = -m.base % (1 << 20)
            m.fill(at, b"secret" * 10)
            key = key_of_operation(m, 30 * mmap.PAGESIZE, flags)
            brought = tried(home, READ, key, 0, bytes(10))
            # Soft-iWARP does not check rights. The result of a read is written there by the peer.
            need(brought == (m.pages[at:at + 10] if is_iwarp() else None), f"the {what}: a read brought {brought}")
            written = tried(home, WRITE, key, 0, b"overwritten")
            need((written is not None) == (is_iwarp() and what == "sink"), f"the {what}: a write brought {written}")
            there = m.pages[at:at + 11]
            need(there == (b"overwritten" if written else b"secretsecre"), f"the {what}: {there} is there")


def once(home):
    """A peer reports that it has used memory."""
    with Memory(home) as m, connected(home) as p:
        port = m.sock.name()[1]
        # Nothing follows the first message, see `tried`.
        need(p.ping(), "there is no connection")
        twice, single = m.register(0, 100), m.register(0, 100, READWRITE | USE_ONCE)
        for cookie in (twice, single):
            ext = frames.extension(RDMA, struct.pack("!I", cookie & 0xffffffff))
            p.send(frames.message(p.number(), b"used", dport=port, sport=4000, ext=ext))
            need(m.sock.recv()[0] == b"used", "the message did not come")
        m.free(twice)
        need(outcome(m.free, single) == "EINVAL", "memory for one use is there after it")


def wrong(home):
    """Registrations that must fail."""
    with Memory(home) as m:
        cases = {
            "EINVAL": [(0, 0), (0, 1 << 63), (-m.base + (1 << 64) - 10, 100)],
            "EMSGSIZE": [(0, (1 << 20) + 4097), (1, 1 << 21)],
            "EFAULT": [(3 * mmap.PAGESIZE + (1 << 40), 100)],
        }
        for error, areas in cases.items():
            for at, length in areas:
                found = outcome(m.register, at, length)
                need(found == error, f"{at:#x}, {length:#x}: {found}, not {error}")
        raw = struct.pack("=QQQQ", m.base, 100, 8, 0)
        need(outcome(m.sock.set_raw, GET_MR, raw) == "EFAULT", "the cookie can be written to nowhere")
        lengths = [(GET_MR, struct.pack("=QQQQ", m.base, 100, 0, 0)), (FREE_MR, struct.pack("=QQ", m.register(0, 100), 0)),
                   (GET_MR_FOR_DEST, sockaddr(MINE[0], 4000).ljust(128, b"\0") + struct.pack("=QQQQ", m.base, 100, 0, 0))]
        for option, good in lengths:
            for other in (good[:-1], good + b"\0"):
                need(outcome(m.sock.set_raw, option, other) == "EINVAL", f"{option}: {len(other)} bytes will do")
            need(outcome(m.sock.set_raw, option, good) == "ok", f"{option}: {len(good)} bytes will not do")
        with home.at_home():
            unbound, loop = Sock(), Sock(("127.0.0.1", 0))
        need(outcome(unbound.set_raw, GET_MR, raw) == "ENOTCONN", "a socket without an address will do")
        need(outcome(loop.set_raw, GET_MR, raw) == "EOPNOTSUPP", "a socket on loopback will do")
        need(outcome(loop.set_raw, FREE_MR, bytes(16)) == "EINVAL", "there is nothing to flush on loopback")


def main():
    peer.load(sys.argv[1])
    home = Home("rogue")
    failed = 0
    for function in (uses, largest, *[adds] * int(sys.argv[2]), *[told] * (not is_iwarp()), limits, ends, ended, foreign, own, everything, once, wrong):
        try:
            function(home)
        except PeerError as e:
            failed += 1
            print(f"{function.__name__}: {e}", flush=True)
    try:
        rdma.unpinned(0)
    except AssertionError as e:
        failed += 1
        print(e)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
