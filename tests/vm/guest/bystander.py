# SPDX-License-Identifier: GPL-2.0
"""bystander.py USER LOCAL PEER TOS...: a correct program that must not be disturbed. It belongs to
the user with this number.

For each of these types of service it has two sockets. They send to each other, message after
message, until standard input ends. Every byte has to arrive, once and in order.

Prints the number of rounds: after the first one, for each line of input, and at the end.
"""

import itertools
import os
import select
import struct
import sys

from rds import Sock

PORT = 3800
# In one frame and in several.
SIZES = (4, 300, 5000, 40000)
# Leaves time for other programs.
PAUSE = 0.02
PATIENCE = 120


def open_sock(name, tos):
    sock = Sock(name, timeout=PATIENCE)
    if tos:
        sock.set_tos(tos)
    return sock


def send(ends, number):
    for sock, _, other in ends:
        sock.send(payload(number), other)


def receive(ends, number):
    for sock, name, other in ends:
        data, sender = sock.recv()
        if (data, sender) != (payload(number), other):
            sys.exit(f"{name}: {len(data)} bytes, {data[:8]}, from {sender} in round {number}")


def payload(number):
    return struct.pack("=I", number) * (SIZES[number % len(SIZES)] // 4)


def main(user, local, peer, *values):
    # Root has no share of any memory, and could not be disturbed by that of others.
    os.setgroups([])
    os.setresgid(*3 * [int(user)])
    os.setresuid(*3 * [int(user)])
    near, far = [], []
    for i, tos in enumerate(map(int, values)):
        names = [(local, PORT + 2 * i), (peer, PORT + 2 * i + 1)]
        for ends, name, other in zip((near, far), names, names[::-1]):
            ends.append((open_sock(name, tos), name, other))
    # In turn: otherwise both ends would request the connection.
    for first, second in ((near, far), (far, near)):
        send(first, 0)
        receive(second, 0)
    print(1, flush=True)
    for number in itertools.count(1):
        send(near + far, number)
        receive(near + far, number)
        if select.select([sys.stdin], [], [], PAUSE)[0]:
            line = sys.stdin.readline()
            print(number + 1, flush=True)
            if not line:
                return


main(*sys.argv[1:])
