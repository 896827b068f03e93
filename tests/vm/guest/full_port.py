# SPDX-License-Identifier: GPL-2.0
"""full_port.py full HOST PORT TOS [PEER PEERPORT], and full_port.py ask HOST PORT TOS PEER PEERPORT hello|hear [reset].

The one fills its port by messages of its own node, and answers what comes to the next one; given a peer it says hello to
it. The other waits for a line on its input, and says hello to that next port, or hears one. That makes a connection of a
type of service of its own, and a send to the port that was full before has to be held back; with "reset" also on the
connection that comes after it. A line on the input of the first makes room.
"""

import socket
import sys
import threading

from cases import eventually, need, outcome
from cong_monitor import fill
from rds import Sock
from reset import reset, resets

SIZE = 1000


def answer(door):
    while True:
        _, source = door.recv(SIZE)
        door.send(b"answer", source)


def full(host, port, tos, *peer):
    with Sock((host, port), 60) as r, Sock((host, port + 1)) as door, Sock((host, 0), 60) as near:
        r.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        sent = fill(near, (host, port))
        door.set_tos(tos)
        threading.Thread(target=answer, args=(door,), daemon=True).start()
        print("full", flush=True)
        if peer:
            door.send(b"hello", (peer[0], int(peer[1])))
        sys.stdin.readline()
        for _ in range(sent):
            r.recv(SIZE)
        print(r.recv(SIZE)[0].decode(), flush=True)
        sys.stdin.readline()


def ask(host, port, tos, peer, peer_port, first, again=None):
    to, door = (peer, int(peer_port)), (peer, int(peer_port) + 1)

    def exchange():
        s.send(b"hello", door)
        s.recv(SIZE)

    def check(when):
        told = outcome(s.send, bytes(SIZE), to, socket.MSG_DONTWAIT)
        need(told == "ENOBUFS", f"a send to a port that is full, {when}: {told}")

    with Sock((host, port), 60) as s:
        s.set_tos(tos)
        print("ready", flush=True)
        sys.stdin.readline()
        if first == "hello":
            exchange()
        else:
            s.recv(SIZE)
        check("on a new connection")
        if again:
            before = resets()
            reset(host, peer, tos)
            eventually("the end of the connection", lambda: resets() > before)
            exchange()
            check("on a connection that was lost")
        print("held back", flush=True)
        s.send(b"the last", to)
        print("sent", flush=True)
        # Closing would take back what is not delivered yet.
        sys.stdin.readline()


def main():
    role, host, port, tos, *rest = sys.argv[1:]
    (full if role == "full" else ask)(host, int(port), int(tos), *rest)


main()
