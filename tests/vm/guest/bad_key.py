# SPDX-License-Identifier: GPL-2.0
"""bad_key.py HOST PEER ROUNDS: writes with a key that PEER has not given, on an idle connection.

Waits after each write until messages are answered again.
"""

import sys
import time

import rdma
from cases import need
from rdma import NOTIFY_ME, READWRITE, SILENT, Memory
from rds import Sock


def main():
    host, peer, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with Sock((host, 0), 120) as s:
        s.connect(peer, 0)
        memory = Memory(s, 1)

        def ping():
            s.send(b"")
            need((seen := rdma.receive(s)) == (b"", []), f"{seen} for a pong")

        ping()
        for token in range(rounds):
            # The scenario is a connection that is idle and has been up for long enough: there is no
            # event to wait for.
            time.sleep(1.5)
            bad, _place = rdma.transfer(1, (0, 8), [(memory.base, 8)], READWRITE | NOTIFY_ME | SILENT, token)
            rdma.send(s, b"", bad)
            told, how = rdma.status(s)
            need(told == token and how in (rdma.REMOTE_ERROR, rdma.DROPPED), f"{token}: {told}, {how}")
            ping()


main()
