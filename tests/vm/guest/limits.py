# SPDX-License-Identifier: GPL-2.0
"""Programs that open and close many connections.

limits.py tos LOCAL PEER TOS...: sends a message with each of these types of service, each from its
own socket. Prints "ok" or the name of the error for each, as JSON.

limits.py strangers LOCAL COUNT [USER]: an unprivileged program that sends a message to each of
COUNT addresses that no host has. Prints the outcomes: {"ok": 100, ...}. For each line of input it
sends to one more address, until its input ends.

limits.py talk LOCAL PEER TOS: two sockets that stay open. For each number that arrives as a line,
each of them sends this many messages to the other. Each must receive as many, in the order in which
they were sent. Prints "all" and the total number.

limits.py end LOCAL PORT PEER PEERPORT TOS: one of two such sockets, where the other is on another
node.
"""

import collections
import errno
import json
import os
import socket
import struct
import sys

from rds import Sock

PORT, OTHER_PORT = 3900, 3901
NOBODY = 65534


def attempt(sock, to):
    try:
        sock.send(b"x", to, socket.MSG_DONTWAIT)
        return "ok"
    except OSError as e:
        return errno.errorcode[e.errno]


def open_sock(local, port, tos, timeout=None):
    sock = Sock((local, port), timeout=timeout)
    if tos:
        sock.set_tos(tos)
    return sock


def tos(local, peer, *values):
    found = []
    for value in map(int, values):
        with open_sock(local, 0, value) as sock:
            found.append(attempt(sock, (peer, PORT)))
    print(json.dumps(found))


def strangers(local, count, user=NOBODY):
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(int(user))
    number = 0
    with Sock((local, 0)) as sock:
        for batch in [int(count)] + [1] * 1000:
            found = collections.Counter()
            for _ in range(batch):
                found[attempt(sock, (f"10.77.{number // 250}.{1 + number % 250}", PORT))] += 1
                number += 1
            print(json.dumps(found), flush=True)
            if not sys.stdin.readline():
                return


def talk(local, peer, value):
    names = [(local, PORT), (peer, OTHER_PORT)]
    converse(value, names, names[::-1])


def end(local, port, peer, peer_port, value):
    converse(value, [(local, int(port))], [(peer, int(peer_port))])


def converse(value, names, others):
    ends = [open_sock(*name, int(value), 120) for name in names]
    sent = 0
    print("ready", flush=True)
    for line in sys.stdin:
        for number in range(sent, sent + int(line)):
            for sock, other in zip(ends, others):
                sock.send(struct.pack("=I", number), other)
        for number in range(sent, sent + int(line)):
            for sock, name in zip(ends, names):
                data, _ = sock.recv()
                if data != struct.pack("=I", number):
                    sys.exit(f"{name}: {data} is not message {number}")
        sent += int(line)
        print(f"all {sent}", flush=True)
    for sock, name in zip(ends, names):
        try:
            data, _ = sock.recv(flags=socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue
        sys.exit(f"{name}: {data} came twice")


{"tos": tos, "strangers": strangers, "talk": talk, "end": end}[sys.argv[1]](*sys.argv[2:])
