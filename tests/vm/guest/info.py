# SPDX-License-Identifier: GPL-2.0
"""Cases that read the RDS_INFO_* tables.

Prints the content of the tables, one JSON line for each case. The expected answers are in
tests/vm/test_info.py. Addresses are those of cases.py.
"""

import ctypes
import json
import mmap
import os
import socket
import struct
import threading
import time

from cases import CALL_TIMEOUT, ERRORS, IB, IB6, LOOP, LOOP6, case, main, outcome, page_before_nothing
from rds import SOL_RDS, Sock, info, libc
from uffd import Uffd

CONNECTIONS, SEND, RETRANS, RECV, SOCKETS, RDMA = 10001, 10003, 10004, 10005, 10006, 10008
# The IPv6 form of each table has another number.
SIX = {CONNECTIONS: 10011, SEND: 10012, RETRANS: 10013, RECV: 10014, SOCKETS: 10015, RDMA: 10017}
# No host has these addresses.
NOWHERE, NOWHERE6 = "10.9.0.200", "fd09::200"
# RDS_INFO_CONNECTION_FLAG_*.
SENDING, CONNECTING = 1, 2
CLONE_NEWNET = 0x40000000


def addr(raw):
    """Returns an address as text. A mapped one keeps its form."""
    return socket.inet_ntop(socket.AF_INET6 if len(raw) == 16 else socket.AF_INET, raw)


def rows(option, six, wanted=None):
    """Returns the records of a table as tuples, those with a local address in `wanted`."""
    layouts = {CONNECTIONS: "=QQ{0}{0}16sB" + ("" if six else "B"), SEND: "=QI{0}{0}2s2sBB",
               SOCKETS: "=I{0}{0}2s2sIQ", RDMA: "={0}{0}16s16sIIIIIBB2sI"}
    layouts[RETRANS] = layouts[RECV] = layouts[SEND]
    layout = struct.Struct(layouts[option].format("16s" if six else "4s"))
    at = {CONNECTIONS: (2, 3), SOCKETS: (1, 2), RDMA: (0, 1)}.get(option, (2, 3))
    ports = {SOCKETS: (3, 4), SEND: (4, 5), RETRANS: (4, 5), RECV: (4, 5)}.get(option, ())
    found = []
    for raw in info(SIX[option] if six else option):
        row = list(layout.unpack(raw))
        for i in at:
            row[i] = addr(row[i])
        for i in ports:
            row[i] = struct.unpack("!H", row[i])[0]
        if wanted is None or row[at[0]].removeprefix("::ffff:") in wanted:
            found.append([x.hex() if isinstance(x, bytes) else x for x in row])
    return found


def both(function, *args):
    """Returns the results of a function for the table of IPv4 and for that of IPv6."""
    return [function(*args, six=six) for six in (False, True)]


def eventually(condition):
    """Waits until a condition returns a true value, and returns its last value."""
    end = time.monotonic() + CALL_TIMEOUT
    while not (seen := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return seen


def ask(option, length, room=None, poison=0xA5):
    """Calls getsockopt() with a buffer of its own.

    Returns (result, length afterwards, whether bytes beyond it are unchanged).
    """
    with Sock() as s:
        room = length if room is None else room
        buffer = ctypes.create_string_buffer(bytes([poison]) * (max(room, 0) + 64), max(room, 0) + 64)
        size = ctypes.c_int(length)
        result = libc.getsockopt(s.fileno(), SOL_RDS, option, buffer, ctypes.byref(size))
        if result < 0:
            result = ERRORS.get(ctypes.get_errno(), "?")
        return result, size.value, buffer.raw[max(room, 0):] == bytes([poison]) * 64


def ask_into(address, option, length):
    """Calls getsockopt() with memory at an address.

    Returns its results, or the name of an error.
    """
    size = ctypes.c_int(length)
    with Sock() as s:
        each = libc.getsockopt(s.fileno(), SOL_RDS, option, ctypes.c_void_p(address), ctypes.byref(size))
        return ERRORS.get(ctypes.get_errno()) if each < 0 else [each, size.value]


@case
def record_sizes():
    def size(option):
        return ask(option, 1 << 20)[0]

    return {str(option): size(option) for option in range(9999, 10023)}


@case
def counter_names():
    return [raw[:32].rstrip(b"\0").decode() for raw in info(10000)][:76]


@case
def lengths():
    """Three sockets of a new namespace, which has no others."""
    def child():
        held = [Sock((LOOP, 5000 + i)) for i in range(3)]
        each = 28
        seen = {str(length - 3 * each): ask(SOCKETS, length)
                for length in (0, 1, each, 3 * each - 1, 3 * each, 3 * each + 1, 4096)}
        seen["negative"] = ask(SOCKETS, -1)[0]
        seen["longest"] = ask(SOCKETS, 0x7fffffff, 4096)[0]
        seen["empty"] = ask(SEND, 0)[:2]
        seen["empty, with room"] = ask(SEND, 4096)[:2]
        seen["bad memory"] = ask_into(8, SOCKETS, 4096)
        seen["empty, bad memory"] = ask_into(8, SEND, 4096)
        _memory, end = page_before_nothing()
        seen["bad memory behind it"] = ask_into(end - mmap.PAGESIZE, SOCKETS, 2 * mmap.PAGESIZE)
        for s in held:
            s.sock.close()
        return seen

    return elsewhere(child)


def elsewhere(function):
    """Returns the result of a function in a new network namespace."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        if libc.unshare(CLONE_NEWNET):
            os._exit(1)
        os.system("ip link set lo up")
        os.write(writer, json.dumps(outcome(function)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answers:
        answer = answers.read()
    os.waitpid(pid, 0)
    return json.loads(answer)


@case
def sockets():
    with Sock((LOOP, 4001)) as a, Sock((LOOP6, 4002)) as b, Sock((IB[0], 4003)) as c:
        a.connect(LOOP, 4004)
        b.connect(LOOP6, 4005)
        for option, size in ((socket.SO_SNDBUF, 30000), (socket.SO_RCVBUF, 40000)):
            c.sock.setsockopt(socket.SOL_SOCKET, option, size)
        inodes = [os.fstat(s.fileno()).st_ino for s in (a, b, c)]

        def shown(six):
            found = [x for x in rows(SOCKETS, six, (LOOP, LOOP6, IB[0])) if 4001 <= x[3] <= 4003]
            for row in found:
                row[-1] = inodes.index(row[-1]) if row[-1] in inodes else "?"
            return sorted(found, key=lambda row: row[3])

        return both(shown)


@case
def unbound_and_closed_sockets():
    with Sock((LOOP, 4001)):
        pass
    with Sock():
        return [x for x in rows(SOCKETS, False, (LOOP, "0.0.0.0")) if x[3] in (0, 4001)]


def messages(option, port, six, numbers=True):
    """Returns the messages with a local port.

    If they have numbers, these are relative to the first.
    """
    found = [x for x in rows(option, six) if x[4] == port]
    first = found[0][0] if found else 0
    for row in found:
        row[0] = row[0] - first if numbers else None
    return found


@case
def unread_on_loopback():
    with Sock((LOOP, 4001)), Sock((LOOP, 4002)) as s, Sock((LOOP, 4003)) as t:
        for sender, size in ((s, 10), (t, 5000), (s, 0)):
            sender.send(bytes(size), (LOOP, 4001))
        eventually(lambda: len(messages(RECV, 4001, True)) == 3)
        return both(lambda six: messages(RECV, 4001, six, numbers=False))


@case
def unread_and_looked_at():
    """Reads the table while a reader with MSG_PEEK copies a message."""
    with Sock((LOOP, 4001)) as r, Sock((LOOP, 4002)) as s:
        for size in (10, 5000, 0):
            s.send(bytes(size), (LOOP, 4001))
        eventually(lambda: len(messages(RECV, 4001, True)) == 3)
        memory = Uffd()
        reader = threading.Thread(daemon=True, target=lambda: libc.recv(
            r.fileno(), ctypes.c_void_p(memory.at), 100, socket.MSG_PEEK))
        reader.start()
        try:
            memory.wait()
            seen = both(lambda six: messages(RECV, 4001, six, numbers=False))
        finally:
            memory.fill()
        reader.join()
        return [seen, both(lambda six: messages(RECV, 4001, six, numbers=False))]


@case
def unread_from_itself():
    """Messages between ports of an address that has types of service."""
    with Sock((IB[0], 4001)), Sock((IB[0], 4002)) as s:
        s.set_tos(4)
        s.send(bytes(10), (IB[0], 4001))
        eventually(lambda: len(messages(RECV, 4001, True)) == 1)
        return both(lambda six: messages(RECV, 4001, six, numbers=False))


def unread(local, peer):
    with Sock((peer, 4001)) as r, Sock((local, 4002)) as s:
        s.set_tos(4)
        for size in (10, 20000, 0):
            s.send(bytes(size), (peer, 4001))
        eventually(lambda: len(messages(RECV, 4001, True)) == 3)
        before = both(lambda six: messages(RECV, 4001, six))
        r.recv()
        return [*before, len(messages(RECV, 4001, True)), messages(RECV, 4001, True)[0][1]]


@case
def unread_from_a_peer():
    return unread(*IB)


@case
def unread_from_a_peer_v6():
    return unread(*IB6)


def attempts(six, local, nowhere):
    """Returns the flags of connections that are being made, without SENDING."""
    found = [x for x in rows(CONNECTIONS, six, (local,)) if x[3].removeprefix("::ffff:") == nowhere]
    return [x[5] & ~SENDING for x in found if x[5] & CONNECTING]


def unsent(local, nowhere):
    with Sock((local, 4001)) as s:
        s.set_tos(6)
        for size in (10, 20000, 0):
            s.send(bytes(size), (nowhere, 4002), socket.MSG_DONTWAIT)
        seen = both(lambda six: messages(SEND, 4001, six))
        kind = [x for x in rows(CONNECTIONS, True) if x[3].endswith(nowhere)]
        # A connection begins with a number of its own choice.
        first = min((x[0] for x in rows(SEND, True) if x[4] == 4001), default=0)
        seen.append([[x[0] - first, x[1], x[3]] for x in kind])
        if ":" not in local:
            # C RDS sets the flag during an attempt. Attempts to an IPv6 address do not last.
            seen.append(both(lambda six: eventually(lambda: attempts(six, local, nowhere))))
        seen.append(both(lambda six: messages(RETRANS, 4001, six)))
        # Uninitialized memory must not appear: all but the addresses and the type of service is
        # zero.
        seen.append([[x for x in rows(RDMA, six) if x[1].endswith(nowhere)] for six in (False, True)])
    return seen + [len(messages(SEND, 4001, True))]


@case
def unsent_to_nobody():
    return unsent(IB[0], NOWHERE)


@case
def unsent_to_nobody_v6():
    return unsent(IB6[0], NOWHERE6)


# The numbers of both ends of the connection of unacknowledged(), after the first message in each
# direction.
AT_FIRST = {}


def ends(six):
    """Returns both ends of the connections with type of service 8: next_tx, next_rx, local, peer,
    flags."""
    found = [x for x in rows(CONNECTIONS, six, IB) if x[4] == b"infiniband".ljust(16, b"\0").hex()]
    return [(*x[:4], x[5]) for x in found if six or x[6] == 8]


@case
def unacknowledged():
    """Messages on a new connection, too few to be acknowledged at once.

    The first one may be acknowledged by what the peer sends when the connection is up.
    """
    with Sock((IB[1], 4001)) as r, Sock((IB[0], 4002)) as s:
        for end in (r, s):
            end.set_tos(8)
        s.send(b"up?", (IB[1], 4001))
        r.recv()
        r.send(b"up", (IB[0], 4002))
        s.recv()
        AT_FIRST.update({x[2]: x[:2] for x in ends(False)})
        s.send(bytes(5000), (IB[1], 4001))
        r.recv()
        return both(lambda six: [[0, *x[1:]] for x in messages(RETRANS, 4002, six) if x[1] == 5000])


@case
def connections_that_are_up():
    """Returns the connections of unacknowledged(), without SENDING, and the progress of their
    numbers."""
    four = [(*x[:4], x[4] & ~SENDING) for x in ends(False)]
    # The other table has no type of service.
    mapped = [(*x[:2], f"::ffff:{x[2]}", f"::ffff:{x[3]}", x[4]) for x in four]
    six = [x for x in mapped if x in [(*x[:4], x[4] & ~SENDING) for x in ends(True)]]

    def since(row):
        tx, rx = AT_FIRST[row[2].removeprefix("::ffff:")]
        return [row[0] - tx, row[1] - rx, *row[2:]]

    return [sorted(map(since, x)) for x in (four, six)]


@case
def rdma_connections():
    def shown(six):
        found = [x for x in rows(RDMA, six, IB) if x[9] == 8]
        # Implementations may choose the sizes of queues.
        return sorted([*x[:4], x[4] > 0, x[5] > 0, x[6] > 0, *x[9:12]] for x in found)

    return both(shown)


@case
def namespaces():
    def child():
        with Sock((LOOP, 4001)), Sock((LOOP, 4002)) as s:
            s.send(b"abc", (LOOP, 4001))
            eventually(lambda: rows(RECV, False))
            return [[x[3] for x in rows(SOCKETS, False)],
                    [x[1] for x in rows(RECV, False)],
                    [len(info(x)) for x in (SEND, RETRANS, RDMA, SIX[SEND], SIX[RETRANS], SIX[RDMA])],
                    [row[2] for row in rows(CONNECTIONS, True) if row[2].endswith(IB[0])]]

    with Sock((LOOP, 4011)), Sock((IB[0], 4012)) as s:
        s.send(b"abc", (NOWHERE, 4011), socket.MSG_DONTWAIT)
        there = elsewhere(child)
        here = [x[3] for x in rows(SOCKETS, False) if x[3] in (4001, 4002, 4011, 4012)]
    return [sorted(there[0]), *there[1:], sorted(here)]


if __name__ == "__main__":
    main()
