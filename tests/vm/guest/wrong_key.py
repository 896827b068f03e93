# SPDX-License-Identifier: GPL-2.0
"""wrong_key.py HOST PEER once|queued COUNT: programs of an ordinary user write to PEER with a key
that no region has.

- once: one program does this COUNT times, each as soon as it has the status of the one before. At
  the end a call that must not wait has to be refused, and the program is notified when it may try
  again.
- queued: COUNT programs queue as many writes as they can, and then read the status of each.
  Prints the number of writes once all are queued.
"""

import os
import select
import socket
import sys

import rdma
from cases import need, outcome
from rdma import NOTIFY_ME, READWRITE, SILENT, Memory
from rds import Sock

NOBODY = 65534
SO_SNDBUFFORCE = 32
PATIENCE = 60


class Writer:
    """A socket, and writes with a wrong key from it."""

    def __init__(self, sock):
        self.sock, self.memory = sock, Memory(sock, 1)

    def write(self, flags=0):
        bad, _place = rdma.transfer(1, (0, 8), [(self.memory.base, 8)], READWRITE | NOTIFY_ME | SILENT)
        return rdma.send(self.sock, b"", bad, flags=flags)

    def hear(self):
        _token, how = rdma.status(self.sock)
        need(how in (rdma.REMOTE_ERROR, rdma.DROPPED), f"it ended with {how}")


def become_nobody():
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def once(host, peer, count):
    become_nobody()
    with Sock((host, 0), 120) as s:
        s.connect(peer, 0)
        writer = Writer(s)
        for _ in range(count):
            writer.write()
            writer.hear()
        poller = select.epoll()
        poller.register(s, select.EPOLLOUT | select.EPOLLET)
        held = 0
        # On a machine that pauses meanwhile the wait may already be over.
        for _ in range(10):
            need(poller.poll(PATIENCE), "there is no room, though it has sent something")
            while outcome(writer.write, socket.MSG_DONTWAIT) == "EAGAIN":
                held += 1
                need(poller.poll(PATIENCE), "nobody tells when to come again")
            writer.hear()
            if held:
                return
            poller.modify(s, select.EPOLLOUT | select.EPOLLET)
        sys.exit("it need not wait")


def queue_writes(sock):
    """Returns the number of writes that a program has queued."""
    writer, count = Writer(sock), 0
    while (told := outcome(writer.write, socket.MSG_DONTWAIT)) not in ("EAGAIN", "ENOMEM", "ENOBUFS"):
        need(told == 0, f"a write failed: {told}")
        count += 1
    return count


def hear_all(sock, count):
    """Reads the status of each write. The queue pair fails if the wire is cut for long."""
    heard = 0
    while heard < count:
        told = rdma.ends(sock)
        known = {rdma.REMOTE_ERROR, rdma.DROPPED, rdma.OTHER_ERROR}
        need({how for _token, how in told} <= known, f"they ended with {told}")
        heard += len(told)


def queued(host, peer, count):
    sockets = [Sock((host, 0), 120) for _ in range(count)]
    for s in sockets:
        s.sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 16 << 20)
        s.connect(peer, 0)
    become_nobody()
    told, tell = os.pipe()
    for s in sockets:
        if not os.fork():
            number = queue_writes(s)
            os.write(tell, f"{number}\n".encode())
            os.close(tell)
            hear_all(s, number)
            os._exit(0)
    os.close(tell)
    with os.fdopen(told) as lines:
        print(sum(map(int, lines)), flush=True)
    for _ in sockets:
        _, status = os.wait()
        need(status == 0, "a program has failed")


host, peer, mode, count = sys.argv[1:]
{"once": once, "queued": queued}[mode](host, peer, int(count))
