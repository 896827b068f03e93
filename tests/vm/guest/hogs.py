# SPDX-License-Identifier: GPL-2.0
"""hogs.py KIND LOCAL PEER: an ordinary user who repeats one abuse between two addresses of this
node until standard input ends.

Prints the number of repetitions, first when it has begun, then for each line of input, after some
more repetitions.
"""

import collections
import contextlib
import itertools
import os
import resource
import select
import socket
import sys

import rdma
from cases import outcome
from rds import FRAGMENT, MAX_MESSAGE, Sock, info

USER = 1001
NOW = socket.MSG_DONTWAIT
RCVBUF = socket.SO_RCVBUF
# Usual limits of a user.
FILES, LOCKED = 1024, 8 << 20
# Repetitions until the program reports that it has begun, and those before each further report.
BEGUN, MORE = 20, 5
KINDS = {}


def kind(function):
    """Registers a function that yields after each repetition."""
    KINDS[function.__name__] = function
    return function


def read_all(s):
    """Receives all messages of a socket. Returns how many there were."""
    for count in itertools.count():
        if outcome(s.recv, 1, NOW) == "EAGAIN":
            return count


def become_ordinary():
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (LOCKED, LOCKED))


@kind
def unread_port(local, peer):
    """Hundreds of sockets send as much as they may to one that is not read."""
    full = Sock((peer, 0))
    senders = [Sock((local, 0)) for _ in range(400)]
    while True:
        for s in senders:
            outcome(s.send, bytes(8 * FRAGMENT), full.name(), NOW)
        yield


@kind
def unread_memory(local, peer):
    """The same with many receivers, which takes memory."""
    full = [Sock((peer, 0)) for _ in range(400)]
    senders = [Sock((local, 0)) for _ in range(40)]
    for s in itertools.cycle(senders):
        for r in full:
            outcome(s.send, bytes(16 * FRAGMENT), r.name(), NOW)
        yield


@kind
def unread_short(local, peer):
    """The same with short messages, which keep no buffer but other memory.

    Each socket has little of it, so no port is full.
    """
    full = [Sock((peer, 0)) for _ in range(800)]
    senders = [Sock((local, 0)) for _ in range(10)]
    for s in itertools.cycle(senders):
        for r in full:
            outcome(s.send, bytes(900), r.name(), NOW)
        yield


@kind
def dead_peers(local, _):
    """Messages to addresses that no host has. Each requests a connection."""
    held = []
    for number in itertools.count():
        if number % 100 == 0:
            # The send buffer of the one before is half full.
            s = Sock((local, 0))
            held.append(s)
        outcome(s.send, b"x", (f"10.77.{number // 250 % 250}.{1 + number % 250}", 1), NOW)
        if number % 10 == 9:
            yield


@kind
def send_buffers(local, _):
    """Sockets whose send buffers are full permanently, because their peer is dead."""
    senders = [Sock((local, 0)) for _ in range(249)]
    while True:
        for s in senders:
            outcome(s.send, bytes(16 * FRAGMENT), ("10.77.255.1", 1), NOW)
        yield


@kind
def wrong_keys(local, peer):
    """Operations with a key that no region has."""
    with rdma.connected((local, 0), (peer, 1)) as s:
        memory = rdma.Memory(s, 1)
        for token in itertools.count():
            bad, _place = rdma.transfer(1, (0, 8), [(memory.base, 8)], rdma.READWRITE | rdma.NOTIFY_ME, token)
            if outcome(rdma.send, s, b"x", bad) == 1:
                outcome(rdma.status, s)
            yield


@kind
def tiny_buffers(local, peer):
    """Ports that are full after each message, and empty after each read.

    The peer is notified each time.
    """
    readers = [Sock((peer, 0)) for _ in range(50)]
    for r in readers:
        r.setsockopt(socket.SOL_SOCKET, RCVBUF, 1)
    with Sock((local, 0)) as s:
        while True:
            for r in readers:
                outcome(s.send, bytes(2 * FRAGMENT), r.name(), NOW)
            for r in readers:
                read_all(r)
            yield


@kind
def pins(local, peer):
    """Registers as much memory as it may, and frees it."""
    with rdma.connected((local, 0), (peer, 1)) as s:
        memory = rdma.Memory(s, 4096)
        while True:
            found = []
            for at in range(0, 4096 * FRAGMENT, 64 * FRAGMENT):
                found.append(outcome(memory.register, at, 64 * FRAGMENT))
            yield
            for cookie in found:
                if isinstance(cookie, int):
                    memory.free(cookie, rdma.INVALIDATE)


@kind
def ports(local, peer):
    """As many bound sockets as it may have, at both addresses. They are opened and closed."""
    held = collections.deque()
    while True:
        for host in (local, peer) * 50:
            if len(held) > FILES - 100:
                held.popleft().sock.close()
            held.append(Sock((host, 0)))
        yield


@kind
def broadcast(local, _):
    """Messages to addresses of many nodes, or of none."""
    with Sock((local, 0)) as s:
        for number in itertools.count():
            for host in ("255.255.255.255", "10.9.0.255", "224.0.0.1", f"239.1.{number % 250}.1"):
                outcome(s.send, b"x", (host, 1), NOW)
            yield


@kind
def lines(local, _):
    """Calls whose failure the kernel logs: messages to hosts that cannot exist, and binds to
    addresses of others."""
    for number in itertools.count():
        with Sock((local, 0)) as s, Sock() as other:
            outcome(s.send, b"x", (f"127.1.{number // 250 % 250}.{1 + number % 250}", 1), NOW)
            outcome(other.bind, "203.0.113.7", 0)
        yield


@kind
def tables(local, peer):
    """Readers of all tables, while sockets are opened and closed."""
    while True:
        for option in range(10000, 10022):
            with Sock((local, 0)), Sock((peer, 0)), contextlib.suppress(OSError):
                info(option)
        yield


@kind
def large_messages(local, peer):
    """The largest messages that it may send, which it reads."""
    s, r = Sock((local, 0)), Sock((peer, 0))
    # The kernel reduces this to the limit.
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MAX_MESSAGE)
    size = MAX_MESSAGE
    while outcome(s.send, bytes(size), r.name(), NOW) == "EMSGSIZE":
        size //= 2
    while True:
        # The last send may have been refused because the port was full, and the sender does not
        # know yet that it is empty.
        select.select([r], [s], [])
        if read_all(r):
            yield
        while outcome(s.send, bytes(size), r.name(), NOW) == size:
            pass


@kind
def taken_back(local, peer):
    """Messages that it cancels at once, and sockets that it closes with messages in flight."""
    r = Sock((peer, 0))
    while True:
        with Sock((local, 0)) as s:
            for _ in range(10):
                outcome(s.send, bytes(4 * FRAGMENT), r.name(), NOW)
                s.cancel(*r.name())
                outcome(s.send, bytes(FRAGMENT), r.name(), NOW)
        read_all(r)
        yield


@kind
def types(local, peer):
    """A connection for each type of service, repeatedly with other messages."""
    r = Sock((peer, 0))
    for tos in itertools.cycle(range(40)):
        with Sock((local, 0), 1) as s:
            s.set_tos(tos)
            outcome(s.send, b"x", r.name())
        outcome(r.recv, 1, NOW)
        yield


def main(name, local, peer):
    become_ordinary()
    doing = KINDS[name](local, peer)
    until = BEGUN
    for count, _ in enumerate(doing, 1):
        if count == until:
            print(count, flush=True)
        elif count > until and select.select([sys.stdin], [], [], 0)[0]:
            if not sys.stdin.readline():
                return
            until = count + MORE


if __name__ == "__main__":
    main(*sys.argv[1:])
