# SPDX-License-Identifier: GPL-2.0
"""Cases for abi.py: calls of a 32-bit program, and calls through an io_uring."""

import ctypes
import select
import socket
import struct
import time

import compat
import uring
from cases import CALL_TIMEOUT, ENDS, ERRORS, FAR, FAR6, LOOP, NEAR, NEAR6, case, each, outcome
from rds import (RDS_CANCEL_SENT_TO, RDS_INFO_COUNTERS, SIOCRDSGETTOS, SIOCRDSSETTOS, SO_RDS_TRANSPORT, SOL_RDS, Sock,
                 controls, info, msghdr, parse, sockaddr)

RDS_CONG_MONITOR = 6
SO_RDS_MSG_RXPATH_LATENCY = 10
SO_TIMESTAMP_OLD, SO_TIMESTAMP_NEW = 29, 63
CMSG_RDMA_DEST = 2


@case
def program_of_32_bits():
    """Calls of a 32-bit program."""
    with Sock((ENDS[1], 4001), CALL_TIMEOUT) as r, Sock((ENDS[0], 4002), CALL_TIMEOUT) as s:
        tos = compat.memory(4)
        out = {"get tos": outcome(compat.ioctl, r.fileno(), SIOCRDSGETTOS, tos),
               "set tos": outcome(compat.ioctl, s.fileno(), SIOCRDSSETTOS, tos)}
        on = compat.memory(4, struct.pack("=i", 1))
        out["timestamp"] = outcome(compat.setsockopt, r.fileno(), SOL_RDS, SO_TIMESTAMP_OLD, on, 4)
        s.send(b"abc", (ENDS[1], 4001))
        select.select([r], [], [], CALL_TIMEOUT)
        data, control, flags, _ = compat.recvmsg(r.fileno(), 100, 12 + 8)
        out["message"] = [data.decode(), flags]
        out["control"] = [[level, kind, len(raw)] for level, kind, raw in control]
        return out


@case
def messages_of_32_bits():
    """Sends a message of two pieces to a name of each family, and checks the name of the sender.

    A message that does not fit into the buffer sets MSG_TRUNC.
    """
    out = {}
    for near, far in ((NEAR, FAR), (NEAR6, FAR6)):
        with Sock((far, 4001), CALL_TIMEOUT) as r, Sock((near, 4002), CALL_TIMEOUT) as s:
            sent = outcome(compat.sendmsg, s.fileno(), (b"abc", b"def"), sockaddr(far, 4001))
            data, _, flags, name = compat.recvmsg(r.fileno(), 100, 0)
            out[near] = [sent, data.decode(), flags, list(parse(name))]
            s.send(b"abcdef", (far, 4001))
            data, _, flags, _ = compat.recvmsg(r.fileno(), 3, 0)
            out[f"{near} short"] = [data.decode(), flags == socket.MSG_TRUNC]
    return out


@case
def control_of_32_bits():
    """Sends control messages with the headers of 32-bit programs, which differ."""
    def control(level, kind, data, length=None):
        return struct.pack("=Iii", 12 + len(data) if length is None else length, level, kind) + data

    with Sock((FAR, 4001), CALL_TIMEOUT) as r, Sock((NEAR, 4002), CALL_TIMEOUT) as s:
        name = sockaddr(FAR, 4001)

        def send(raw):
            compat.sendmsg(s.fileno(), (b"abc",), name, raw)
            return r.recv()[0].decode()

        cookie = struct.pack("=Q", 1 << 32)
        return each(send, {
            "foreign level": (control(1, 99, bytes(4)),),
            "unknown type": (control(SOL_RDS, 99, bytes(4)),),
            "no such memory": (control(SOL_RDS, CMSG_RDMA_DEST, cookie),),
            "short": (control(SOL_RDS, CMSG_RDMA_DEST, bytes(4)),),
            "longer than the buffer": (control(1, 99, bytes(4), 100),),
        })


@case
def told_to_32_bits():
    """Receives control messages in a 32-bit program.

    Times have another form there; the others are as with 64 bits.
    """
    out = {}
    with Sock((FAR, 4001), CALL_TIMEOUT) as r, Sock((NEAR, 4002)) as s:
        def told(room):
            s.send(b"abc", (FAR, 4001))
            data, control, flags, _ = compat.recvmsg(r.fileno(), 10, room)
            return [data.decode(), bool(flags & socket.MSG_CTRUNC), control]

        for name, option, form in (("old", SO_TIMESTAMP_OLD, "=ii"), ("new", SO_TIMESTAMP_NEW, "=qq")):
            r.setsockopt(socket.SOL_SOCKET, option, 1)
            *out[name], ((level, kind, raw),) = told(100)
            seconds = struct.unpack(form, raw)[0]
            out[name] += [level, kind, abs(seconds - time.time()) < 1000]
            r.setsockopt(socket.SOL_SOCKET, option, 0)
        r.set_raw(SO_RDS_MSG_RXPATH_LATENCY, b"\2\2\0\0")
        *out["latency"], ((level, kind, raw),) = told(12 + 32)
        count, *places = struct.unpack_from("=B2B", raw)
        out["latency"] += [level, kind, len(raw), count, places]
        data, cut, control = told(12 + 31)
        out["no room"] = [data, cut, [len(raw) for _, _, raw in control]]
    return out


@case
def options_of_32_bits():
    """Options and records that have the same layout for 32 bits, and a timeout, which has another
    one."""
    number, length = compat.memory(4, struct.pack("=i", 1)), compat.memory(4, struct.pack("=I", 4))
    name, timeout = compat.memory(16, sockaddr(LOOP, 4000)), compat.memory(8, struct.pack("=ii", 0, 10000))
    with Sock((LOOP, 4001)) as s:
        out = each(compat.setsockopt, {
            "monitor": (s.fileno(), SOL_RDS, RDS_CONG_MONITOR, number, 4),
            "cancel": (s.fileno(), SOL_RDS, RDS_CANCEL_SENT_TO, name, 16),
            "timeout": (s.fileno(), socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout, 8)})
        out["receive"] = outcome(s.recv)
        out["transport"] = [outcome(compat.getsockopt, s.fileno(), SOL_RDS, SO_RDS_TRANSPORT, number, length),
                            *struct.unpack("=i", ctypes.string_at(number, 4))]
        whole = sum(map(len, info(RDS_INFO_COUNTERS)))
        ctypes.memmove(length, struct.pack("=I", 0), 4)
        out["no room"] = outcome(compat.getsockopt, s.fileno(), SOL_RDS, RDS_INFO_COUNTERS, 0, length)
        out["needed"] = struct.unpack("=I", ctypes.string_at(length, 4))[0] == whole
        room = compat.memory(whole)
        record = outcome(compat.getsockopt, s.fileno(), SOL_RDS, RDS_INFO_COUNTERS, room, length)
        out["records"] = [record, ctypes.string_at(room, 32).rstrip(b"\0").decode()]
    return out


@case
def io_uring():
    """Sends and receives through the ring. The receive is queued before there is a message."""
    with uring.Ring() as ring, Sock((FAR, 4001), CALL_TIMEOUT) as r, Sock((NEAR, 4002)) as s:
        s.connect(FAR, 4001)
        received = ctypes.create_string_buffer(10)
        ring.queue(uring.RECV, r.fileno(), received, 10, 1)
        ring.enter(0)
        data = ctypes.create_string_buffer(b"abc", 3)
        ring.queue(uring.SEND, s.fileno(), data, 3, 2)
        results = {}
        ring.enter(1)
        results.update(ring.results())
        if results == {2: 3}:
            ring.enter(1)
            results.update(ring.results())
        sent = results.get(2)
        return [sent if sent >= 0 else ERRORS[-sent], results.get(1), received.value.decode()]


def answer(result):
    return result if result >= 0 else ERRORS[-result]


@case
def io_uring_messages():
    """Sends and receives names and control messages through the ring. The receive is queued before
    there is a message.

    If the module rejects the message that the ring sends, as C RDS does, sendto() sends it.
    """
    def send(kind):
        control = ctypes.create_string_buffer(struct.pack("=QiiI4x", 20, *kind, 0), 24)
        header, _iov = msghdr(target, 16, text, 3, ctypes.addressof(control), 24)
        ring.queue(uring.SENDMSG, s.fileno(), header, 1, 2)
        return answer(result_of(2))

    def result_of(tag):
        while tag not in done:
            ring.enter(1)
            done.update(ring.results())
        return done.pop(tag)

    done = {}
    text, target = ctypes.create_string_buffer(b"abc"), ctypes.create_string_buffer(sockaddr(FAR, 4015))
    with uring.Ring() as ring, Sock((FAR, 4015), CALL_TIMEOUT) as r, Sock((NEAR, 4016)) as s:
        r.set_raw(SO_TIMESTAMP_OLD, struct.pack("=i", 1))
        data, name, room = (ctypes.create_string_buffer(size) for size in (10, 128, 100))
        received, _iov = msghdr(name, 128, data, 10, ctypes.addressof(room), 100)
        ring.queue(uring.RECVMSG, r.fileno(), received, 1, 1)
        ring.enter(0)
        unknown, sent = send((SOL_RDS, 99)), send((socket.SOL_IP, 99))
        if sent != 3:
            s.send(b"abc", (FAR, 4015))
        count = result_of(1)
        used, flags = struct.unpack_from("=Qi", received.raw, 40)
        told = [[level, kind, len(raw)] for level, kind, raw in controls(room.raw[:used])]
        return [unknown, sent, [count, data.value.decode(), parse(name.raw) == (NEAR, 4016),
                                struct.unpack_from("=I", received.raw, 8)[0], flags, told]]


@case
def io_uring_cancelled():
    """Cancels a receive of the ring, which must not consume a message.

    A ring holds its sockets slightly longer than its program, so each case has its own ports.
    """
    with uring.Ring() as ring, Sock((FAR, 4011), CALL_TIMEOUT) as r, Sock((NEAR, 4012)) as s:
        received = ctypes.create_string_buffer(10)
        ring.queue(uring.RECV, r.fileno(), received, 10, 1)
        ring.enter(0)
        ring.cancel(1, 2)
        ring.enter(2)
        results = ring.results()
        s.send(b"abc", (FAR, 4011))
        return [answer(results[1]), answer(results[2]), received.value.decode(), r.recv()[0].decode()]


@case
def io_uring_without_copies():
    """Asks for a zero-copy send of the ring from a socket that does not support it."""
    with uring.Ring() as ring, Sock((FAR, 4013), CALL_TIMEOUT), Sock((NEAR, 4014)) as s:
        s.connect(FAR, 4013)
        data = ctypes.create_string_buffer(b"abc", 3)
        ring.queue(uring.SEND_ZC, s.fileno(), data, 3, 1)
        ring.enter(1)
        return answer(ring.results()[1])
