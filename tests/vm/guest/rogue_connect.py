# SPDX-License-Identifier: GPL-2.0
"""rogue_connect.py LIBRARY ATTACK: the rogue peer of rogue.py, but it keeps to the rules.

It restarts, requests a connection while the node does, or has forgotten the connection that it has.
"""

import contextlib
import random
import socket
import struct
import sys

import attacks
import frames
from frames import ACK_REQUIRED, RETRANSMITTED
from peer import ESTABLISHED, PORTS, REJECTED, End, Peer, PeerError, next_request, raw_address
from rds import Sock
from rogue import FAILED, MINE, NODE, main, need, rise

# Higher than the node's address.
HIGHER = "10.8.0.200"
PORT = 7000
OLD, RACED = "recv_drop_old_seq", "ib_connect_raced"
AGAIN = ACK_REQUIRED | RETRANSMITTED
# IB_CM_REJ_STALE_CONN
STALE = 10


class Witness(Peer):
    """A peer that remembers what the node has acknowledged."""

    def __init__(self, *ends):
        super().__init__(*ends)
        self.acks = [0]

    def note(self, frame):
        found = super().note(frame)
        self.acks += [header.ack for header, _ in found]
        return found


class Missed(PeerError):
    """Error: this machine was too slow for the scenario."""


class Recorder(Peer):
    """A peer that remembers the messages of the node's programs."""

    def __init__(self, *ends, **more):
        super().__init__(*ends, **more)
        self.found = []

    def note(self, frame):
        found = super().note(frame)
        self.found += [(payload, header.flags & RETRANSMITTED) for header, payload in found if header.dport == PORT]
        return found


def text(life, number):
    """Returns the message of a number, in one frame or several."""
    return f"{life} {number} ".encode().ljust((20, 5000, 20000)[number % 3], b"x")


def arrived(reader):
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            found.append(reader.recv(flags=socket.MSG_DONTWAIT)[0])
    return found


def session(home, reader, life, generation, numbers, again, known, unheard=0):
    """Makes a connection of a peer in one of its lives, and sends messages.

    The peer has sent `again` before, and the node has the first `known` of them. Two pings follow,
    which count as messages. Then come `unheard` more messages; the peer does not learn that they
    have arrived. Returns the number of the node's last message.
    """
    with Witness(MINE[2], NODE) as p:
        p.open()
        before = home.counters()
        p.send(*frames.congestion(ext=frames.introduction(generation) if generation else b""))
        for number in numbers:
            p.send(*frames.fragments(number, text(life, number), dport=attacks.READER,
                                     flags=AGAIN if number in again else 0))
        p.seq = numbers[-1]
        need(p.ping(), "the connection is lost")
        found = arrived(reader)
        need(found == [text(life, x) for x in numbers[known:]],
             f"{[x.split()[:2] for x in found]} arrived of {numbers}, and {known} of them are known")
        rose = rise(before, home.counters(), (OLD,))
        need(rose.get(OLD, 0) == known, f"counted {rose}")
        # Numbers of another life do not apply to this one.
        need(numbers[-1] <= max(p.acks) <= p.seq, f"acknowledged {p.acks} of {numbers}")
        need(p.ping() and p.acknowledge(), "the connection is lost")
        for _ in range(unheard):
            number = p.number()
            p.send(*frames.fragments(number, text(life, number), dport=attacks.READER))
            need(reader.recv()[0] == text(life, number), f"another message than {number} arrived")
        p.drain()
        p.disconnect()
        return p.seen


def numbers(first, last):
    return range(first, last + 1)


def unnoticed(home, reader):
    """A peer like C RDS restarts, and the first messages of its new life look like messages that
    are sent again.

    It has sent all of them on one connection. The node has sent it nothing that shows which
    acknowledgements it has read. They are dropped, as Documentation/protocol.md states. The
    messages after them arrive.
    """
    for life, count, flags, wanted in ((6, 3, ACK_REQUIRED, numbers(1, 3)), (7, 5, AGAIN, numbers(4, 5))):
        with Witness(MINE[2], NODE) as p:
            p.open()
            p.send(*frames.congestion())
            for number in numbers(1, count):
                p.send(*frames.fragments(number, text(life, number), dport=attacks.READER, flags=flags))
            while max(p.acks) < count:
                frame = p.frame()
                need(frame is not None, f"acknowledged {p.acks} of {count}")
                p.note(frame)
            found = arrived(reader)
            need(found == [text(life, x) for x in wanted], f"{[x.split()[:2] for x in found]} arrived")
            p.disconnect()


def forgotten(home, _number):
    """The node forgets a connection that has been idle for some seconds.

    It does not know whether the peer has its last acknowledgement, and does not accept again what
    is sent again. Its own numbers continue, as C RDS requires.
    """
    with home.at_home():
        reader = Sock((NODE, attacks.READER))

    def forgets(life, generation, *sessions):
        last = before = 0
        for first, count, known, unheard in sessions:
            if last:
                home.wait_for("room", lambda seen: seen["conn_gc"] > before)
            again = numbers(first, first + known - 1)
            before = home.counters()["conn_gc"]
            now = session(home, reader, life, generation, numbers(first, count), again, known, unheard)
            need(now > last, f"the node's last message was {last}, and is {now} on the next connection")
            last = now

    yield "a peer with a generation", lambda: forgets(1, 1, (1, 6, 0, 0), (4, 9, 5, 0), (10, 16, 2, 0))
    # It counts from 1, and nothing is sent again.
    yield "a peer like C RDS", lambda: forgets(2, None, (1, 6, 0, 2), (9, 14, 2, 1), (17, 20, 1, 0))
    reader.sock.close()


def restarts(home, _number):
    """A peer counts from 1 again after a restart, and continues when only the connection is new.

    In both cases it may have to send messages again.
    """
    with home.at_home():
        reader = Sock((NODE, attacks.READER))

    for what, *how in (
            ("the first connection", 1, 1, numbers(1, 9), (), 0),
            ("connected anew", 1, 1, numbers(4, 15), numbers(4, 15), 8),
            ("started anew, all of it sent before", 2, 2, numbers(1, 9), numbers(1, 9), 0),
            ("connected anew after that", 2, 2, numbers(7, 13), numbers(7, 13), 5),
            ("started anew, some of it sent before", 3, 3, numbers(1, 6), numbers(1, 4), 0),
            ("connected anew, nothing new", 3, 3, numbers(2, 8), numbers(2, 8), 7),
            # Like C RDS, which does not announce its restart.
            ("started anew without a word", 4, None, numbers(1, 4), (), 0, 3),
            ("connected anew without a word", 4, None, numbers(7, 12), numbers(7, 12), 3, 1),
            # It would not send again what it knows to have arrived.
            ("started anew without a word, all of it sent before", 5, None, numbers(1, 9), numbers(1, 9), 0, 2),
            ("connected anew after that", 5, None, numbers(12, 15), numbers(12, 15), 2)):
        yield what, lambda: session(home, reader, *how)
    yield "started anew without a word or a sign", lambda: unnoticed(home, reader)
    reader.sock.close()


def message_of_node(p):
    """Returns the header of the message that the node has for the peer. The message must arrive."""
    return p.message(PORT, attacks.TEXT)


def accepted(p):
    event, *_ = p.connect(p.private(fragment=0))
    need(event == ESTABLISHED, f"a request was answered with event {event}")


def rejected(p, late=False):
    """Requires that a request is rejected.

    late: the request comes after the peer's answer, and is accepted once the connection is proven.
    """
    event, _, data = p.connect(p.private(fragment=0))
    if event == ESTABLISHED and late:
        p.disconnect()
        raise Missed("the connection was proven")
    need(event == REJECTED and data[:4] == struct.pack("=i", 1),
         f"a request was answered with event {event}, {data.hex()}")


def crossing(home, source, wanted, play, count):
    """The node requests a connection, as it has a message for the peer.

    Nothing has been answered when play() is called with its request and `count` peers that are
    ready to send requests. `wanted` are the counters that must rise.
    """
    for _ in range(5):
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(End())
            listener.call("listen", raw_address(source, PORTS[False]))
            ours = [stack.enter_context(Peer(source, NODE)) for _ in range(count)]
            for p in ours:
                p.resolve(source, NODE)
                p.qp()
            with home.at_home():
                sock = stack.enter_context(Sock((NODE, 0)))
                sock.send(attacks.TEXT, (source, PORT))
            before = home.counters()
            theirs, asked = next_request(listener, source, NODE)
            stack.enter_context(theirs)
            failure = None
            try:
                play(theirs, asked, *ours)
            except PeerError as e:
                failure = e
            rose = rise(before, home.counters(), (FAILED, RACED))
            if FAILED not in rose and not isinstance(failure, Missed):
                if failure:
                    raise failure
                return need(rose == wanted, f"counted {rose}")
        # The node ended its attempt before the requests met, or the scenario came too late.
    raise failure or PeerError("no requests have crossed")


def crossings(home, _number):
    def higher(theirs, asked, p):
        """The node abandons its own request."""
        accepted(p)
        message_of_node(p)
        p.settle()

    def lower(theirs, asked, p):
        """The node rejects the peer's request."""
        rejected(p)
        theirs.qp()
        theirs.accept(asked)
        message_of_node(theirs)
        theirs.settle()

    def lower_unheard(theirs, asked, p, again):
        """The node rejects the peer's request, but not twice: its own may have been lost."""
        rejected(p)
        accepted(again)
        message_of_node(again)
        again.settle()

    def late(theirs, asked, p, again):
        """The node's CM handles the peer's answer before its request, which is no reason to end the
        connection.

        Another request is.
        """
        theirs.qp()
        theirs.accept(asked)
        rejected(p, late=True)
        need(not message_of_node(theirs).flags & RETRANSMITTED, "it was sent before")
        accepted(again)
        need(message_of_node(again).flags & RETRANSMITTED, "it was not sent before")
        again.settle()

    for source, play, wanted, count in ((MINE[6], higher, {}, 1), (HIGHER, lower, {RACED: 1}, 1),
                                        (HIGHER, lower_unheard, {RACED: 1}, 2), (MINE[6], late, {RACED: 1}, 2),
                                        (HIGHER, late, {RACED: 1}, 2)):
        yield f"{play.__name__} {source}", lambda: crossing(home, source, wanted, play, count)


def forgets(home, _number):
    """A peer that has forgotten its connection uses the number of its queue pair for another one.
    """
    source = MINE[6]

    def stale():
        """The CM of the node rejects that, and ends the first connection.

        What was not acknowledged is sent again.
        """
        with home.at_home():
            sock = Sock((NODE, 0))
        with sock:
            with Peer(source, NODE) as p:
                p.open(fragment=0)
                with home.at_home():
                    sock.send(attacks.TEXT, (source, PORT))
                need(not message_of_node(p).flags & RETRANSMITTED, "it was not sent before")
                before = home.counters()
                with End() as other:
                    other.resolve(source, NODE)
                    other.call("pose", p.handle)
                    answer = other.connect(p.private(fragment=0))
                    need(answer[:2] == (REJECTED, STALE), f"answered with {answer}")
                p.await_end()
                home.wait_for("a lost connection", lambda now: now["conn_reset"] > before["conn_reset"])
            # There is no listener: the CM rejects the node's requests.
            home.wait_for("an attempt of the node", lambda now: now[FAILED] > before[FAILED])
            with Peer(source, NODE) as p:
                p.open(fragment=0)
                need(message_of_node(p).flags & RETRANSMITTED, "it was sent before")
                p.settle()

    yield "the number of a live queue pair", stale


def timewait(home, _number):
    """A peer disconnects, and uses the queue pair for the next connection, with the same number.

    Either side requests that connection. The CM of Linux 7.2 rejects such a request as stale until
    it has answered the disconnect. Timewait begins with the answer, and all that it keeps is a
    number of the node's CM. So the peer's queue pair is free at once, and the node has a new one
    each time.
    """
    source, texts = MINE[3], [text(0, x) for x in range(1, 10)]

    def first(p, reader, sock, generation):
        """Leaves a message in each direction that its sender does not know to be acknowledged."""
        p.open(fragment=0)
        p.send(*frames.congestion(ext=frames.introduction(generation)))
        for number in numbers(1, 5):
            p.send(*frames.fragments(number, texts[number - 1], dport=attacks.READER))
        with home.at_home():
            sock.send(attacks.TEXT, (source, PORT))
        need(not message_of_node(p).flags & RETRANSMITTED, "it was sent before")
        for number in numbers(1, 5):
            need(reader.recv()[0] == texts[number - 1], f"another message than {number} arrived")

    def then(p, reader, generation):
        before = home.counters()
        p.send(*frames.congestion(ext=frames.introduction(generation)))
        for number in numbers(4, len(texts)):
            p.send(*frames.fragments(number, texts[number - 1], dport=attacks.READER, flags=AGAIN if number < 6 else 0))
        p.seq = len(texts)
        need(p.ping(), "the connection is lost")
        found = arrived(reader)
        need(found == texts[5:], f"{[x.split()[:2] for x in found]} arrived")
        rose = rise(before, home.counters(), (OLD,))
        need(rose == {OLD: 2}, f"counted {rose}")
        p.settle()
        need(p.found == [(attacks.TEXT, RETRANSMITTED)], f"{p.found} came")

    def over(p):
        """Waits until the node's CM has answered the disconnect."""
        while not p.gone:
            need(p.event() is not None, "the disconnect is not answered")

    def peer_asks(stack, p, at_once):
        if not at_once:
            over(p)
        last = p
        while True:
            again = stack.enter_context(Recorder(source, NODE))
            again.resolve(source, NODE)
            again.adopt(last)
            answer = again.connect(again.private(fragment=0))
            if answer[0] == ESTABLISHED:
                return again
            need(at_once and answer[:2] == (REJECTED, STALE), f"answered with {answer}")
            over(p)
            last, at_once = again, False

    def node_asks(stack, p, listener):
        over(p)
        again, asked = next_request(listener, source, NODE, Recorder)
        stack.enter_context(again)
        again.adopt(p)
        again.accept(asked)
        return again

    def play(listens, connect, *how):
        with contextlib.ExitStack() as stack:
            generation = random.randrange(1, 1 << 32)
            with home.at_home():
                reader, sock = (stack.enter_context(Sock((NODE, x))) for x in (attacks.READER, 0))
            if listens:
                listener = stack.enter_context(End())
                listener.call("listen", raw_address(source, PORTS[False]))
                how = (listener,)
            p = stack.enter_context(Peer(source, NODE))
            first(p, reader, sock, generation)
            p.disconnect()
            then(connect(stack, p, *how), reader, generation)

    yield "the peer asks", lambda: play(False, peer_asks, False)
    yield "the peer asks before the disconnect is answered", lambda: play(False, peer_asks, True)
    yield "the node asks", lambda: play(True, node_asks)


if __name__ == "__main__":
    sys.exit(main({"restarts": restarts, "forgotten": forgotten, "crossings": crossings, "forgets": forgets,
                   "timewait": timewait}))
