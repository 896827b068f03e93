# SPDX-License-Identifier: GPL-2.0
"""info_load.py SOCKETS MESSAGES: reads the RDS_INFO_* tables under load.

There are as many sockets and messages as the arguments say, and others come and go. Half of the
messages wait to be read, half to be sent to an address that no host has. Prints as JSON how often
each table was read, and its errors: entries that existed all the time but were missing, or appeared
twice.
"""

import collections
import ctypes
import json
import os
import resource
import signal
import socket
import struct
import sys
import time

from abi import IB, LOOP
from rds import SOL_RDS, Sock, libc

NOWHERE = "10.9.0.200"
# First ports of each kind.
PLAIN, READER, SENDER, OTHERS = 10000, 20000, 30000, 40000
ENDS = 50
SECONDS = 10
MESSAGE = {False: struct.Struct("=QI4s4s2s2sBB"), True: struct.Struct("=QI16s16s2s2sBB")}
SOCKET = {False: struct.Struct("=I4s4s2s2sIQ"), True: struct.Struct("=I16s16s2s2sIQ")}
BUFFER = ctypes.create_string_buffer(8 << 20)


def table(asker, option, layout):
    size = ctypes.c_int(len(BUFFER))
    each = libc.getsockopt(asker.fileno(), SOL_RDS, option, BUFFER, ctypes.byref(size))
    if each != layout.size or size.value % each:
        sys.exit(f"table {option}: {each} and {size.value} bytes")
    return layout.iter_unpack(BUFFER.raw[:size.value])


def port(raw):
    return struct.unpack("!H", raw)[0]


def sockets_wrong(asker, option, six, count):
    seen = collections.Counter(port(row[3]) for row in table(asker, option, SOCKET[six]))
    return [x for x in range(PLAIN, PLAIN + count) if seen[x] != 1]


def messages_wrong(asker, option, six, first, count):
    """Returns the ports whose messages are not those that were queued: each is as long as its
    number."""
    found = collections.defaultdict(list)
    for row in table(asker, option, MESSAGE[six]):
        found[port(row[4])].append(row[1])
    return [x for x in range(first, first + ENDS) if found[x] != list(range(count))]


def child(step):
    """Repeats steps until the end in a separate process."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        while True:
            step()
    return pid


def local_traffic():
    with Sock((LOOP, OTHERS)) as reader, Sock((LOOP, OTHERS + 1)) as sender:
        for _ in range(20):
            sender.send(b"abc", (LOOP, OTHERS))
        reader.recv(flags=socket.MSG_PEEK)
        for _ in range(10):
            reader.recv()


def remote_traffic():
    """Sends messages and closes the socket, which cancels them in the midst of the queue."""
    with Sock((IB[0], OTHERS + 2)) as sender:
        for _ in range(20):
            sender.send(b"abc", (NOWHERE, 1000), socket.MSG_DONTWAIT)
    time.sleep(0.01)


def main():
    sockets, messages = map(int, sys.argv[1:])
    each = messages // 2 // ENDS
    resource.setrlimit(resource.RLIMIT_NOFILE, (sockets + 1000, sockets + 1000))
    plain = [Sock((LOOP, PLAIN + i)) for i in range(sockets)]
    readers = [Sock((LOOP, READER + i)) for i in range(ENDS)]
    senders = [Sock((IB[0], SENDER + i)) for i in range(ENDS)]
    for i, reader in enumerate(readers):
        for size in range(each):
            plain[i].send(bytes(size), reader.name())
    for size in range(each):
        for sender in senders:
            sender.send(bytes(size), (NOWHERE, 1000), socket.MSG_DONTWAIT)

    def peek():
        """Removes the first message from the queue and puts it back."""
        for reader in readers:
            reader.recv(flags=socket.MSG_PEEK)

    children = [child(x) for x in (local_traffic, remote_traffic, peek)]
    reads, wrong = collections.Counter(), []
    asker = Sock()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end or min(reads.values()) < 3:
        for six in (False, True):
            for name, found in (
                    ("sockets", sockets_wrong(asker, 10015 if six else 10006, six, sockets)),
                    ("unread", messages_wrong(asker, 10014 if six else 10005, six, READER, each)),
                    ("unsent", messages_wrong(asker, 10012 if six else 10003, six, SENDER, each))):
                reads[f"{name} {six}"] += 1
                if found:
                    wrong.append([name, six, len(found), found[0]])
    for pid in children:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
    print(json.dumps({"reads": reads, "wrong": wrong}))


main()
