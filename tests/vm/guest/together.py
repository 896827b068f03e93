# SPDX-License-Identifier: GPL-2.0
"""together.py owner|user HERE THERE COUNT: writes to memory on the other node, each with a message
in the same call.

Some of them are in flight at the same time. Each is reported once, in order. The messages arrive in
order: once if the write succeeds, and at most once if it ended with a connection. The written data
is there when its message arrives.
"""

import random
import struct
import sys

import rdma
from cases import need
from rdma import DEST, NOTIFY_ME, READWRITE, Memory

PORT, PAGE, SIZE, WINDOW = 4016, 4096, 3000, 16


def pattern(number):
    return random.Random(number).randbytes(SIZE)


def own(sock, count):
    memory = Memory(sock, count * SIZE // PAGE + 1)
    cookie = memory.register(0, count * SIZE)
    rdma.send(sock, b"here", (rdma.SOL_RDS, DEST, struct.pack("=Q", cookie)))
    came = []
    while (data := rdma.receive(sock)[0])[:4] != b"done":
        number, = struct.unpack("=I", data)
        need(memory.pages[number * SIZE:(number + 1) * SIZE] == pattern(number), f"what {number} has written")
        need(not came or number > came[-1], f"{number} after {came[-5:]}")
        came.append(number)
    done = {number for number, how in enumerate(data[4:]) if how == rdma.SUCCESS}
    need(len(data) == 4 + count and done <= set(came), f"without its message: {done - set(came)}")
    print(f"{len(done)} done, {len(came)} came", flush=True)
    need(done, "none is done")


def use(sock, count):
    memory = Memory(sock, count * SIZE // PAGE + 1)
    _, ((kind, cookie),) = rdma.receive(sock)
    need(kind == DEST, f"{kind}")
    for number in range(count):
        memory.fill(number * SIZE, pattern(number))
    told = []

    def hear():
        for token, how in rdma.ends(sock):
            need(token == len(told), f"{token} after {len(told)}")
            need(how in (rdma.SUCCESS, rdma.DROPPED, rdma.OTHER_ERROR), f"{token}: {how}")
            told.append(how)

    for number in range(count):
        while number - len(told) >= WINDOW:
            hear()
        control, _place = rdma.transfer(*struct.unpack("=Q", cookie), (number * SIZE, SIZE),
                                        [(memory.base + number * SIZE, SIZE)], READWRITE | NOTIFY_ME, number)
        rdma.send(sock, struct.pack("=I", number), control)
    while len(told) < count:
        hear()
    rdma.send(sock, b"done" + bytes(told))
    rdma.settle(sock)


if __name__ == "__main__":
    role, here, there, total = sys.argv[1:]
    end = rdma.connected((here, PORT), (there, PORT), 120)
    if role == "user":
        rdma.send(end, b"")
        use(end, int(total))
    else:
        print("ready", flush=True)
        rdma.receive(end)
        own(end, int(total))
