# SPDX-License-Identifier: GPL-2.0
"""Cases for abi.py: options on messages that were sent, and on what is told of congestion."""

import select
import socket
import struct
import threading

from cases import IB, IB6, LOOP, LOOP6, case, each, outcome
from rds import RDS_CANCEL_SENT_TO, SOL_RDS, BadMemory, Sock, sockaddr

RDS_CONG_MONITOR = 6


@case
def cancel_errors():
    def cancel(raw, bound=True):
        with Sock((LOOP, 0) if bound else None) as s:
            s.set_raw(RDS_CANCEL_SENT_TO, raw)

    there, there6 = sockaddr(LOOP, 4000), sockaddr(LOOP6, 4000)
    return each(cancel, {
        "unbound": (there, False),
        "no bytes": (None,),
        "short": (there[:15],),
        "short v6": (there6[:27],),
        "family": (struct.pack("=H14x", socket.AF_UNIX),),
        "bad memory": (BadMemory(16),),
        "nothing there": (there,),
        "nothing there v6": (there6,),
        "any": (sockaddr("0.0.0.0", 0),),
        "storage": (there.ljust(128, b"\0"),),
        "storage v6": (there6.ljust(128, b"\0"),),
    })


def fill(s, to):
    """Sends to where nobody is until there is no room."""
    while True:
        try:
            s.send(bytes(20000), to, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return


def has_room(s):
    # Not select(), which takes news of congestion for room.
    p = select.poll()
    p.register(s, select.POLLOUT)
    return bool(p.poll(0))


@case
def cancel_frees_the_send_buffer():
    out = {}
    for host, nobody, others in ((IB[0], "10.9.0.77", ("10.9.0.78",)),
                                 (IB6[0], "fd09::77", ("fd09::78",))):
        with Sock((host, 0)) as s:
            fill(s, (nobody, 4000))
            states = [has_room(s)]
            s.cancel(nobody, 4001)
            for other in others:
                s.cancel(other, 4000)
            states.append(has_room(s))
            s.cancel(nobody, 4000)
            out[host] = states + [has_room(s)]
    return out


@case
def cancel_leaves_other_sockets_alone():
    with Sock((IB[0], 0)) as s, Sock((IB[0], 0)) as other:
        for x in (s, other):
            fill(x, ("10.9.0.77", 4000))
        s.cancel("10.9.0.77", 4000)
        return [has_room(s), has_room(other)]


@case
def cancel_wakes_a_writer():
    with Sock((IB[0], 0)) as s:
        fill(s, ("10.9.0.77", 4000))
        sent = []
        thread = threading.Thread(target=lambda: sent.append(s.send(b"abc", ("10.9.0.77", 4000))))
        thread.start()
        thread.join(0.2)
        waited = thread.is_alive()
        s.cancel("10.9.0.77", 4000)
        thread.join(30)
        return [waited, sent]


@case
def cancel_with_a_longer_address():
    """A sockaddr_storage with an IPv4 address."""
    with Sock((IB[0], 0)) as s:
        fill(s, ("10.9.0.77", 4000))
        s.set_raw(RDS_CANCEL_SENT_TO, sockaddr("10.9.0.77", 4000).ljust(128, b"\0"))
        return has_room(s)


@case
def monitor_errors():
    def monitor(raw):
        with Sock() as s:
            s.set_raw(RDS_CONG_MONITOR, raw)

    out = each(monitor, {"no bytes": (None,), "short": (b"abc",), "bad memory": (BadMemory(4),),
                         "on": (struct.pack("=i", 1),), "off": (bytes(4),), "long": (bytes(8),)})
    with Sock() as s:
        out["get"] = outcome(s.sock.getsockopt, SOL_RDS, RDS_CONG_MONITOR)
    return out
