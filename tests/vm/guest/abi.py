# SPDX-License-Identifier: GPL-2.0
"""Runs cases of the socket interface and prints the answer of each as one JSON line.

The expected answers are in tests/vm/test_abi.py.
"""

import ctypes
import fcntl
import mmap
import os
import select
import signal
import socket
import struct
import termios

import abi_callers  # noqa: F401  (more cases)
import abi_options  # noqa: F401
from cases import (ABSENT, CALL_TIMEOUT, ENDS, ENDS6, FAR, FAR6, LOOP, LOOP6, NEAR, NEAR6, TRANSPORT, case, each,
                   exchange, main, outcome)
from rds import (MAX_MESSAGE, MSG_ZEROCOPY, SIOCRDSGETTOS, SIOCRDSSETTOS, SO_RDS_TRANSPORT, SO_ZEROCOPY, SOL_RDS, Sock,
                 call, sendmsg, sockaddr)


@case
def socket_kinds():
    def make(kind, protocol):
        socket.socket(socket.AF_RDS, kind, protocol).close()

    return each(make, {
        "seqpacket": (socket.SOCK_SEQPACKET, 0),
        "dgram": (socket.SOCK_DGRAM, 0),
        "stream": (socket.SOCK_STREAM, 0),
        "protocol": (socket.SOCK_SEQPACKET, 1),
    })


@case
def unsupported_calls():
    with Sock((NEAR, 0)) as s:
        fds = (ctypes.c_int * 2)()
        return {
            "listen": outcome(call, "listen", s.fileno(), 5),
            "accept": outcome(call, "accept", s.fileno(), None, None),
            "shutdown": outcome(call, "shutdown", s.fileno(), 2),
            "socketpair": outcome(call, "socketpair", socket.AF_RDS, socket.SOCK_SEQPACKET, 0, fds),
            "mmap": outcome(lambda: mmap.mmap(s.fileno(), 4096).close()),
            "ioctl": outcome(lambda: fcntl.ioctl(s.fileno(), termios.FIONREAD, 0)),
        }


@case
def bind_errors():
    def bind(raw):
        with Sock() as s:
            s.bind_raw(raw)

    good = sockaddr(NEAR, 0)
    good6 = sockaddr(NEAR6, 0)
    return each(bind, {
        "no bytes": (b"",),
        "one byte": (good[:1],),
        "short": (good[:15],),
        "short v6": (good6[:27],),
        "family": (struct.pack("=H14x", socket.AF_UNIX),),
        "any": (sockaddr("0.0.0.0", 0),),
        "broadcast": (sockaddr("255.255.255.255", 0),),
        "multicast": (sockaddr("224.0.0.1", 0),),
        "any v6": (sockaddr("::", 0),),
        "multicast v6": (sockaddr("ff02::1", 0),),
        "link-local without scope": (sockaddr("fe80::1", 0),),
        "mapped any": (sockaddr("::ffff:0.0.0.0", 0),),
        "mapped multicast": (sockaddr("::ffff:224.0.0.1", 0),),
        "mapped broadcast": (sockaddr("::ffff:255.255.255.255", 0),),
        "port 1": (sockaddr(NEAR, 1),),
        "port 1 v6": (sockaddr(NEAR6, 1),),
        "not ours": (sockaddr("192.0.2.1", 4000),),
        "port 1, not ours": (sockaddr("192.0.2.1", 1),),
        "not ours v6": (sockaddr("2001:db8::1", 4000),),
        "good": (good,),
        "good v6": (good6,),
        "mapped": (sockaddr(f"::ffff:{NEAR}", 0),),
        "long": (good + bytes(100),),
    })


@case
def bind_twice():
    with Sock((NEAR, 0)) as s:
        return outcome(s.bind, NEAR, 0)


@case
def bind_in_use():
    with Sock((NEAR, 4001)), Sock() as other:
        taken = outcome(other.bind, NEAR, 4001)
        return [taken, outcome(other.bind, NEAR, 4002), outcome(other.name)]


@case
def bind_port_of_another_address():
    with Sock((LOOP, 4001)), Sock((ENDS[0], 4001)), Sock((LOOP6, 4001)):
        return "ok"


@case
def bind_again_after_close():
    for _ in range(2):
        with Sock((NEAR, 4001)):
            pass
    return "ok"


@case
def bind_port_zero():
    socks = [Sock((NEAR, 0)) for _ in range(32)]
    ports = {s.name()[1] for s in socks}
    for s in socks:
        s.sock.close()
    return len(ports) == 32 and min(ports) >= 2


@case
def names():
    with Sock() as s:
        fresh = [outcome(s.name), s.name_size(), outcome(s.peer)]
        s.bind(NEAR, 4001)
        s.connect(FAR, 4002)
        return fresh + [outcome(s.name), s.name_size(), outcome(s.peer)]


@case
def names_v6():
    with Sock((NEAR6, 4001)) as s:
        s.connect(FAR6, 4002)
        return [outcome(s.name), s.name_size(), outcome(s.peer)]


@case
def names_of_a_socket_that_is_only_connected():
    out = []
    for host in (FAR, FAR6):
        with Sock() as s:
            s.connect(host, 4002)
            out.append([outcome(s.name), s.name_size(), outcome(s.peer)])
    return out


@case
def mapped_is_v4():
    with Sock((f"::ffff:{NEAR}", 4001)) as s:
        return [outcome(s.name), s.name_size()]


@case
def connect_errors():
    def connect(raw):
        with Sock() as s:
            s.connect_raw(raw)

    return each(connect, {
        "short": (sockaddr(FAR, 4000)[:15],),
        "short v6": (sockaddr(FAR6, 4000)[:27],),
        "any": (sockaddr("0.0.0.0", 4000),),
        "broadcast": (sockaddr("255.255.255.255", 4000),),
        "multicast": (sockaddr("224.0.0.1", 4000),),
        "any v6": (sockaddr("::", 4000),),
        "multicast v6": (sockaddr("ff02::1", 4000),),
        "mapped any": (sockaddr("::ffff:0.0.0.0", 4000),),
        "mapped broadcast": (sockaddr("::ffff:255.255.255.255", 4000),),
        "mapped multicast": (sockaddr("::ffff:224.0.0.1", 4000),),
        "mapped": (sockaddr(f"::ffff:{FAR}", 4000),),
        "link-local without scope": (sockaddr("fe80::1", 4000),),
        "family": (struct.pack("=H26x", socket.AF_UNIX),),
        "unspec": (bytes(16),),
        "good": (sockaddr(FAR, 4000),),
        "good v6": (sockaddr(FAR6, 4000),),
        "nobody there": (sockaddr("192.0.2.1", 4000),),
    })


@case
def connect_again():
    with Sock() as s:
        s.connect(FAR, 4001)
        s.connect(FAR, 4002)
        return s.peer()


@case
def connect_then_send():
    with Sock((NEAR, 4001)) as a, Sock((FAR, 4002), CALL_TIMEOUT) as b:
        a.connect(FAR, 4002)
        return [a.send(b"abc"), b.recv()[0].decode()]


@case
def send_errors():
    def send(to, flags=0, size=1):
        with Sock((NEAR, 0)) as s:
            return s.send(bytes(size), to, flags)

    there = (FAR, 4000)
    return each(send, {
        "no destination": (None,),
        "any": (("0.0.0.0", 4000),),
        "broadcast": (("255.255.255.255", 4000),),
        "multicast": (("224.0.0.1", 4000),),
        "v6 from v4": ((FAR6, 4000),),
        "MSG_OOB": (there, socket.MSG_OOB),
        "MSG_DONTWAIT": (there, socket.MSG_DONTWAIT),
        "empty": (there, 0, 0),
        "beyond 1 MiB": (there, 0, MAX_MESSAGE + 1),
        "beyond the send buffer": (there, 0, 512 << 10),
    })


@case
def send_errors_v6():
    """Sends from an address of either family.

    The destination is checked first, alone; then the families are compared.
    """
    def send(near, raw):
        with Sock((near, 0)) as s:
            return call("sendto", s.fileno(), b"x", 1, 0, raw, len(raw))

    names = {
        "any": sockaddr("::", 4000),
        "multicast": sockaddr("ff02::1", 4000),
        "mapped any": sockaddr("::ffff:0.0.0.0", 4000),
        "mapped broadcast": sockaddr("::ffff:255.255.255.255", 4000),
        "mapped multicast": sockaddr("::ffff:224.0.0.1", 4000),
        "mapped": sockaddr(f"::ffff:{FAR}", 4000),
        "link-local without scope": sockaddr("fe80::1", 4000),
        "short": sockaddr(FAR6, 4000)[:27],
        "family": struct.pack("=H26x", socket.AF_UNIX),
        "good": sockaddr(FAR6, 4000),
    }
    return {family: each(send, {name: (near, raw) for name, raw in names.items()})
            for family, near in (("from v6", NEAR6), ("from v4", NEAR))}


@case
def send_hints():
    def send(flag):
        with Sock((NEAR, 0)) as s:
            return s.send(b"x", (FAR, 4000), flag)

    return each(send, {"MSG_NOSIGNAL": (socket.MSG_NOSIGNAL,), "MSG_EOR": (socket.MSG_EOR,),
                       "MSG_MORE": (socket.MSG_MORE,), "MSG_CONFIRM": (socket.MSG_CONFIRM,)})


@case
def send_unbound():
    with Sock() as s:
        return outcome(s.send, b"x", (FAR, 4000))


@case
def send_to_v4_from_v6():
    with Sock((NEAR6, 0)) as s:
        return outcome(s.send, b"x", (FAR, 4000))


@case
def send_short_name():
    with Sock((NEAR, 0)) as s:
        raw = sockaddr(FAR, 4000)
        return outcome(call, "sendto", s.fileno(), b"x", 1, 0, raw, 15)


@case
def send_bad_memory():
    with Sock((NEAR, 0)) as s:
        raw = sockaddr(FAR, 4000)
        return outcome(call, "sendto", s.fileno(), ctypes.c_void_p(8), 10, 0, raw, 16)


@case
def send_control():
    def send(level, kind, data):
        with Sock((NEAR, 0)) as s:
            return s.sock.sendmsg([b"abc"], [(level, kind, data)], 0, (FAR, 4000))

    return each(send, {
        "foreign level": (socket.SOL_IP, 99, b"abcd"),
        "unknown type": (SOL_RDS, 99, b"abcd"),
        "zero-copy cookie alone": (SOL_RDS, 12, b"abcd"),
        "what is only received": (SOL_RDS, 4, bytes(16)),
        **{f"short {name}": (SOL_RDS, kind, b"abcd") for kind, name in (
            (1, "arguments"), (2, "destination"), (3, "map"), (6, "fetch-and-add"), (7, "compare-and-swap"),
            (8, "masked fetch-and-add"), (9, "masked compare-and-swap"))},
    })


@case
def zero_copy():
    """Sends with MSG_ZEROCOPY, with and without a cookie, on a socket with SO_ZEROCOPY and on one
    without it."""
    def send(option, *controls):
        with Sock((NEAR, 0)) as s:
            s.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, option)
            return s.sock.sendmsg([b"abc"], controls, MSG_ZEROCOPY, (FAR, 4000))

    cookie = SOL_RDS, 12, b"abcd"
    return each(send, {"asked": (1, cookie), "asked, no cookie": (1,), "not asked": (0, cookie),
                       "not asked, no cookie": (0,)})


@case
def send_malformed_control():
    def send(control):
        with Sock((NEAR, 0)) as s:
            return sendmsg(s, b"abc", (FAR, 4000), control)

    def header(length, room):
        return struct.pack("=QII", length, SOL_RDS, 2).ljust(room, b"\0")

    return each(send, {
        "not even a header": (bytes(15),),
        "shorter than a header": (header(15, 24),),
        "longer than the buffer": (header(25, 24),),
        "far longer": (header(1 << 63, 24),),
        "a second one": (struct.pack("=QII", 20, socket.SOL_IP, 99).ljust(24, b"\0") + header(0, 16),),
    })


@case
def send_with_two_errors():
    """Sends too much with a control message that is malformed, or that could fail by itself."""
    def send(size, control):
        with Sock((NEAR, 0)) as s:
            return sendmsg(s, bytes(size), (FAR, 4000), control)

    malformed = struct.pack("=QII", 15, SOL_RDS, 2).ljust(24, b"\0")
    unknown = struct.pack("=QII", 20, SOL_RDS, 99).ljust(24, b"\0")
    foreign = struct.pack("=QII", 20, socket.SOL_IP, 99).ljust(24, b"\0")
    sizes = {"beyond 1 MiB": MAX_MESSAGE + 1, "beyond the send buffer": 512 << 10}
    return each(send, {f"{what}, {name}": (size, control) for what, size in sizes.items() for name, control in (
        ("malformed", malformed), ("unknown", unknown), ("foreign", foreign))})


@case
def recv_nothing():
    with Sock((NEAR, 0)) as s:
        dontwait = outcome(s.recv, 10, socket.MSG_DONTWAIT)
        s.sock.setblocking(False)
        return [dontwait, outcome(s.recv)]


@case
def recv_unbound():
    with Sock() as s:
        return outcome(s.recv, 10, socket.MSG_DONTWAIT)


@case
def recv_timeout():
    with Sock((NEAR, 0), 0.05) as s:
        return outcome(s.recv)


@case
def recv_interrupted():
    class Alarm(Exception):
        pass

    def ring(*_):
        raise Alarm

    with Sock((NEAR, 0)) as s:
        old = signal.signal(signal.SIGALRM, ring)
        try:
            # The signal may come before the call waits.
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            return outcome(s.sock.recv, 10)
        except Alarm:
            return "interrupted"
        finally:
            signal.signal(signal.SIGALRM, old)


@case
def recv_oob():
    with Sock((NEAR, 0)) as s:
        return outcome(lambda: len(s.recv(10, socket.MSG_OOB)[0]))


@case
def recv_peek():
    with exchange(b"abcdef") as s:
        return [s.recv(10, socket.MSG_PEEK)[0].decode(), s.recv(10)[0].decode(),
                outcome(s.recv, 10, socket.MSG_DONTWAIT)]


@case
def recv_short_buffer():
    with exchange(b"abcdef") as s:
        data, _, flags, _ = s.sock.recvmsg(3)
        return [data.decode(), bool(flags & socket.MSG_TRUNC),
                outcome(s.recv, 10, socket.MSG_DONTWAIT)]


@case
def recv_msg_trunc():
    with exchange(b"abcdef") as s:
        buffer = ctypes.create_string_buffer(3)
        return [call("recv", s.fileno(), buffer, 3, socket.MSG_TRUNC), buffer.raw.decode()]


@case
def recv_flags_of_a_whole_message():
    with exchange(b"abcdef") as s:
        data, control, flags, _ = s.sock.recvmsg(100, 1000)
        return [data.decode(), len(control), flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC)]


@case
def recv_bad_memory():
    with exchange(b"abcdef") as s:
        return outcome(call, "recv", s.fileno(), ctypes.c_void_p(8), 6, socket.MSG_DONTWAIT)


@case
def recv_empty_message():
    with exchange(b"") as s:
        data, sender = s.recv(10)
        return [len(data), sender]


@case
def recv_sender():
    out = {}
    for here, there in ((LOOP, LOOP), (LOOP6, LOOP6), ENDS, ENDS6):
        with Sock((here, 4001), CALL_TIMEOUT) as r, Sock((there, 4002)) as s:
            s.send(b"x", (here, 4001))
            out[here] = r.recv()[1]
    return out


@case
def order_is_kept():
    with Sock((FAR, 4001), CALL_TIMEOUT) as r, Sock((NEAR, 4002), CALL_TIMEOUT) as s:
        for i in range(100):
            s.send(struct.pack("=I", i), (FAR, 4001))
        return [struct.unpack("=I", r.recv()[0])[0] for _ in range(100)] == list(range(100))


@case
def sizes():
    out = {}
    with Sock((FAR, 4001), CALL_TIMEOUT) as r, Sock((NEAR, 4002), CALL_TIMEOUT) as s:
        for sock, option in ((s, socket.SO_SNDBUF), (r, socket.SO_RCVBUF)):
            sock.setsockopt(socket.SOL_SOCKET, option + 25, 4 << 20)  # SO_SNDBUFFORCE and so on
        for size in (0, 1, 4095, 4096, 4097, 8192, 65536, MAX_MESSAGE - 1, MAX_MESSAGE):
            data = bytes(i * 31 & 255 for i in range(min(size, 5000))) * (size // 5000 + 1)
            sent = s.send(data[:size], (FAR, 4001))
            out[str(size)] = [sent == size, r.recv()[0] == data[:size]]
    return out


@case
def poll_states():
    def poll(s):
        p = select.poll()
        p.register(s, 0x2FFF)
        events = p.poll(0)
        bits = events[0][1] if events else 0
        names = [n for n in ("IN", "PRI", "OUT", "ERR", "HUP", "RDHUP", "RDNORM", "RDBAND", "WRNORM", "WRBAND")
                 if bits & getattr(select, "POLL" + n)]
        return " ".join(names)

    states = []
    with Sock((FAR, 4001), CALL_TIMEOUT) as r, Sock((NEAR, 4002)) as s:
        poll(r)  # takes the one congestion event that a new socket may have
        states.append(poll(r))
        s.send(b"x", (FAR, 4001))
        select.select([r], [], [], CALL_TIMEOUT)
        states.append(poll(r))
        r.recv()
        states.append(poll(r))
    with Sock() as s:
        poll(s)
        states.append(poll(s))
    return states


@case
def epoll_wakes():
    with Sock((FAR, 4001)) as r, Sock((NEAR, 4002)) as s, select.epoll() as e:
        e.register(r, select.EPOLLIN | select.EPOLLET)
        e.poll(0)
        before = e.poll(0)
        s.send(b"x", (FAR, 4001))
        return [len(before), len(e.poll(CALL_TIMEOUT))]


@case
def transports():
    out = {}
    for host in (LOOP, LOOP6, ENDS[0], ENDS6[0]):
        with Sock((host, 0)) as s:
            out[host] = s.transport()
    with Sock() as s:
        out["unbound"] = s.transport()
    return out


@case
def transport_errors():
    def pin(value):
        with Sock() as s:
            s.setsockopt(SOL_RDS, SO_RDS_TRANSPORT, value)
            return s.transport()

    out = each(pin, {
        "short": (b"abc",),
        "long": (bytes(8),),
        "negative": (-1,),
        "beyond": (4,),
        "loopback": (3,),
        TRANSPORT: ({"infiniband": 0, "tcp": 2}[TRANSPORT],),
        "gap": (1,),
    })
    with Sock((LOOP, 0)) as s:
        out["bound"] = outcome(s.pin, TRANSPORT)
    with Sock() as s:
        s.pin(TRANSPORT)
        out["pinned twice"] = outcome(s.pin, TRANSPORT)
        out["pinned elsewhere"] = outcome(s.bind, LOOP, 0)
    with Sock() as s:
        s.pin(TRANSPORT)
        out["pinned there"] = outcome(s.bind, ENDS[0], 0)
    with Sock((ENDS[0], 4001)), Sock((LOOP, 4001)):
        for name, host, port, then in (
                ("port taken", ENDS[0], 4001, ENDS[0]), ("port taken, elsewhere", ENDS[0], 4001, LOOP),
                ("port 1", ENDS[0], 1, ENDS[0]), ("nowhere", ABSENT[1], 4003, ENDS[0]), ("bad", "0.0.0.0", 4003, ENDS[0])):
            with Sock() as s:
                s.pin(TRANSPORT)
                out[name] = [outcome(s.bind, host, port), s.transport(), outcome(s.pin, TRANSPORT), s.transport(),
                             outcome(s.bind, then, 4002)]
        with Sock() as s:
            s.pin(TRANSPORT)
            out["forgotten"] = [outcome(s.bind, ENDS[0], 4001), outcome(s.bind, LOOP, 4002), s.transport()]
    return out


@case
def type_of_service():
    out = {}
    with Sock() as s:
        out["unbound"] = [outcome(s.tos), outcome(s.set_tos, 4)]
        s.pin(TRANSPORT)
        out["pinned"] = [outcome(s.set_tos, 4), s.tos()]
    with Sock((LOOP, 0)) as s:
        out["loopback"] = outcome(s.set_tos, 4)
    with Sock((ENDS[0], 0)) as s:
        out["bad memory"] = [outcome(call, "ioctl", s.fileno(), ctypes.c_ulong(x), ctypes.c_void_p(8))
                             for x in (SIOCRDSSETTOS, SIOCRDSGETTOS)]
        out["set"] = [outcome(s.set_tos, 0), outcome(s.set_tos, 255), s.tos()]
        out["set again"] = [outcome(s.set_tos, 0), outcome(s.set_tos, 255), s.tos()]
    with Sock((ENDS[0], 0)) as s:
        s.connect(ENDS[1], 4001)
        out["connected"] = [outcome(s.set_tos, 4), s.tos()]
    with Sock((ENDS[0], 0)) as s, Sock((ENDS[1], 4001), CALL_TIMEOUT) as r:
        s.send(b"abc", (ENDS[1], 4001))
        r.recv()
        out["after a message"] = [outcome(s.set_tos, 4), s.tos()]
    return out


@case
def options():
    with Sock() as s:
        return {
            "foreign level": outcome(s.setsockopt, 254, 1, 1),
            "unknown": outcome(s.setsockopt, SOL_RDS, 99, 1),
            "get unknown": outcome(s.sock.getsockopt, SOL_RDS, 99),
            "get foreign level": outcome(s.sock.getsockopt, 254, 1),
        }


@case
def fork_shares_the_socket():
    with Sock((FAR, 4001), CALL_TIMEOUT) as r, Sock((NEAR, 4002)) as s:
        pid = os.fork()
        if pid == 0:
            s.send(b"child", (FAR, 4001))
            os._exit(0)
        os.waitpid(pid, 0)
        return r.recv()[0].decode()


if __name__ == "__main__":
    main()
