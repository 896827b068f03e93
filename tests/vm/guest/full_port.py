# SPDX-License-Identifier: GPL-2.0
"""full_port.py full HOST PORT TOS [PEER PEERPORT], and full_port.py ask HOST PORT TOS PEER PEERPORT
hello|hear [reset].

full: fills its port with messages of its own node, and answers messages to the next port. If there
is a peer, it sends hello to it. A line on its input makes room.

ask: waits for a line on its input. Then it sends hello to that next port, or receives one. That
makes a connection with its own type of service. A send to the full port must be held back, and with
"reset" also on the connection that follows.
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
        # Closing the socket would cancel messages that are not delivered yet.
        sys.stdin.readline()


def main():
    role, host, port, tos, *rest = sys.argv[1:]
    (full if role == "full" else ask)(host, int(port), int(tos), *rest)


main()
