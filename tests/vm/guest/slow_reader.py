# SPDX-License-Identifier: GPL-2.0
"""slow_reader.py recv HOST PORT COUNT, and slow_reader.py send HOST PORT PEER PEERPORT COUNT
[monitor]: a receiver with little room.

It does not read until a line arrives on its standard input. The sender is nonblocking until it is
refused because the receiver has no room. It then blocks for one message, and is nonblocking with
poll() for the rest. Every message has its number. All must arrive, in order. With "monitor" the
sender must be notified which port has room again.
"""

import errno
import select
import socket
import struct
import sys
import time

from rds import SOL_RDS, Sock, read_numbered, recvmsg

SIZE = 1000
# Messages that are more than the receive buffer.
FULL = 50
RDS_CONG_MONITOR, CMSG_CONG_UPDATE = 6, 5


def receive(host, port, count):
    with Sock() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        s.bind(host, port)
        print("ready", flush=True)
        sys.stdin.readline()
        read_numbered(s, count, SIZE)
        try:
            s.recv(10, socket.MSG_DONTWAIT)
        except BlockingIOError:
            print("all", count, flush=True)
        else:
            sys.exit("more came than was sent")


def wait_for_news(s, poll, port):
    """Waits for the event of RDS_CONG_MONITOR."""
    poll.modify(s, select.POLLIN)
    poll.poll()
    data, control, _ = recvmsg(s, 10, 100, socket.MSG_DONTWAIT)
    told = [(level, kind, struct.unpack("=Q", raw)[0]) for level, kind, raw in control]
    if (data, told) != (b"", [(SOL_RDS, CMSG_CONG_UPDATE, 1 << port % 64)]):
        sys.exit(f"port {port} has room again, and what is told is {told}")


def send(host, port, peer, peer_port, count, monitor):
    def message(i):
        return struct.pack("=I", i).ljust(SIZE, b"x")

    def refused(i, flags):
        """Sends message i. Returns the name of the error, or None."""
        try:
            s.send(message(i), (peer, peer_port), flags)
        except OSError as e:
            if e.errno not in (errno.EAGAIN, errno.ENOBUFS):
                raise
            return errno.errorcode[e.errno]
        return None

    with Sock((host, port)) as s:
        if monitor:
            s.setsockopt(SOL_RDS, RDS_CONG_MONITOR, 1)
        poll = select.poll()
        poll.register(s, select.POLLIN | select.POLLOUT | select.POLLWRBAND)
        sent = 0
        while (why := refused(sent, socket.MSG_DONTWAIT)) != "ENOBUFS":
            if why is None:
                sent += 1
                if sent == count:
                    sys.exit("the receiver was never congested")
                if sent > FULL:
                    # Nothing reports that the peer's map has arrived.
                    time.sleep(0.05)
            else:
                # The send buffer is full of unacknowledged messages.
                poll.modify(s, select.POLLOUT)
                poll.poll()
        print(f"ENOBUFS after {sent}", flush=True)
        refused(sent, 0)
        sent += 1
        print("unblocked", flush=True)
        while sent < count:
            why = refused(sent, socket.MSG_DONTWAIT)
            if why is None:
                sent += 1
                continue
            if monitor and why == "ENOBUFS":
                wait_for_news(s, poll, peer_port)
                continue
            # EAGAIN: wait for room here. ENOBUFS: wait for a congestion event, reported as POLLIN.
            poll.modify(s, select.POLLOUT if why == "EAGAIN" else select.POLLIN)
            poll.poll()
        # Closing the socket would cancel messages that are not delivered yet, so wait until the
        # receiver is done.
        print("sent", sent, flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    role, host, port, *rest = sys.argv[1:]
    if role == "recv":
        receive(host, int(port), int(rest[0]))
    else:
        send(host, int(port), rest[0], int(rest[1]), int(rest[2]), rest[3:] == ["monitor"])
