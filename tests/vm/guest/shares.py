# SPDX-License-Identifier: GPL-2.0
"""shares.py other LOCAL PEER: messages of an ordinary user, each of which is read. Prints the
outcomes, as JSON.

shares.py full LOCAL PEER: an ordinary user whose share of the pools is full, and calls that wait
for room in it.

shares.py namespaces LOCAL PEER: the same user and others, in user namespaces. Prints the outcome of
a message of each, as JSON.

shares.py pool LOCAL PEER: root fills the pool of short messages, and an ordinary user waits for a
buffer.
"""

import collections
import json
import os
import select
import signal
import socket
import sys
import time

from cases import eventually, need, outcome
from hogs import USER, become_ordinary
from rds import FRAGMENT, Sock, call, counters

NOW = socket.MSG_DONTWAIT
CLONE_NEWUSER = 0x10000000
# No host has this address.
NOBODY = ("10.77.255.1", 1)
MESSAGE = 16 * FRAGMENT
PATIENCE = 60
# Users of namespaces, by their numbers in the first namespace.
OTHERS, MANY = 200000, 10


def become(user):
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def other(local, peer):
    become(USER + 1)
    told = collections.Counter()
    with Sock((local, 0)) as s, Sock((peer, 0), PATIENCE) as r:
        for _ in range(50):
            sent = outcome(s.send, bytes(FRAGMENT), r.name(), NOW)
            told[str(sent)] += 1
            if sent == FRAGMENT:
                need(len(r.recv()[0]) == FRAGMENT, "it is cut")
    print(json.dumps(told))


def fill(local):
    """Returns sockets that fill the share of their user. None of their own buffers is full."""
    senders = []
    while True:
        s = Sock((local, 0))
        senders.append(s)
        for _ in range(2):
            told = outcome(s.send, bytes(MESSAGE), NOBODY, NOW)
            if told != MESSAGE:
                need(told == "EAGAIN", f"{told} with {len(senders)} sockets")
                return senders


def may_write(s):
    return bool(select.select([], [s], [], 0)[1])


def waiting_child(s, others):
    """Starts another program of the user, with a call that waits."""
    before = counters()["send_share_full"]
    pid = os.fork()
    if pid == 0:
        # These end when its parent closes them.
        for x in others:
            x.sock.close()
        os._exit(outcome(s.send, b"x", NOBODY) != 1)
    eventually("a call waits", lambda: counters()["send_share_full"] > before)
    return pid


def full(local, peer):
    os.seteuid(USER)
    users = Sock((local, 0))
    os.seteuid(0)
    with users, Sock((local, 0)) as root, Sock((local, 0)) as sent_before:
        # A socket of root counts for the user that sends first; another one for the user that
        # created it.
        sent_before.send(b"x", NOBODY)
        users.send(b"x", NOBODY)
        become_ordinary()
        senders = fill(local)
        need(not may_write(senders[-1]), "poll() tells of room of which there is none")
        need(outcome(root.send, b"x", NOBODY, NOW) == "EAGAIN", "the socket's maker may send")
        need(outcome(users.send, b"x", NOBODY, NOW) == "EAGAIN", "root has sent with it, and it has no share")
        need(sent_before.send(b"x", NOBODY, NOW) == 1, "root has no share")
        # Messages within the node take no pool.
        need(sent_before.send(b"x", (local, 1), NOW) == 1, "it may not send within the node")

        with Sock((local, 0), PATIENCE) as waits, Sock((local, 0)) as edge, Sock((local, 0)) as level:
            child = waiting_child(waits, senders)
            need(outcome(edge.send, b"x", NOBODY, NOW) == "EAGAIN", "one socket more may send")
            # A socket that has sent nothing yet has to try.
            need(outcome(level.send, b"x", NOBODY, NOW) == "EAGAIN", "one socket more may send")
            poller = select.epoll()
            poller.register(edge, select.EPOLLOUT | select.EPOLLET)
            poller.register(level, select.EPOLLOUT)
            need(poller.poll(0) == [], "epoll tells of room of which there is none")
            # A socket that is closed while it waits does not block others.
            for s in senders[len(senders) // 2:]:
                s.sock.close()
            events = {}
            while len(events) < 2:
                told = poller.poll(PATIENCE)
                need(told, f"nobody wakes {events}")
                for fd, event in told:
                    events[fd] = events.get(fd, 0) | event
            need(all(event & select.EPOLLOUT for event in events.values()), f"{events}")
            need(os.waitpid(child, 0)[1] == 0, "the call that waited failed")
            need(edge.send(b"x", NOBODY, NOW) == 1, "no room after all")
            need(may_write(level), "poll() does not tell of room")


def in_namespace(maker, user, function):
    """Calls a function as a user of a new namespace.

    `maker` has created the namespace, and root has mapped user ids to it, as newuidmap does.
    """
    made, tell = os.pipe()
    given, give = os.pipe()
    pid = os.fork()
    if pid == 0:
        become(maker)
        call("unshare", CLONE_NEWUSER)
        os.write(tell, b"x")
        os.read(given, 1)
        os.setresuid(user, user, user)
        value = function()
        os.write(tell, json.dumps(value).encode())
        os._exit(0)
    os.close(tell)
    need(os.read(made, 1) == b"x", "no namespace")
    with open(f"/proc/{pid}/uid_map", "w", encoding="ascii") as f:
        f.write(f"0 {OTHERS} {MANY}")
    os.write(give, b"x")
    need(os.waitpid(pid, 0)[1] == 0, "it failed")
    with open(made, encoding="ascii") as f:
        return json.load(f)


def namespaces(local, _):
    def send():
        with Sock((local, 0)) as s:
            return outcome(s.send, b"x", NOBODY, NOW)

    os.seteuid(USER)
    senders = fill(local)
    os.seteuid(0)
    told = {
        "user of his": in_namespace(USER, 1, send),
        "root of his": in_namespace(USER, 0, send),
        "user of another's": in_namespace(USER + 1, 1, send),
        "user of root's": in_namespace(0, 1, send),
    }
    print(json.dumps(told))
    for s in senders:
        s.sock.close()


def fill_pool(local):
    """Returns sockets of root whose messages fill the pool for short ones. The last of them has not
    sent any."""
    senders = []
    while True:
        s = Sock((local, 0))
        senders.append(s)
        for sent in range(1000):
            told = outcome(s.send, b"x", NOBODY, NOW)
            if told != 1:
                need(told == "EAGAIN", f"{told} with {len(senders)} sockets")
                break
        if sent == 0:
            return senders


class Interrupted(Exception):
    pass


def interrupt(*_):
    raise Interrupted


def refused():
    return counters()["ib_pool_refused_limit"]


def pool(local, _):
    # The sockets of a user are made by that user. Those that fill the pool have no share.
    os.seteuid(USER)
    waits, later = Sock((local, 0)), Sock((local, 0))
    short, stopped = Sock((local, 0), 0.1), Sock((local, 0))
    os.seteuid(0)
    senders = fill_pool(local)

    before = refused()
    pid = os.fork()
    if pid == 0:
        for s in senders:
            s.sock.close()
        os._exit(outcome(waits.send, b"x", NOBODY) != 1)
    # It looks for a buffer several times.
    eventually("a call waits", lambda: refused() >= before + 5)
    need(os.waitpid(pid, os.WNOHANG) == (0, 0), "the call does not wait")

    need(outcome(short.send, b"x", NOBODY) == "ETIMEDOUT", "SO_SNDTIMEO does not end the wait")
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        need(False, f"a signal does not end the wait: {outcome(stopped.send, b'x', NOBODY)}")
    except Interrupted:
        pass

    begun = time.monotonic()
    need(outcome(later.send, b"x", NOBODY, NOW) == "EAGAIN", "a call that must not wait")
    need(select.select([], [later], [], PATIENCE)[1], "poll() does not tell when to try again")
    # The send buffer has room all the time.
    need(time.monotonic() - begun >= 0.015, "poll() reports at once, so the program would spin")
    need(os.waitpid(pid, os.WNOHANG) == (0, 0), "the call does not wait until there is room")
    for s in senders:
        s.sock.close()
    need(os.waitpid(pid, 0)[1] == 0, "the call that waited failed")
    need(later.send(b"x", NOBODY, NOW) == 1, "no room after all")


{"other": other, "full": full, "namespaces": namespaces, "pool": pool}[sys.argv[1]](*sys.argv[2:])
