# SPDX-License-Identifier: GPL-2.0
"""wrong_key.py HOST PEER COUNT: a program of an ordinary user writes to PEER with a key that no
region has.

It does this COUNT times, each as soon as it has the status of the one before. At the end a call
that must not wait has to be refused, and the program is notified when it may try again.
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
PATIENCE = 60


def main(host, peer, count):
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    with Sock((host, 0), 120) as s:
        s.connect(peer, 0)
        memory = Memory(s, 1)

        def write(flags=0):
            bad, _place = rdma.transfer(1, (0, 8), [(memory.base, 8)], READWRITE | NOTIFY_ME | SILENT)
            return rdma.send(s, b"", bad, flags=flags)

        def hear():
            _token, how = rdma.status(s)
            need(how in (rdma.REMOTE_ERROR, rdma.DROPPED), f"it ended with {how}")

        for _ in range(int(count)):
            write()
            hear()
        poller = select.epoll()
        poller.register(s, select.EPOLLOUT | select.EPOLLET)
        held = 0
        # On a machine that pauses meanwhile the wait may already be over.
        for _ in range(10):
            need(poller.poll(PATIENCE), "there is no room, though it has sent something")
            while outcome(write, socket.MSG_DONTWAIT) == "EAGAIN":
                held += 1
                need(poller.poll(PATIENCE), "nobody tells when to come again")
            hear()
            if held:
                return
            poller.modify(s, select.EPOLLOUT | select.EPOLLET)
        sys.exit("it need not wait")


main(*sys.argv[1:])
