# SPDX-License-Identifier: GPL-2.0
"""Additions to Python's socket module for AF_RDS: IPv6, raw addresses, information records."""

import ctypes
import errno
import fcntl
import os
import re
import socket
import struct
import sys
from collections import namedtuple

SOL_RDS = 276
RDS_CANCEL_SENT_TO = 1
SO_RDS_TRANSPORT = 8
SO_ZEROCOPY, MSG_ZEROCOPY = 60, 0x4000000
SIOCRDSSETTOS, SIOCRDSGETTOS = 0x89E0, 0x89E1
RDS_INFO_COUNTERS = 10000
RDS_INFO_CONNECTIONS = 10001
RDS6_INFO_CONNECTIONS = 10011
TRANSPORTS = {0: "infiniband", 2: "tcp", 3: "loopback", 0xFFFFFFFF: "none"}
MAX_MESSAGE = 1 << 20
FRAGMENT = 4096
CLONE_NEWNET = 0x40000000

libc = ctypes.CDLL(None, use_errno=True)


def call(name, *args):
    """Calls a libc function and returns C's return value. -1 raises OSError."""
    result = getattr(libc, name)(*args)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def sockaddr(host, port, scope=0):
    """Returns struct sockaddr_in or sockaddr_in6 as bytes."""
    if ":" in host:
        return struct.pack("=HHI16sI", socket.AF_INET6, socket.htons(port), 0,
                           socket.inet_pton(socket.AF_INET6, host), scope)
    return struct.pack("=HH4s8x", socket.AF_INET, socket.htons(port), socket.inet_aton(host))


def parse(raw):
    """Returns (host, port) of a struct sockaddr, or "unspec"."""
    family = struct.unpack_from("=H", raw)[0]
    port = struct.unpack_from("!H", raw, 2)[0]
    if family == socket.AF_INET:
        return socket.inet_ntoa(raw[4:8]), port
    if family == socket.AF_INET6:
        return socket.inet_ntop(socket.AF_INET6, raw[8:24]), port
    return "unspec"


def scope(raw):
    """Returns the scope id of a struct sockaddr_in6."""
    return struct.unpack_from("=I", raw, 24)[0]


class Sock:
    """An RDS socket with (host, port) addresses of both families.

    host: the address of a socket that is bound later, if its network namespace may be another one.
    """

    # Open files of network namespaces by address. All other addresses are in that of the program,
    # `home`.
    spaces, home = {}, None

    def __init__(self, address=None, timeout=None, host=None):
        space = self.spaces.get(host or address and address[0])
        if space is not None:
            call("setns", space, CLONE_NEWNET)
        self.sock = socket.socket(socket.AF_RDS, socket.SOCK_SEQPACKET, 0)
        if space is not None:
            call("setns", self.home, CLONE_NEWNET)
        # A timeout of Python itself would make the descriptor nonblocking.
        if timeout is not None:
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                whole = int(timeout)
                self.sock.setsockopt(socket.SOL_SOCKET, option,
                                     struct.pack("@qq", whole, int((timeout - whole) * 1e6)))
        if address:
            self.bind(*address)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def fileno(self):
        return self.sock.fileno()

    def bind_raw(self, raw):
        call("bind", self.fileno(), raw, len(raw))

    def bind(self, host, port=0, scope=0):
        self.bind_raw(sockaddr(host, port, scope))

    def connect_raw(self, raw):
        call("connect", self.fileno(), raw, len(raw))

    def connect(self, host, port, scope=0):
        self.connect_raw(sockaddr(host, port, scope))

    def _name(self, function):
        raw = ctypes.create_string_buffer(128)
        size = ctypes.c_uint32(128)
        call(function, self.fileno(), raw, ctypes.byref(size))
        return raw.raw, size.value

    def name(self):
        return parse(self._name("getsockname")[0])

    def scopes(self):
        """Returns the scopes of the socket's name and of its peer's."""
        return [scope(self._name(x)[0]) for x in ("getsockname", "getpeername")]

    def name_size(self):
        return self._name("getsockname")[1]

    def peer(self):
        return parse(self._name("getpeername")[0])

    def send(self, data, to=None, flags=0):
        raw = sockaddr(*to) if to else None
        return call("sendto", self.fileno(), bytes(data), len(data), flags, raw,
                    len(raw) if raw else 0)

    def recv(self, size=MAX_MESSAGE, flags=0):
        """Returns (data, sender)."""
        data, raw = self.recv_raw(size, flags)
        return data, parse(raw)

    def recv_raw(self, size=MAX_MESSAGE, flags=0):
        """Returns (data, struct sockaddr)."""
        data = ctypes.create_string_buffer(max(size, 1))
        raw = ctypes.create_string_buffer(128)
        length = ctypes.c_uint32(128)
        count = call("recvfrom", self.fileno(), data, size, flags, raw, ctypes.byref(length))
        return data.raw[: min(count, size)], raw.raw

    def setsockopt(self, level, option, value):
        self.sock.setsockopt(level, option, value)

    def set_raw(self, option, raw, level=SOL_RDS):
        call("setsockopt", self.fileno(), level, option, raw, len(raw) if raw else 0)

    def cancel(self, host, port, scope=0):
        self.set_raw(RDS_CANCEL_SENT_TO, sockaddr(host, port, scope))

    def transport(self):
        number = self.sock.getsockopt(SOL_RDS, SO_RDS_TRANSPORT) & 0xFFFFFFFF
        return TRANSPORTS.get(number, str(number))

    def set_tos(self, tos):
        fcntl.ioctl(self.fileno(), SIOCRDSSETTOS, struct.pack("=B", tos))

    def tos(self):
        return fcntl.ioctl(self.fileno(), SIOCRDSGETTOS, b"\xff")[0]

    def pin(self, transport):
        number = {v: k for k, v in TRANSPORTS.items()}[transport]
        self.setsockopt(SOL_RDS, SO_RDS_TRANSPORT, number)


class BadMemory:
    """A buffer at an invalid address."""

    def __init__(self, size):
        self.size, self._as_parameter_ = size, ctypes.c_void_p(8)

    def __len__(self):
        return self.size


def msghdr(name, name_size, data, size, control, room):
    """Returns (struct msghdr, buffer that must live as long).

    `name` and `data` are buffers, `control` is an address.
    """
    iov = ctypes.create_string_buffer(struct.pack("=QQ", ctypes.addressof(data), size))
    return ctypes.create_string_buffer(struct.pack(
        "=QI4xQQQQi4x", ctypes.addressof(name) if name else 0, name_size, ctypes.addressof(iov), 1, control, room, 0)), iov


def controls(raw):
    """Returns [(level, type, data of a control message)]."""
    found = []
    while len(raw) >= 16:
        length, level, kind = struct.unpack_from("=Qii", raw)
        found.append((level, kind, raw[16:length]))
        raw = raw[(length + 7) & ~7:]
    return found


def recvmsg(sock, size, room, flags=0, control=None):
    """Returns (data, [(level, type, data of a control message)], flags).

    The room for control messages may be at any address.
    """
    data, memory = ctypes.create_string_buffer(max(size, 1)), ctypes.create_string_buffer(max(room, 1))
    header, _iov = msghdr(None, 0, data, size, control or ctypes.addressof(memory), room)
    count = call("recvmsg", sock.fileno(), header, flags)
    used, flags = struct.unpack_from("=Qi", header.raw, 40)
    return data.raw[: min(count, size)], controls(ctypes.string_at(control or memory, used)), flags


def sendmsg(sock, data, to, control):
    """Sends with a control buffer of any bytes."""
    name, payload = ctypes.create_string_buffer(sockaddr(*to)), ctypes.create_string_buffer(bytes(data))
    buffer = ctypes.create_string_buffer(bytes(control), len(control))
    header, _iov = msghdr(name, len(sockaddr(*to)), payload, len(data), ctypes.addressof(buffer), len(control))
    return call("sendmsg", sock.fileno(), header, 0)


def read_numbered(sock, count, size):
    """Reads messages of `size` bytes that begin with their numbers. All must arrive, in order."""
    for i in range(count):
        data, _ = sock.recv()
        number = struct.unpack_from("=I", data)[0]
        if (number, len(data)) != (i, size):
            sys.exit(f"message {i} is number {number} of {len(data)} bytes")


def info(option):
    """Returns the records of one RDS_INFO_* option, each as bytes.

    None if there is no such option.
    """
    with Sock() as s:
        size = ctypes.c_uint32(0)
        buffer = None
        while True:
            each = libc.getsockopt(s.fileno(), SOL_RDS, option, buffer, ctypes.byref(size))
            if each >= 0:
                data = bytes(buffer.raw[: size.value]) if buffer else b""
                return [data[i : i + each] for i in range(0, len(data), each)] if each else []
            number = ctypes.get_errno()
            if number == errno.ENOPROTOOPT:
                return None
            if number != errno.ENOSPC:
                raise OSError(number, os.strerror(number))
            buffer = ctypes.create_string_buffer(size.value)


def counters():
    """Returns the counters of this node by their names."""
    pairs = (struct.unpack("=32sQ", raw) for raw in info(RDS_INFO_COUNTERS))
    return {name.rstrip(b"\0").decode(): value for name, value in pairs}


def times_up(host, peer):
    """Returns how often each end of a connection within this node came up.

    The counter of resets includes idle connections of other tests that are closed.
    """
    with open("/sys/kernel/debug/rds/connections", encoding="ascii") as f:
        found = re.findall(rf"^(?:{host} -> {peer}|{peer} -> {host}): .*\bups=(\d+)", f.read(), re.M)
    return [int(x) for x in found]


Connection = namedtuple("Connection", "local peer transport tos next_tx next_rx state")
STATES = ((1, "sending"), (2, "connecting"), (4, "connected"))
RESTING = 0x80


def connections():
    """Returns the connections of this node, or None if the kernel does not report them."""
    found = []
    four, six = info(RDS_INFO_CONNECTIONS), info(RDS6_INFO_CONNECTIONS)
    if four is None and six is None:
        return None
    for raw in four or []:
        tx, rx, local, peer, transport, flags, tos = struct.unpack("=QQ4s4s16sBB", raw)
        found.append((socket.inet_ntoa(local), socket.inet_ntoa(peer), transport, tos, tx, rx, flags))
    for raw in six or []:
        tx, rx, local, peer, transport, flags = struct.unpack("=QQ16s16s16sB", raw)
        if not local.startswith(bytes(10) + b"\xff\xff"):
            found.append((socket.inet_ntop(socket.AF_INET6, local),
                          socket.inet_ntop(socket.AF_INET6, peer), transport, 0, tx, rx, flags))
    return [Connection(local, peer, transport.rstrip(b"\0").decode(), tos, tx, rx,
                       " ".join(name for bit, name in STATES if flags & bit and not flags & RESTING) or "down")
            for local, peer, transport, tos, tx, rx, flags in found]
