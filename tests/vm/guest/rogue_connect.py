# SPDX-License-Identifier: GPL-2.0
"""rogue_connect.py LIBRARY ATTACK: as rogue.py, but the peer keeps to the rules: it starts anew."""

import contextlib
import socket
import sys

import attacks
import frames
from frames import ACK_REQUIRED, RETRANSMITTED
from peer import Peer
from rds import Sock
from rogue import MINE, NODE, main, need, rise

OLD = "recv_drop_old_seq"
AGAIN = ACK_REQUIRED | RETRANSMITTED


class Witness(Peer):
    """A peer that remembers what the node has acknowledged."""

    def __init__(self, *ends):
        super().__init__(*ends)
        self.acks = [0]

    def note(self, frame):
        found = super().note(frame)
        self.acks += [header.ack for header, _ in found]
        return found


def text(life, number):
    """The message of a number, in one frame or several."""
    return f"{life} {number} ".encode().ljust((20, 5000, 20000)[number % 3], b"x")


def restarts(home, _number):
    """A peer counts from 1 again after it has started anew, and goes on when only the connection is new. Either
    way it may have to send again what it has sent before."""
    with home.at_home():
        reader = Sock((NODE, attacks.READER))

    def arrived():
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                found.append(reader.recv(flags=socket.MSG_DONTWAIT)[0])
        return found

    def session(life, generation, numbers, again, known):
        """A connection of a peer in one of its lives, with messages of which it has sent `again` before, and of
        which the node has the first `known`. Two pings come after them, and count."""
        with Witness(MINE[2], NODE) as p:
            p.open()
            before = home.counters()
            p.send(*frames.congestion(ext=frames.introduction(generation) if generation else b""))
            for number in numbers:
                p.send(*frames.fragments(number, text(life, number), dport=attacks.READER,
                                         flags=AGAIN if number in again else 0))
            p.seq = numbers[-1]
            need(p.ping(), "the connection is lost")
            found = arrived()
            need(found == [text(life, x) for x in numbers[known:]],
                 f"{[x.split()[:2] for x in found]} arrived of {numbers}, and {known} of them are known")
            rose = rise(before, home.counters(), (OLD,))
            need(rose.get(OLD, 0) == known, f"counted {rose}")
            # What it has of another life is not for this one.
            need(numbers[-1] <= max(p.acks) <= p.seq, f"acknowledged {p.acks} of {numbers}")
            p.settle()

    def numbers(first, last):
        return range(first, last + 1)

    none = ()
    for what, *how in (
            ("the first connection", 1, 1, numbers(1, 9), none, 0),
            ("connected anew", 1, 1, numbers(4, 15), numbers(4, 15), 8),
            ("started anew, all of it sent before", 2, 2, numbers(1, 9), numbers(1, 9), 0),
            ("connected anew after that", 2, 2, numbers(7, 13), numbers(7, 13), 5),
            ("started anew, some of it sent before", 3, 3, numbers(1, 6), numbers(1, 4), 0),
            ("connected anew, nothing new", 3, 3, numbers(2, 8), numbers(2, 8), 7),
            # Like C RDS, whose messages are told from those of its former life if they are sent once only.
            ("started anew without a word", 4, None, numbers(1, 4), none, 0),
            ("connected anew without a word", 4, None, numbers(2, 8), numbers(2, 8), 5)):
        yield what, lambda: session(*how)
    reader.sock.close()


if __name__ == "__main__":
    sys.exit(main({"restarts": restarts}))
