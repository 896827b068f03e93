# SPDX-License-Identifier: GPL-2.0
"""A reader that waits for its memory blocks other readers only up to their timeouts, and nothing is
lost."""

import ctypes
import select
import signal
import socket
import struct
import threading

from cases import CALL_TIMEOUT, LOOP, WAITS_IN, eventually, need, outcome
from rds import Sock, libc
from uffd import Uffd

READER, SENDER = (LOOP, 4001), (LOOP, 4002)


def limit(r, seconds):
    r.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@qq", int(seconds), int(seconds % 1 * 1e6)))


def interrupted(*_):
    raise InterruptedError


def main():
    with Sock(READER) as r, Sock(SENDER, CALL_TIMEOUT) as s:
        for data in (b"first", b"second"):
            s.send(data, READER)
        memory, count = Uffd(), []
        stuck = threading.Thread(daemon=True, target=lambda: count.append(
            libc.recv(r.fileno(), ctypes.c_void_p(memory.at), 100, 0)))
        stuck.start()
        memory.wait()

        need(not select.select([r], [], [], 0)[0], "said to be readable")
        for flags in (0, socket.MSG_PEEK):
            need((seen := outcome(r.recv, 100, flags | socket.MSG_DONTWAIT)) == "EAGAIN", f"at once: {seen}")
        limit(r, 0.2)
        need((seen := outcome(r.recv)) == "ETIMEDOUT", f"after a time: {seen}")
        limit(r, 0)
        signal.signal(signal.SIGALRM, interrupted)
        try:
            # The signal may come before the call waits.
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            need(False, f"amid a signal: {r.recv()}")
        except InterruptedError:
            pass

        found = []
        waits = threading.Thread(daemon=True, target=lambda: found.append(r.recv()[0]))
        waits.start()
        state = f"/proc/self/task/{waits.native_id}/wchan"
        eventually("a reader that waits", lambda: open(state, encoding="ascii").read() == WAITS_IN)
        memory.fill()
        for thread in (stuck, waits):
            thread.join(60)
        need((count, found) == ([5], [b"second"]), f"in the end: {count}, {found}")
        need(memory.pages[:5] == b"first", "the first message")
        need(not select.select([r], [], [], 0)[0], "another message")
    print("all")


main()
