# SPDX-License-Identifier: GPL-2.0
"""silent.py LIBRARY ATTACK SECONDS: the rogue peer of rogue.py does nothing wrong, but becomes
silent.

Its queue pair lives. SECONDS is the value of net.rds.keepalive_secs on the node.
"""

import contextlib
import errno
import socket
import sys
import time

import attacks
import frames
from frames import ACK_REQUIRED, RETRANSMITTED
from peer import PATIENCE, PORTS, RECEIVES, End, Peer, PeerError, next_request, raw_address
from rds import Sock, times_up
from rogue import MINE, NODE, is_iwarp, main, need, rise

PORT = 7000
ASKED, SILENT, STALLED = "conn_keepalive_sent", "conn_keepalive_timeout", "conn_stalled"
# Among this many frames at least one send completion reports that the peer's device has taken them.
REPORTED = 20


def is_question(header):
    return (header.sport, header.dport) == (0, 0) and header.seq > 0


def read_question(p):
    """Reads until the node sends a keepalive. Returns the earlier messages, and the keepalive."""
    found = []
    while (frame := p.frame()) is not None:
        for header, payload in p.note(frame):
            if is_question(header):
                return found, (header, payload)
            if header.dport == PORT:
                found.append(header)
    raise PeerError("the node did not ask")


@contextlib.contextmanager
def sender(home):
    """Yields a function that sends with a socket of the node."""
    with home.at_home():
        sock = Sock((NODE, 0))
    with sock:
        yield lambda: send(home, sock)


def send(home, sock):
    """Sends one more message, if there is room."""
    with home.at_home():
        try:
            sock.send(attacks.TEXT, (MINE[0], PORT), socket.MSG_DONTWAIT)
        except OSError as e:
            need(e.errno == errno.EAGAIN, f"sending failed with {errno.errorcode[e.errno]}")


def opened(home, p, receives=RECEIVES, **fields):
    """Connects, and waits until the node is up, too.

    On iWARP the active side has to send first, and a slow node notices this only when more arrives.
    """
    p.open(receives, **{"fragment": 0, **fields})
    p.send(frames.header())
    deadline = time.monotonic() + PATIENCE
    while not any(x.peer == p.source and "connected" in x.state.split() for x in home.connections()):
        need(time.monotonic() < deadline, "the node does not notice that it is connected")
        if not p.pump(0.1):
            p.idle()


def answered(home):
    """The peer acknowledges keepalives, and only these."""
    with sender(home) as send_one, Peer(MINE[0], NODE) as p:
        opened(home, p)
        before = home.counters()
        for _ in range(3):
            send_one()
            messages, (header, payload) = read_question(p)
            need(len(messages) == 1, f"{messages} came before the question")
            need((header.flags, payload) == (ACK_REQUIRED, b"\0"), f"asked {header}, {payload}")
            p.acknowledge()
        # The node waits for nothing more.
        need(p.ping(), "the connection is lost")
        p.acknowledge()
        p.drain()
        rose = rise(before, home.counters(), (ASKED, SILENT))
        need(rose.get(ASKED, 0) >= 3 and SILENT not in rose, f"counted {rose}")
        p.disconnect()


def given_up(home, more=0, was_sent=True, **fields):
    """The node sends a message and declares the peer dead.

    With `more`, it sends some messages after its keepalive, and then one more each `more` seconds.
    Unacknowledged messages arrive on the next connection, once and in order.
    """
    with sender(home) as send_one, End() as listener:
        listener.call("listen", raw_address(MINE[0], PORTS[False]))
        with Peer(MINE[0], NODE) as p:
            opened(home, p, **fields)
            before, ups, taken = home.counters(), times_up(NODE, MINE[0]), 0
            send_one()
            if more:
                read_question(p)
                for _ in range(REPORTED):
                    send_one()
            sent_at = time.monotonic()

            def over(now):
                nonlocal taken, sent_at
                if more and time.monotonic() > sent_at + more:
                    sent_at = time.monotonic()
                    send_one()
                while more and (frame := p.frame(0)) is not None:
                    taken += sum(header.dport == PORT for header, _ in p.note(frame))
                return now[SILENT] > before[SILENT]

            rose = rise(before, home.wait_for("the end", over), (ASKED, SILENT))
            # On a slow machine other peers get keepalives, too.
            need(rose.get(ASKED, 0) >= 1, f"counted {rose}")
            need(not more or taken >= REPORTED, f"its device has taken {taken} after the question")
            p.await_end()
        again(listener, send_one, was_sent)
        # The counters include other connections of the node.
        need(sum(times_up(NODE, MINE[0])) == sum(ups) + 1, f"it came up {ups} and {times_up(NODE, MINE[0])} times")


def again(listener, send_one, was_sent):
    """Accepts the next connection and checks its messages."""
    p, asked = next_request(listener, MINE[0], NODE)
    with p:
        p.qp()
        p.accept(asked)
        found = [message_of_node(p)]
        need(bool(found[0].flags & RETRANSMITTED) == was_sent, f"{found[0]}, and it was sent: {was_sent}")
        send_one()
        # The first message that was never sent before is the last.
        while was_sent and found[-1].flags & RETRANSMITTED:
            found.append(message_of_node(p))
        numbers = [x.seq for x in found]
        need(numbers == sorted(set(numbers)), f"messages {numbers} came")
        p.settle()


def message_of_node(p):
    while (frame := p.frame()) is not None:
        for header, _ in p.note(frame):
            need(not is_question(header) or not header.flags & RETRANSMITTED, "a question was sent again")
            if header.dport == PORT:
                return header
    raise PeerError("the message did not come")


def hangs(home, seconds):
    yield "answers when it is asked", lambda: answered(home)
    yield "takes a message and says nothing", lambda: given_up(home)
    # Send completions are no sign of life. One send in 16 has one, or on iWARP each.
    yield "takes more and more", lambda: given_up(home, more=seconds / (16 if is_iwarp() else 40))
    # On iWARP a frame that finds no receive ends the connection, and a node without credit sends
    # nothing.
    none = {"credit": 1, "was_sent": False} if is_iwarp() else {"receives": 0}
    yield "has no receives", lambda: given_up(home, **none)


def amid_a_message(home, _seconds):
    """A message that never becomes complete keeps memory."""
    def part():
        with Peer(MINE[0], NODE) as p:
            opened(home, p)
            before = home.counters()
            p.send(*frames.fragments(1, bytes(64 << 10), dport=attacks.NOBODY)[:-1])
            read_question(p)
            home.wait_for("the end", lambda now: now[SILENT] > before[SILENT])
            p.await_end()

    yield "the rest does not come", part


def lives(home, _seconds):
    """A header now and then is enough, though it acknowledges nothing.

    A silent peer shows when its time is over. One that lives and takes nothing counts, too.
    """
    def beside():
        with contextlib.ExitStack() as stack:
            live, silent = ours = [stack.enter_context(Peer(source, NODE)) for source in MINE[:2]]
            for p in ours:
                opened(home, p)
            with home.at_home():
                sock = stack.enter_context(Sock((NODE, 0)))
                for p in ours:
                    sock.send(attacks.TEXT, (p.source, PORT))
            before = home.counters()

            def over(now):
                live.send(frames.header())
                return now[SILENT] > before[SILENT]

            def takes_nothing(now):
                live.send(frames.header())
                return now[STALLED] > before[STALLED]

            home.wait_for("the end of the silent one", over)
            stalled = home.wait_for("a peer without progress", takes_nothing)
            need(stalled[STALLED] == before[STALLED] + 1, "another peer takes nothing")
            need(live.ping(), "the one that lives was given up")
            with home.at_home():
                sock.cancel(silent.source, PORT)
            live.settle()
            silent.await_end()

    yield "headers now and then", beside


if __name__ == "__main__":
    sys.exit(main({"hangs": hangs, "amid-a-message": amid_a_message, "lives": lives}))
