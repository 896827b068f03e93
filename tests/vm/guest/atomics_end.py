# SPDX-License-Identifier: GPL-2.0
"""atomics_end.py owner HERE COUNT USERS | user HERE THERE PORT COUNT: atomics on one number from
several programs.

Programs on another node add to a number of the owner and compare and swap another one, all at the
same time. No step may be lost, and none may be seen twice.
"""

import struct
import sys

import rdma
from cases import need
from rdma import COMPARE_SWAP, DEST, FETCH_ADD, NOTIFY_ME, SILENT, Memory
from rds import SOL_RDS, Sock

PORT = 4020


def own(here, count, users):
    sock = Sock((here, PORT), 120)
    memory = Memory(sock, 1)
    cookie = memory.register(8, 16)
    print("ready", flush=True)
    for _ in range(users):
        data, user = sock.recv()
        need(data == b"hello", f"{data}")
        sock.connect(*user)
        rdma.send(sock, b"here", (SOL_RDS, DEST, struct.pack("=Q", cookie)))
    seen = []
    for _ in range(users):
        data, _ = sock.recv()
        seen += struct.unpack(f"={count}Q", data)
    need(sorted(seen) == list(range(count * users)), "a number was seen twice, or never")
    need(struct.unpack_from("=QQ", memory.pages, 8) == (count * users,) * 2, f"{memory.pages[:32].hex()}")


def use(here, there, port, count):
    sock = rdma.connected((here, port), (there, PORT), 120)
    memory = Memory(sock, 1)
    rdma.send(sock, b"hello")
    _, ((kind, raw),) = rdma.receive(sock)
    need(kind == DEST, f"{kind}")
    cookie, = struct.unpack("=Q", raw)

    def change(kind, at, *numbers):
        rdma.send(sock, b"", rdma.atomic(kind, cookie, memory.base, at, numbers, NOTIFY_ME | SILENT, at))
        need(rdma.status(sock) == (at, rdma.SUCCESS), "the end")
        return struct.unpack_from("=Q", memory.pages)[0]

    seen = [change(FETCH_ADD, 0, 1) for _ in range(count)]
    guess = done = 0
    while done < count:
        found = change(COMPARE_SWAP, 8, guess, guess + 1)
        done += found == guess
        guess = found + (found == guess)
    rdma.send(sock, struct.pack(f"={count}Q", *seen))
    rdma.settle(sock)


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    if role == "owner":
        own(rest[0], int(rest[1]), int(rest[2]))
    else:
        use(rest[0], rest[1], int(rest[2]), int(rest[3]))
