# SPDX-License-Identifier: GPL-2.0
"""cong_monitor.py HOST PEER PORT: checks what is reported to a socket at HOST about two congested
ports of PEER.

PEER is an address of this node, too. The ports get room again. PORT and the next one must be free.
"""

import errno
import select
import socket
import struct
import sys
import threading
import time

from rds import SOL_RDS, Sock, recvmsg

RDS_CONG_MONITOR, CMSG_CONG_UPDATE = 6, 5
SIZE = 1000
WAIT_MS = 60000


def check(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: {found}, not {wanted}")


def events(s, wait_ms=0):
    poll = select.poll()
    poll.register(s, select.POLLIN | select.POLLWRBAND)
    found = poll.poll(wait_ms)
    return found[0][1] if found else 0


def send(s, to):
    """Sends a message. Returns the name of the error, or None."""
    try:
        s.send(bytes(SIZE), to, socket.MSG_DONTWAIT)
    except OSError as e:
        return errno.errorcode[e.errno]
    return None


def fill(s, to):
    """Sends until the port is congested. Returns how many messages were sent."""
    sent = 0
    while (why := send(s, to)) != "ENOBUFS":
        if why == "EAGAIN":
            # The congestion map of the full port is still in flight.
            select.select([], [s], [])
        elif why:
            sys.exit(f"{why} before the port was congested")
        else:
            sent += 1
    return sent


def drain(r, sent, until):
    """Reads all `sent` messages, and then more until `until` returns true.

    Messages in flight could otherwise fill the port again. The end is that the sender knows that
    there is room.
    """
    while sent > 0 or not until():
        try:
            r.recv(SIZE, socket.MSG_DONTWAIT)
            sent -= 1
        except BlockingIOError:
            select.select([r], [], [], 0.01)


def told(s, flags=socket.MSG_DONTWAIT):
    """Returns the ports, modulo 64, that the next receive reports."""
    data, control, _ = recvmsg(s, SIZE, 100, flags)
    check("what came with it", (data, [x[:2] for x in control]), (b"", [(SOL_RDS, CMSG_CONG_UPDATE)]))
    mask = struct.unpack("=Q", control[0][2])[0]
    return [x for x in range(64) if mask >> x & 1]


def nothing(s, room=100):
    try:
        recvmsg(s, SIZE, room, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True
    return False


def socket_at(address, option, size):
    s = Sock(address, timeout=60)
    s.sock.setsockopt(socket.SOL_SOCKET, option, size)
    return s


def main():
    host, peer, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    first, second = (peer, port), (peer, port + 1)
    # SO_SNDBUFFORCE: on loopback a sender is charged until its messages are read.
    with socket_at((host, 0), socket.SO_SNDBUF + 25, 16 << 20) as s, \
            socket_at(first, socket.SO_RCVBUF, 16384) as r1, \
            socket_at(second, socket.SO_RCVBUF, 16384) as r2:
        s.setsockopt(SOL_RDS, RDS_CONG_MONITOR, 1)
        sent = [fill(s, to) for to in (first, second)]
        check("events before there is room", events(s), 0)
        drain(r1, sent[0], lambda: events(s))
        check("events", events(s), select.POLLIN)
        check("without room for it", recvmsg(s, SIZE, 20)[::2], (b"", socket.MSG_CTRUNC))
        r2.send(b"data", s.name())
        while (data := recvmsg(s, SIZE, 0)[0]) == b"":
            time.sleep(0.01)
        check("a message comes first then", data, b"data")
        check("events when a call had no room", (nothing(s, room=20), events(s)), (True, 0))
        try:
            recvmsg(s, SIZE, 100, 0, control=8)
            sys.exit("bad memory is good enough")
        except OSError as e:
            check("to bad memory", errno.errorcode[e.errno], "EFAULT")
        # The second port is still full.
        check("a look", told(s, socket.MSG_PEEK), [port % 64])
        check("the ports", told(s), [port % 64])
        check("after it was read", (nothing(s), events(s)), (True, 0))
        found = []
        reader = threading.Thread(target=lambda: found.extend(told(s, 0)))
        reader.start()
        drain(r2, sent[1], lambda: not reader.is_alive())
        check("the second port", found, [(port + 1) % 64])

        drain(r1, fill(s, first), lambda: events(s))
        s.setsockopt(SOL_RDS, RDS_CONG_MONITOR, 0)
        check("events that were not read", bool(events(s) & select.POLLIN), True)
        check("nothing to read without the option", nothing(s), True)
        check("events after a receive", events(s), 0)

        drain(r1, fill(s, first), lambda: events(s))
        news = select.POLLIN | select.POLLWRBAND
        check("events without the option", events(s), news)
        with select.epoll() as epoll:
            epoll.register(s, select.EPOLLWRBAND)
            check("events for epoll", epoll.poll(0), [(s.fileno(), select.EPOLLWRBAND)])
            epoll.modify(s, select.EPOLLIN)
            check("events for epoll that looks anew", epoll.poll(0), [(s.fileno(), select.EPOLLIN)])
            # Messages in flight may have filled the port once more.
            while (why := send(s, first)) == "ENOBUFS":
                events(s, WAIT_MS)
            check("a send after it", why, None)
            check("events for epoll after a send", epoll.poll(0), [])

        drain(r1, fill(s, first), lambda: send(s, first) is None)
        s.setsockopt(SOL_RDS, RDS_CONG_MONITOR, 1)
        check("events that nobody asked for before the option", bool(events(s, WAIT_MS)), True)
        check("the port that they are of", told(s), [port % 64])
        s.setsockopt(SOL_RDS, RDS_CONG_MONITOR, 0)
        check("events after that", events(s), 0)

        s.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        r1.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF + 25, 16 << 20)
        fill(r1, s.name())
        for on in (1, 0):
            s.setsockopt(SOL_RDS, RDS_CONG_MONITOR, on)
            check("a port of one's own stays congested", send(r1, s.name()), "ENOBUFS")
    print("all")


if __name__ == "__main__":
    main()
