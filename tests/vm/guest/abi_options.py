# SPDX-License-Identifier: GPL-2.0
"""Cases for abi.py: options that change the handling of messages or add control messages, and
flags."""

import ctypes
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import threading
import time

import rdma
from cases import (ABSENT, ABSENT6, CALL_TIMEOUT, ENDS, ENDS6, ERRORS, FAR, FAR6, LOOP, NEAR, OF_C, OVER_TCP,
                   await_address, case, each, exchange, outcome, page_before_nothing)
from rds import (RDS_CANCEL_SENT_TO, SO_RDS_TRANSPORT, SOL_RDS, BadMemory, Sock, call, recvmsg, sockaddr)

RDS_RECVERR, RDS_CONG_MONITOR = 5, 6
UEK_CONN_RESET, UEK_TRANSPORT, UEK_CONN_RESET6 = 8, 9, 11
SO_RDS_MSG_RXPATH_LATENCY = 10
SO_TIMESTAMP_OLD, SO_TIMESTAMPNS_OLD, SO_TIMESTAMP_NEW, SO_TIMESTAMPNS_NEW = 29, 35, 63, 64
MSG_ERRQUEUE, MSG_CMSG_CLOEXEC = 0x2000, 0x40000000
NOBODY = 65534


@case
def cancel_errors():
    def cancel(raw, bound=True):
        with Sock((NEAR, 0) if bound else None) as s:
            s.set_raw(RDS_CANCEL_SENT_TO, raw)

    there, there6 = sockaddr(FAR, 4000), sockaddr(FAR6, 4000)
    return each(cancel, {
        "unbound": (there, False),
        "no bytes": (None,),
        "short": (there[:15],),
        "short v6": (there6[:27],),
        "family": (struct.pack("=H14x", socket.AF_UNIX),),
        "bad memory": (BadMemory(16),),
        "nothing there": (there,),
        "nothing there v6": (there6,),
        "any": (sockaddr("0.0.0.0", 0),),
        "storage": (there.ljust(128, b"\0"),),
        "storage v6": (there6.ljust(128, b"\0"),),
    })


def fill(s, to):
    """Sends to an address that no host has, until the send buffer is full."""
    while True:
        try:
            s.send(bytes(20000), to, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return


def interrupted(seconds, function, *args):
    """Returns the outcome of a call that a signal interrupts after some seconds.

    The signal comes again until the call ends, because the first one may precede the wait.
    """
    ended = threading.Event()

    def ring():
        while not ended.wait(seconds):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    ringer = threading.Thread(target=ring)
    ringer.start()
    try:
        return outcome(function, *args)
    finally:
        ended.set()
        ringer.join()
        signal.signal(signal.SIGUSR1, before)


def send_at_most(s, seconds, to):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("=qq", 0, int(seconds * 1e6)))
    return s.send(bytes(20000), to)


@case
def send_waits():
    """Sends without room in the send buffer: the call waits until its timeout, or until a signal.
    """
    nobody = (ABSENT[0], 4000)

    def waits(seconds):
        with Sock((ENDS[0], 0)) as s:
            fill(s, nobody)
            send_at_most(s, seconds, nobody)

    return [outcome(waits, 0.1), interrupted(0.3, waits, 0)]


@case
def short_messages_at_once():
    """Sends messages of 64 bytes until a call would wait, with the default sizes of buffers.

    The socket sends to itself and reads none, or to an address that no host has.
    """
    size, most = 64, 10000

    def count(host, *there):
        with Sock((host, 0)) as s:
            to = there or s.name()
            for number in range(most):
                if (told := outcome(s.send, bytes(size), to, socket.MSG_DONTWAIT)) != size:
                    return [number, told]
            return "any number"

    return {"to itself": count(LOOP), "to nobody": count(ENDS[0], ABSENT[0], 4000)}


@case
def signals():
    """Checks whether a program with O_ASYNC gets a signal in three cases.

    The cases are a message, room in the send buffer, and room at a port that was full.
    """
    nobody, to, wanted = (ABSENT[0], 4000), (ENDS[1], 4001), {signal.SIGIO}

    def told(happen):
        while signal.sigtimedwait(wanted, 0):
            pass
        happen()
        # C RDS sends none, so there is nothing else to wait for.
        return bool(signal.sigtimedwait(wanted, 2 if OF_C else CALL_TIMEOUT))

    def read():
        while outcome(r.recv, 1, socket.MSG_DONTWAIT) != "EAGAIN":
            pass

    before = signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
    with Sock(host=ENDS[1]) as r, Sock((ENDS[0], 4002), CALL_TIMEOUT) as s:
        r.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        r.bind(*to)
        s.send(b"first", to)
        r.recv()
        fcntl.fcntl(s, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(s, fcntl.F_SETFL, fcntl.fcntl(s, fcntl.F_GETFL) | os.O_ASYNC)
        found = [told(lambda: r.send(b"message", (ENDS[0], 4002)))]
        fill(s, nobody)
        found.append(told(lambda: s.cancel(*nobody)))
        while (full := outcome(s.send, bytes(20000), to, socket.MSG_DONTWAIT)) != "ENOBUFS":
            if full == "EAGAIN":
                select.select([], [s], [])
        found.append(told(read))
        # No signal may be pending when the mask is restored.
        fcntl.fcntl(s, fcntl.F_SETFL, fcntl.fcntl(s, fcntl.F_GETFL) & ~os.O_ASYNC)
        while signal.sigtimedwait(wanted, 0):
            pass
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return found


@case
def time_limits_below_zero():
    """Negative timeouts expire at once. They differ from calls that must not wait."""
    over = struct.pack("@qq", -1, 0)
    with Sock((ENDS[0], 0), CALL_TIMEOUT) as s:
        fill(s, (ABSENT[0], 4000))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            s.setsockopt(socket.SOL_SOCKET, option, over)
        return [outcome(s.recv), outcome(s.send, b"x", (ABSENT[0], 4000)), outcome(s.recv, 1, socket.MSG_DONTWAIT),
                outcome(s.send, b"x", (ABSENT[0], 4000), socket.MSG_DONTWAIT)]


@case
def scopes_of_names():
    """Returns the scopes of both names of a socket, as "link" or a number."""
    netdev = subprocess.run(["ip", "-o", "addr", "show", "to", ENDS[0]], check=True, capture_output=True).stdout.split()[1].decode()
    link, near = socket.if_nametoindex(netdev), "fe80::9:1"

    def scopes(own, peer):
        with Sock(own) as s:
            s.connect(*peer)
            return ["link" if x == link else x for x in s.scopes()]

    address = [f"{near}/64", "dev", netdev]
    subprocess.run(["ip", "addr", "add", *address, "nodad"], check=True)
    try:
        await_address(near, 0, link)
        return each(scopes, {
            "both of the link": ((near, 0, link), ("fe80::9:2", 4000, link)),
            "own of the link": ((near, 0, link), (ENDS6[1], 4000)),
            "neither": ((ENDS6[0], 0), (ENDS6[1], 4000)),
            "neither, with a scope": ((ENDS6[0], 0, link), (ENDS6[1], 4000, link)),
        })
    finally:
        subprocess.run(["ip", "addr", "del", *address], check=True)


@case
def send_to_a_full_receiver():
    """Sends while the sender has room and the receiver has none. (On the loopback interface C RDS
    accepts every message.)"""
    to = (ENDS[1], 4001)
    with Sock(host=ENDS[1]) as r, Sock((ENDS[0], 0)) as s:
        r.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        r.bind(*to)
        sent = 0
        while (full := outcome(s.send, bytes(20000), to, socket.MSG_DONTWAIT)) in (20000, "EAGAIN"):
            if full == 20000:
                sent += 1
            else:
                # Some messages are not delivered yet.
                select.select([], [s], [])
        s.sock.setblocking(False)
        nonblocking = outcome(s.send, bytes(20000), to)
        s.sock.setblocking(True)
        # The signal is for C RDS. On a busy machine it must not come before the timeout expires.
        waited = [interrupted(5, send_at_most, s, 0.1, to), interrupted(0.3, send_at_most, s, 0, to)]
        for _ in range(sent):
            r.recv()
        return [full, nonblocking, *waited, outcome(send_at_most, s, 0, to)]


@case
def recverr():
    def value(size=4):
        return struct.unpack("=i", s.sock.getsockopt(SOL_RDS, RDS_RECVERR, size))[0]

    with Sock() as s:
        values = [value()]
        for wanted in (1, 7, 0):
            s.set_raw(RDS_RECVERR, struct.pack("=i", wanted))
            values.append(value())
        return [values, outcome(value, 3), outcome(s.set_raw, RDS_RECVERR, bytes(3)),
                outcome(s.set_raw, RDS_RECVERR, BadMemory(4))]


def has_room(s):
    # select() would take congestion events for room.
    p = select.poll()
    p.register(s, select.POLLOUT)
    return bool(p.poll(0))


@case
def cancel_frees_the_send_buffer():
    out = {}
    for host, nobody, others in ((ENDS[0], ABSENT[0], (ABSENT[1],)),
                                 (ENDS6[0], ABSENT6[0], (ABSENT6[1],))):
        with Sock((host, 0)) as s:
            fill(s, (nobody, 4000))
            states = [has_room(s)]
            s.cancel(nobody, 4001)
            for other in others:
                s.cancel(other, 4000)
            states.append(has_room(s))
            s.cancel(nobody, 4000)
            out[host] = states + [has_room(s)]
    return out


@case
def full_for_all_peers():
    """Messages that a peer does not take keep their sender from sending to all other peers until it
    cancels them. Another socket may send."""
    nobody, to = (ABSENT[0], 4000), (ENDS[1], 4001)
    with Sock(to, CALL_TIMEOUT), Sock((ENDS[0], 0), CALL_TIMEOUT) as s, Sock((ENDS[0], 0), CALL_TIMEOUT) as other:
        fill(s, nobody)
        told = [outcome(s.send, b"x", to, socket.MSG_DONTWAIT), has_room(s), other.send(b"x", to)]
        s.cancel(*nobody)
        return [*told, has_room(s), s.send(b"x", to)]


@case
def cancel_leaves_other_sockets_alone():
    with Sock((ENDS[0], 0)) as s, Sock((ENDS[0], 0)) as other:
        for x in (s, other):
            fill(x, (ABSENT[0], 4000))
        s.cancel(ABSENT[0], 4000)
        return [has_room(s), has_room(other)]


@case
def cancel_wakes_a_writer():
    with Sock((ENDS[0], 0)) as s:
        fill(s, (ABSENT[0], 4000))
        sent = []
        thread = threading.Thread(target=lambda: sent.append(s.send(b"abc", (ABSENT[0], 4000))))
        thread.start()
        thread.join(0.2)
        waited = thread.is_alive()
        s.cancel(ABSENT[0], 4000)
        thread.join(30)
        return [waited, sent]


@case
def cancel_with_a_longer_address():
    """Cancels with a sockaddr_storage that contains an IPv4 address."""
    with Sock((ENDS[0], 0)) as s:
        fill(s, (ABSENT[0], 4000))
        s.set_raw(RDS_CANCEL_SENT_TO, sockaddr(ABSENT[0], 4000).ljust(128, b"\0"))
        return has_room(s)


@case
def monitor_errors():
    def monitor(raw):
        with Sock() as s:
            s.set_raw(RDS_CONG_MONITOR, raw)

    out = each(monitor, {"no bytes": (None,), "short": (b"abc",), "bad memory": (BadMemory(4),),
                         "on": (struct.pack("=i", 1),), "off": (bytes(4),), "long": (bytes(8),)})
    with Sock() as s:
        out["get"] = outcome(s.sock.getsockopt, SOL_RDS, RDS_CONG_MONITOR)
    return out


@case
def timestamp_errors():
    def stamp(option, raw):
        with Sock() as s:
            s.set_raw(option, raw)

    values = {"short": b"abc", "long": bytes(8), "bad memory": BadMemory(4), "on": struct.pack("=i", 1)}
    out = {f"{name} {option}": outcome(stamp, option, raw) for name, raw in values.items()
           for option in (SO_TIMESTAMP_OLD, SO_TIMESTAMP_NEW)}
    with Sock() as s:
        out["get"] = outcome(s.sock.getsockopt, SOL_RDS, SO_TIMESTAMP_OLD)
    return out


def stamps(r, s, nanos=False):
    """Returns the control messages of the next message: level, type, and whether the time is right.
    """
    s.send(b"abc", r.name())
    data, control, _ = recvmsg(r, 100, 1000)
    unit = 1e9 if nanos else 1e6
    found = []
    for level, kind, raw in control:
        seconds, part = struct.unpack("=qq", raw)
        found.append([level, kind, abs(seconds + part / unit - time.time()) < 60])
    return [data.decode(), *found]


@case
def timestamps():
    on, off = struct.pack("=i", 1), bytes(4)
    out = {}
    with Sock((ENDS[1], 4001), CALL_TIMEOUT) as r, Sock((ENDS[0], 4002), CALL_TIMEOUT) as s:
        out["not asked"] = stamps(r, s)
        for name, level in (("rds", SOL_RDS), ("socket", socket.SOL_SOCKET)):
            r.set_raw(SO_TIMESTAMP_OLD, on, level)
            out[name] = stamps(r, s)
            r.set_raw(SO_TIMESTAMP_OLD, off, level)
            out[name + " off"] = stamps(r, s)
        r.set_raw(SO_TIMESTAMP_NEW, on)
        out["new"] = stamps(r, s)
        r.set_raw(SO_TIMESTAMP_OLD, on)
        out["old after new"] = stamps(r, s)
        r.set_raw(SO_TIMESTAMPNS_OLD, on, socket.SOL_SOCKET)
        out["nanoseconds"] = stamps(r, s, True)
        r.set_raw(SO_TIMESTAMPNS_NEW, on, socket.SOL_SOCKET)
        out["new nanoseconds"] = stamps(r, s, True)
    with Sock((LOOP, 4001), CALL_TIMEOUT) as r, Sock((LOOP, 4002)) as s:
        r.set_raw(SO_TIMESTAMP_OLD, on)
        out["loopback"] = stamps(r, s)
    return out


@case
def latency_errors():
    def latency(raw):
        with Sock() as s:
            s.set_raw(SO_RDS_MSG_RXPATH_LATENCY, raw)

    out = each(latency, {"short": (b"abc",), "long": (bytes(5),), "bad memory": (BadMemory(4),),
                         "four": (b"\4\0\1\2",), "beyond": (b"\1\3\0\0",), "off": (b"\0\377\377\377",),
                         "one": (b"\1\2\377\377",), "all": (b"\3\0\1\2",)})
    with Sock() as s:
        out["get"] = outcome(s.sock.getsockopt, SOL_RDS, SO_RDS_MSG_RXPATH_LATENCY)
    out["numbers"] = [x for x in range(256) if outcome(latency, bytes((x, 0, 0, 0))) == "ok"]
    out["positions"] = [x for x in range(256) if outcome(latency, bytes((3, 0, 0, x))) == "ok"]
    return out


def traces(r, s, size=3):
    """Returns what is reported about the receive path: number, positions, and whether the spans are
    sane."""
    s.send(bytes(size), r.name())
    _, control, _ = recvmsg(r, 20000, 1000)
    found = []
    for level, kind, raw in control:
        count, *rest = struct.unpack("=B3B4x3Q", raw)
        spans = rest[3:]
        found.append([level, kind, count, rest[:3], [0 <= x < 60e9 for x in spans], spans[count:]])
    return found


@case
def latency():
    with Sock((ENDS[1], 4001), CALL_TIMEOUT) as r, Sock((ENDS[0], 4002), CALL_TIMEOUT) as s:
        out = {}
        r.set_raw(SO_RDS_MSG_RXPATH_LATENCY, b"\3\2\1\0")
        out["three"] = traces(r, s)
        out["fragments"] = traces(r, s, 20000)
        r.set_raw(SO_RDS_MSG_RXPATH_LATENCY, b"\1\2\1\0")
        out["one"] = traces(r, s)
        outcome(r.set_raw, SO_RDS_MSG_RXPATH_LATENCY, b"\4\0\0\0")
        out["after too many"] = traces(r, s)
        outcome(r.set_raw, SO_RDS_MSG_RXPATH_LATENCY, b"\1\3\0\0")
        out["after an error"] = traces(r, s)
        return out


@case
def control_without_room():
    """Receives with too little room for control messages.

    They are omitted or cut, and the message is delivered nevertheless.
    """
    out = []
    with Sock((FAR, 4001), CALL_TIMEOUT) as r, Sock((NEAR, 4002)) as s:
        r.set_raw(SO_TIMESTAMP_OLD, struct.pack("=i", 1))
        for room in (0, 1, 15, 16 + 16):
            s.send(b"abc", (FAR, 4001))
            data, control, flags = recvmsg(r, 10, room)
            out.append([data.decode(), len(control), bool(flags & socket.MSG_CTRUNC)])
    return out


@case
def control_to_bad_memory():
    """Receives control messages into bad memory.

    Returns the outcome of this call, and of the next one. In "both" there is memory for the first
    control message.
    """
    out = {}
    stamps, latency = (SO_TIMESTAMP_OLD, struct.pack("=i", 1)), (SO_RDS_MSG_RXPATH_LATENCY, b"\1\2\0\0")
    _memory, end = page_before_nothing()
    for name, options, at in (("stamps", [stamps], 8), ("latency", [latency], 8), ("both", [stamps, latency], end - 32)):
        with Sock((FAR, 4001), CALL_TIMEOUT) as r, Sock((NEAR, 4002)) as s:
            for option in options:
                r.set_raw(*option)
            s.send(b"abc", (FAR, 4001))
            told = [outcome(recvmsg, r, 10, 100, *how) for how in ((0, at), (socket.MSG_DONTWAIT, None))]
            out[name] = [x if isinstance(x, str) else [x[0].decode(), *(kind for _, kind, _ in x[1])] for x in told]
    return out


@case
def recv_flags():
    out = {}
    for name, flag in (("MSG_WAITALL", socket.MSG_WAITALL), ("MSG_NOSIGNAL", socket.MSG_NOSIGNAL),
                       ("MSG_CMSG_CLOEXEC", MSG_CMSG_CLOEXEC), ("MSG_DONTROUTE", socket.MSG_DONTROUTE)):
        with exchange(b"abcdef") as s:
            out[name] = outcome(lambda: s.recv(10, flag)[0].decode())
    with exchange(b"abcdef") as s:
        out["MSG_ERRQUEUE"] = outcome(s.recv, 10, MSG_ERRQUEUE)
        out["MSG_OOB"] = len(s.recv(10, socket.MSG_OOB)[0])
        buffer = ctypes.create_string_buffer(3)
        peek = socket.MSG_PEEK | socket.MSG_TRUNC
        out["MSG_PEEK | MSG_TRUNC"] = call("recv", s.fileno(), buffer, 3, peek)
        out["then"] = s.recv(10)[0].decode()
    return out


@case
def write_and_read():
    """Uses write(2), which marks the end of a record, because the socket is of type SOCK_SEQPACKET.
    """
    with Sock((FAR, 4001), CALL_TIMEOUT) as r, Sock((NEAR, 4002)) as s:
        s.connect(FAR, 4001)
        written = outcome(os.write, s.fileno(), b"abc")
        return [written, os.read(r.fileno(), 10).decode() if written == 3 else ""]


@case
def send_several():
    """Uses sendmmsg(2), which passes a flag that more calls follow."""
    with Sock((FAR, 4001), CALL_TIMEOUT) as r, Sock((NEAR, 4002)) as s:
        s.connect(FAR, 4001)
        data = ctypes.create_string_buffer(b"abc", 3)
        iov = struct.pack("=QQ", ctypes.addressof(data), 3)
        iovs = ctypes.create_string_buffer(iov)
        header = struct.pack("=QI4xQQQQi4xI4x", 0, 0, ctypes.addressof(iovs), 1, 0, 0, 0, 0)
        headers = ctypes.create_string_buffer(header * 3)
        sent = outcome(call, "sendmmsg", s.fileno(), headers, 3, 0)
        # Messages that were sent may still be in flight.
        flags = 0 if sent == 3 else socket.MSG_DONTWAIT
        return [sent, [outcome(lambda: r.recv(10, flags)[0].decode()) for _ in range(3)]]


@case
def uek_options():
    def reset(option, raw):
        with Sock() as s:
            s.set_raw(option, raw)

    there = socket.inet_aton(ENDS[0]) + socket.inet_aton(ABSENT[1])
    there6 = socket.inet_pton(socket.AF_INET6, ENDS6[0]) * 2
    out = each(reset, {
        "reset nothing": (UEK_CONN_RESET, bytes(4) + there),
        "reset bad memory": (UEK_CONN_RESET, BadMemory(12)),
        "reset nothing v6": (UEK_CONN_RESET6, bytes(4) + there6),
        "reset short v6": (UEK_CONN_RESET6, bytes(35)),
        "reset long v6": (UEK_CONN_RESET6, bytes(37)),
    })
    with Sock() as s:
        out["transport"] = [outcome(s.set_raw, UEK_TRANSPORT, struct.pack("=i", 0)),
                            outcome(s.sock.getsockopt, SOL_RDS, UEK_TRANSPORT),
                            outcome(s.sock.getsockopt, SOL_RDS, SO_RDS_TRANSPORT)]
    return out


@case
def uek_reset_needs_a_capability():
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setresuid(NOBODY, NOBODY, NOBODY)
        with Sock() as s:
            told = [outcome(s.set_raw, UEK_CONN_RESET, bytes(12)), outcome(s.set_raw, UEK_CONN_RESET6, bytes(36))]
        os.write(write, " ".join(told).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    return os.read(read, 100).decode().split()


@case
def without_rdma():
    """Asks for RDMA on a transport that has none: TCP, or the one of loopback addresses."""
    host, peer = ENDS if OVER_TCP else (LOOP, LOOP)
    to = peer, 4000
    with Sock((host, 0)) as s:
        memory = rdma.Memory(s, 1)
        area = memory.base, 64
        s.connect(*to)

        def send(kind, data):
            return rdma.send(s, b"abc", (SOL_RDS, kind, data))

        transfers = [rdma.transfer(1 << 32, (0, 64), [area], flags) for flags in (rdma.READWRITE, 0)]
        out = each(send, {
            "map": (rdma.MAP, struct.pack("=QQQQ", *area, 0, 0)),
            "cookie": (rdma.DEST, struct.pack("=Q", 1 << 32)),
            **{name: raw[1:] for name, (raw, _) in zip(("write", "read"), transfers)},
            "add": rdma.atomic(rdma.FETCH_ADD, 1 << 32, memory.base, 0, [1], 0)[1:]})
        return out | {
            "register": outcome(rdma.register, s, *area), "register for": outcome(rdma.register, s, *area, 0, to),
            "free nobody's": outcome(memory.free, 12345), "free all": outcome(memory.free, 0)}
