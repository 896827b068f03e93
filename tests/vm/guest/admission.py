# SPDX-License-Identifier: GPL-2.0
"""Sends 1 MiB of memory that has not been touched yet, in several cases.

Prints one JSON line for each case: the outcome of the call, whether it touched the memory, and the
number of bytes counted as copied. The expected answers are in tests/vm/test_admission.py. Addresses
are those of cases.py.
"""

import contextlib
import ctypes
import select
import socket
import struct
import threading

from cases import IB, LOOP, LOOP6, case, main, outcome
from rds import Sock, call, counters, sockaddr
from uffd import Uffd

SIZE = 1 << 20
SO_SNDBUFFORCE = 32
NOBODY = ("10.9.0.77", 4000)


def attempt(s, to, flags=0):
    memory, touched = Uffd(SIZE), []

    def give():
        memory.wait()
        touched.append(True)
        memory.fill()

    # If the memory is not touched, the thread stays until the program ends.
    threading.Thread(target=give, daemon=True).start()
    raw = sockaddr(*to) if to else None
    before = counters()["copy_from_user"]
    told = outcome(call, "sendto", s.fileno(), ctypes.c_void_p(memory.at), SIZE, flags, raw, len(raw or b""))
    return [told, bool(touched), counters()["copy_from_user"] - before]


@contextlib.contextmanager
def sender(*address):
    """Yields a sender with room for more than one message of SIZE."""
    with Sock(address or None) as s:
        s.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 2 * SIZE)
        yield s


def waits(s, seconds=0.1):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("=qq", 0, int(seconds * 1e6)))


@case
def admitted():
    with sender(LOOP, 0) as near, sender(IB[0], 0) as far:
        return [attempt(near, (LOOP, 4000)), attempt(far, NOBODY)]


@case
def wrong():
    """Sends that the arguments or the state of the socket forbid."""
    with sender() as unbound, sender(LOOP, 0) as s, Sock((LOOP, 0)) as small:
        return {"not bound": attempt(unbound, (LOOP, 4000)), "no destination": attempt(s, None),
                "no address": attempt(s, ("0.0.0.0", 4000)), "another family": attempt(s, (LOOP6, 4000)),
                "flag": attempt(s, (LOOP, 4000), socket.MSG_OOB), "too long": attempt(small, (LOOP, 4000))}


@case
def no_room():
    """Sends while the send buffer is full."""
    with sender(IB[0], 0) as s:
        while outcome(s.send, bytes(20000), NOBODY, socket.MSG_DONTWAIT) == 20000:
            pass
        told = [attempt(s, NOBODY, socket.MSG_DONTWAIT)]
        waits(s)
        return [*told, attempt(s, NOBODY)]


def full(here, there):
    """Sends while the receiver is full."""
    to = (there, 4001)
    with Sock() as r, sender(here, 4002) as s:
        r.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        r.bind(*to)
        while (why := outcome(s.send, bytes(20000), to, socket.MSG_DONTWAIT)) != "ENOBUFS":
            if why == "EAGAIN":
                select.select([], [s], [])
        told = [attempt(s, to, socket.MSG_DONTWAIT)]
        waits(s)
        return [*told, attempt(s, to)]


@case
def full_receiver_of_this_node():
    return full(LOOP, LOOP)


@case
def full_receiver():
    return full(*IB)


if __name__ == "__main__":
    main()
