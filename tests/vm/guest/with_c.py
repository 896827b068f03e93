# SPDX-License-Identifier: GPL-2.0
"""with_c.py owner|user HERE THERE TOS REGISTRATION OPERATION: one operation on memory of a program
on the other node.

It has its own connection, that of a type of service. REGISTRATION is get, dest or map, or once, a
map for one use, or unflagged, a map without READWRITE. A suffix "-first" means that there is no
connection yet when the memory is registered. Each program continues when a line arrives on its
input, and prints the outcome.
"""

import struct
import sys

import rdma
from cases import outcome
from rdma import COMPARE_SWAP, DEST, FENCE, FETCH_ADD, MAP, NOTIFY_ME, READWRITE, USE_ONCE, Memory
from rds import SOL_RDS

PORT, SIZE = 4011, 4096
NAMES = ("SUCCESS", "REMOTE_ERROR", "CANCELED", "DROPPED", "OTHER_ERROR")


def register(sock, memory, how, peer):
    """Registers memory, and sends the cookie."""
    if how in ("map", "once", "unflagged"):
        flags = {"map": READWRITE, "once": READWRITE | USE_ONCE, "unflagged": 0}[how]
        args = struct.pack("=QQQQ", memory.base, SIZE, memory.base + SIZE, flags)
        rdma.send(sock, b"here", (SOL_RDS, MAP, args))
    else:
        cookie = rdma.register(sock, memory.base, SIZE, dest=peer if how == "dest" else None)
        rdma.send(sock, b"here", (SOL_RDS, DEST, struct.pack("=Q", cookie)))
    return "registered"


def own(sock, memory, peer, how, first):
    if not first:
        rdma.receive(sock)
    memory.fill(0, struct.pack("=Q", 5))
    print(outcome(register, sock, memory, how, peer), flush=True)
    # The memory stays until it is not needed any more.
    sys.stdin.readline()
    if how == "once":
        assert rdma.receive(sock)[0] == b"done"
        cookie, = struct.unpack_from("=Q", memory.pages, SIZE)
        print(cookie and outcome(memory.free, cookie), flush=True)
    print(*struct.unpack_from("=Q", memory.pages), flush=True)


def use(sock, memory, operation, first):
    if not first:
        rdma.send(sock, b"")
    data, ((kind, raw),) = rdma.receive(sock)
    assert (data, kind) == (b"here", DEST), f"{data} {kind}"
    cookie, = struct.unpack("=Q", raw)
    memory.fill(0, struct.pack("=Q", 9))
    # Without FENCE, C RDS reports a read that is still in progress, once the message behind it is
    # acknowledged.
    flags = NOTIFY_ME | {"read": FENCE, "write": READWRITE}.get(operation, 0)
    transfer, _place = rdma.transfer(cookie, (0, 8), [(memory.base, 8)], flags, 1)
    control = {"read": transfer, "write": transfer,
               "add": rdma.atomic(FETCH_ADD, cookie, memory.base, 0, [2], flags, 1),
               "swap": rdma.atomic(COMPARE_SWAP, cookie, memory.base, 0, [5, 7], flags, 1)}[operation]
    told = outcome(rdma.send, sock, b"done", control)
    if told == len(b"done"):
        told = outcome(rdma.status, sock)
        told = NAMES[told[1]] if isinstance(told, tuple) else told
    print(told, *struct.unpack_from("=Q", memory.pages), flush=True)


def main():
    role, here, there, tos, how, operation = sys.argv[1:]
    how, _, first = how.partition("-")
    sock = rdma.connected((here, PORT), (there, PORT), 60)
    sock.set_tos(int(tos))
    memory = Memory(sock, 2)
    print("ready", flush=True)
    sys.stdin.readline()
    if role == "user":
        use(sock, memory, operation, first)
    else:
        own(sock, memory, (there, PORT), how, first)


if __name__ == "__main__":
    main()
