#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""RDS sockets in Python, whose socket module has AF_RDS with IPv4 addresses, and no more of RDS.

rds.py receive LOCAL PORT COUNT            receives COUNT messages
rds.py send LOCAL PORT PEER PORT COUNT     sends COUNT messages
rds.py serve LOCAL                         writes to the memory of its clients, as rdma-write does
rds.py ask LOCAL SERVER                    registers memory, and prints what the server has written
"""

import ctypes
import errno
import mmap
import select
import socket
import struct
import sys

# Options, control messages, flags and statuses of <linux/rds.h>.
SOL_RDS = 276
RDS_CANCEL_SENT_TO, RDS_GET_MR, RDS_FREE_MR, RDS_RECVERR, RDS_CONG_MONITOR, RDS_GET_MR_FOR_DEST = 1, 2, 3, 5, 6, 7
SO_RDS_TRANSPORT, SO_RDS_MSG_RXPATH_LATENCY = 8, 10
RDS_CMSG_RDMA_ARGS, RDS_CMSG_RDMA_DEST, RDS_CMSG_RDMA_MAP, RDS_CMSG_RDMA_STATUS, RDS_CMSG_CONG_UPDATE = range(1, 6)
RDS_CMSG_ATOMIC_FADD, RDS_CMSG_ATOMIC_CSWP, RDS_CMSG_MASKED_ATOMIC_FADD, RDS_CMSG_MASKED_ATOMIC_CSWP = range(6, 10)
RDS_RDMA_READWRITE, RDS_RDMA_FENCE, RDS_RDMA_INVALIDATE, RDS_RDMA_USE_ONCE = 1, 2, 4, 8
RDS_RDMA_DONTWAIT, RDS_RDMA_NOTIFY_ME, RDS_RDMA_SILENT = 0x10, 0x20, 0x40
RDS_RDMA_SUCCESS, RDS_RDMA_REMOTE_ERROR, RDS_RDMA_CANCELED, RDS_RDMA_DROPPED, RDS_RDMA_OTHER_ERROR = range(5)

# The kernel answers a message to this port with an empty message from this port.
PING_PORT = 0
MAX_MESSAGE = 1 << 20

# Port of the server in rdma-write.c, and the data that it writes.
SERVER_PORT, TEXT = 4700, b"written by the peer\0"


def rds_socket(host, port=0):
    """Returns a bound, non-blocking socket. Python's own timeouts do not detect congestion."""
    sock = socket.socket(socket.AF_RDS, socket.SOCK_SEQPACKET)
    sock.setblocking(False)
    sock.bind((host, port))
    return sock


def wait(sock, events):
    poll = select.poll()
    poll.register(sock, events)
    poll.poll()


def send(sock, data, to, controls=()):
    """Sends a message as soon as the kernel accepts it.

    A congested peer does not make the socket unwritable.
    """
    while True:
        try:
            return sock.sendmsg([data], controls, 0, to)
        except OSError as e:
            if e.errno == errno.EAGAIN:  # The send buffer of this socket is full.
                wait(sock, select.POLLOUT)
            elif e.errno == errno.ENOBUFS:  # The peer's port is congested.
                print("congested", flush=True)
                wait(sock, select.POLLWRBAND)
            else:
                raise


def receive(sock, size=MAX_MESSAGE):
    """Returns (data, sender, {type: data of a control message}).

    The notification of an operation only has a control message.
    """
    while True:
        try:
            data, controls, _, sender = sock.recvmsg(size, 1024)
        except BlockingIOError:
            wait(sock, select.POLLIN)
        else:
            return data, sender, {kind: raw for level, kind, raw in controls if level == SOL_RDS}


class Memory:
    """Pages that peers may use. They may write at any time, so programs copy the data."""

    def __init__(self, size):
        self.pages, self.size = mmap.mmap(-1, size), size
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.pages))


def rds_get_mr_args(memory, flags):
    """Packs the structure, with 0 as the address for the cookie.

    The kernel sends the cookie to the peer, and this program does not need it.
    """
    return struct.pack("=QQQQ", memory.address, memory.size, 0, flags)


def rds_rdma_args(cookie, memory, flags, token, at=0):
    """Returns the structure, and an object that must exist until the message is sent.

    The operation transfers `memory.size` bytes between `memory` and the peer's region.
    """
    local = ctypes.create_string_buffer(struct.pack("=QQ", memory.address, memory.size), 16)
    return struct.pack("=7Q", cookie, at, memory.size, ctypes.addressof(local), 1, flags, token), local


def rds_atomic_args(cookie, memory, numbers, flags, token, at=0):
    """Packs the structure.

    `numbers` depend on the type of the control message. They are the number to add, compare and
    swap, add and the mask of carries, or compare, swap and their masks.
    """
    numbers = (*numbers, 0, 0, 0, 0)[:4]
    return struct.pack("=9Q", cookie, memory.address, at, *numbers, flags, token)


def rds_rdma_notify(raw):
    """Returns (token, status)."""
    return struct.unpack_from("=Qi", raw)


def deliver(sock, host):
    """Waits until a peer has all messages that were sent to it.

    Messages are delivered in order, and so is the ping.
    """
    send(sock, b"", (host, PING_PORT))
    while receive(sock)[1] != (host, PING_PORT):
        pass


def serve(sock):
    memory = Memory(len(TEXT))
    memory.pages[:len(TEXT)] = TEXT
    while True:
        _, client, controls = receive(sock)
        if RDS_CMSG_RDMA_DEST in controls:
            cookie, = struct.unpack("=Q", controls[RDS_CMSG_RDMA_DEST])
            args, _local = rds_rdma_args(cookie, memory, RDS_RDMA_READWRITE | RDS_RDMA_NOTIFY_ME, token=7)
            send(sock, b"", client, [(SOL_RDS, RDS_CMSG_RDMA_ARGS, args)])
        elif RDS_CMSG_RDMA_STATUS in controls:
            _token, status = rds_rdma_notify(controls[RDS_CMSG_RDMA_STATUS])
            print(f"status {status}", flush=True)


def ask(sock, host):
    memory = Memory(len(TEXT))
    # The ping makes a connection. C RDS does not register memory without one.
    deliver(sock, host)
    args = rds_get_mr_args(memory, RDS_RDMA_READWRITE | RDS_RDMA_USE_ONCE)
    send(sock, b"", (host, SERVER_PORT), [(SOL_RDS, RDS_CMSG_RDMA_MAP, args)])
    # The written data is there before this message.
    receive(sock)
    print(memory.pages[:].rstrip(b"\0").decode())


def main(command=None, local=None, *rest):
    if command == "receive":
        port, count = map(int, rest)
        sock = rds_socket(local, port)
        print("ready", flush=True)
        for i in range(count):
            number, = struct.unpack_from("=Q", receive(sock)[0])
            if number != i:
                sys.exit(f"message {i} is number {number}")
        print(f"received {count}")
    elif command == "send":
        port, peer, peer_port, count = int(rest[0]), rest[1], *map(int, rest[2:])
        sock = rds_socket(local, port)
        for i in range(count):
            send(sock, struct.pack("=Q", i).ljust(4096, b"x"), (peer, peer_port))
        deliver(sock, peer)
        print(f"sent {count}")
    elif command == "serve":
        serve(rds_socket(local, SERVER_PORT))
    elif command == "ask":
        ask(rds_socket(local), *rest)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
