# SPDX-License-Identifier: GPL-2.0
"""rogue_credits.py LIBRARY credits: the rogue peer of rogue.py sends arbitrary credits.

They count on iWARP, and elsewhere if net.rds.ib.flow_control is 1.
"""

import contextlib
import sys

import attacks
import frames
import rdma
from peer import PATIENCE, PORTS, RECEIVES, End, Peer, next_request, raw_address
from rds import Sock, counters
from rogue import MINE, NODE, full_socket, is_iwarp, main, need, rise

# The largest credit of a header.
MOST = frames.header(credit=255)
FEW = 8
PORT = 7000
GIVEN_UP = "ib_tx_watchdog_timeout"
UPDATES, THROTTLED = "ib_rx_credit_updates", "ib_tx_throttle"


def opened(p, credit, receives=RECEIVES, **fields):
    """Connects. The node offers some credit if the peer does."""
    reply = p.open(receives, credit=credit, **fields)
    need((reply.credit > 0) == (credit > 0), f"asked with {credit}, answered {reply}")


def stays(credit, *said):
    with Peer(MINE[0], NODE) as p:
        opened(p, credit)
        p.send(*said)
        need(p.ping(), "the connection is lost")
        p.settle()


def ignored(home):
    """Credits on a connection without flow control have no effect."""
    before = home.counters()
    stays(0, *[MOST] * 20)
    rose = rise(before, home.counters(), (UPDATES, THROTTLED))
    # On iWARP other connections have flow control, and count.
    need(is_iwarp() or not rose, f"counted {rose}")


@contextlib.contextmanager
def sender(home):
    """Yields a socket of the node and a peer to which it sends.

    At the end nothing is left to send.
    """
    with home.at_home():
        sock = Sock((NODE, 0))
    with sock, Peer(MINE[6], NODE) as p:
        yield sock, p
        p.disconnect()
    home.wait_for("the end of the connection", lambda _: all(
        x.state == "down" for x in home.connections() if x.peer == MINE[6]))


def fill(home, sock, p):
    """Sends as much as there is room for, until the node has to wait.

    Returns how many bytes that is.
    """
    before = home.counters()
    # On iWARP the active side has to send first.
    p.send(*frames.congestion())
    with home.at_home():
        sent = full_socket(sock, p.source)

    def waits(now):
        p.idle()
        return now[THROTTLED] > before[THROTTLED]

    home.wait_for("a frame that waits", waits)
    return sent


def stingy(home):
    """The node may send one frame, and needs two for its map."""
    with sender(home) as (sock, p):
        opened(p, 1, fragment=0)
        fill(home, sock, p)


def holds_memory_up(home):
    """On soft-iWARP the release of memory waits until the connections of its device have sent
    something.

    The node cannot send. The wait must end nevertheless.
    """
    with sender(home) as (sock, p):
        opened(p, 1, fragment=0)
        fill(home, sock, p)
        # Nothing arrives from the peer for long. This must not end the connection.
        with home.at_home(), setting("keepalive_secs", 0), setting("ib/completion_timeout_secs", 8):
            before, given_up = rdma.pins(), counters()[GIVEN_UP]
            with Sock((NODE, 0)) as s:
                memory = rdma.Memory(s, 1)
                memory.free(memory.register(0, 4096), rdma.INVALIDATE)
                need(rdma.pins() > before, "the memory did not wait")
            rdma.unpinned(before)
            need(counters()[GIVEN_UP] == given_up + 1, "another reason has ended it")
        p.await_end()


@contextlib.contextmanager
def setting(name, value):
    """Changes a setting for a while.

    Each read and write is a separate call, from the beginning of the file.
    """
    path = f"/proc/sys/net/rds/{name}"

    def read():
        with open(path, encoding="ascii") as f:
            return f.read().strip()

    def write(text):
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        need(read() == text, f"{name} is {read()}")

    before = read()
    write(str(value))
    try:
        yield
    finally:
        write(before)


def no_more(home):
    """The peer receives and acknowledges everything, and gives no credit except the first: the node
    stops sending.

    After a credit for more receives than there are, everything arrives.
    """
    with sender(home) as (sock, p):
        opened(p, FEW, fragment=0)
        sent = fill(home, sock, p)
        got = count = 0

        def take(seconds):
            nonlocal got, count
            while got < sent and (frame := p.frame(seconds)) is not None:
                count += 1
                got += sum(len(payload) for header, payload in p.note(frame) if header.dport == 7001)

        still_taken(home, p)
        take(0)
        p.send(frames.header(ack=p.seen))
        still_taken(home, p)
        take(0)
        need(count <= FEW, f"{count} frames came")
        p.send(MOST)
        take(PATIENCE)
        need(got == sent, f"{got} bytes of {sent} came, in {count} frames")
        need(p.ping(), "the connection is lost")
        p.acknowledge()
        p.drain()


def still_taken(home, p, **fields):
    """The node accepts frames while it can send none."""
    before = home.counters()["recv_drop_no_sock"]
    p.send(*[frames.message(p.number(), dport=attacks.NOBODY, **fields) for _ in range(20)])
    home.wait_for("frames taken while nothing can be sent", lambda now: now["recv_drop_no_sock"] >= before + 20)


def not_meant(home):
    """The peer has none of the receives of its credit."""
    if is_iwarp():
        with Peer(MINE[0], NODE) as p:
            opened(p, 1000, 0)
            p.send(*frames.congestion())
            p.await_end()
    else:
        # The device makes the sender wait. The peer is served meanwhile.
        with sender(home) as (sock, p):
            opened(p, 1000, 0)
            with home.at_home():
                full_socket(sock, p.source)
            still_taken(home, p, credit=255)
    stays(RECEIVES)


def greedy():
    """Sends more frames than the node gave credit for.

    On iWARP the node need not keep the connection. Elsewhere the device makes the peer wait.
    """
    with Peer(MINE[0], NODE) as p:
        opened(p, RECEIVES)
        served = p.send(*[frames.message(p.number(), attacks.TEXT, dport=attacks.NOBODY)] * 2000) and p.ping()
        need(served or is_iwarp(), "the connection is lost")
        if served:
            p.settle()
    stays(RECEIVES)


def told(p):
    """Returns the credit in the node's answers to two pings.

    The first may be answered before the node has posted any receive.
    """
    count = 0
    for marker in (2000, 2001):
        p.send(frames.message(p.number(), sport=marker, ack=p.seen))
        answered = False
        while not answered:
            need((frame := p.frame()) is not None, "the connection is lost")
            found = p.note(frame)
            count += found[0][0].credit
            answered = any(header.dport == marker for header, _ in found)
    return count


def replied(home, credit, *said):
    """The node requests the connection, and the reply offers `credit`.

    The node's headers carry credit if the reply or a header of the peer does.
    """
    source = MINE[2]
    with End() as listener:
        listener.call("listen", raw_address(source, PORTS[False]))
        with home.at_home():
            sock = Sock((NODE, 0))
            sock.send(attacks.TEXT, (source, PORT))
        p, asked = next_request(listener, source, NODE)
        with sock, p:
            need(asked.credit > 0, f"asked {asked}")
            p.qp()
            p.accept(asked, credit=credit)
            p.message(PORT, attacks.TEXT)
            # On iWARP the active side has to send first.
            p.send(*said)
            # The node posts receives again when a quarter is used.
            p.send(*[frames.message(p.number(), dport=attacks.NOBODY) for _ in range(asked.credit // 3)])
            count = told(p)
            need((count > 0) == (credit > 0 or bool(said)), f"told of {count}")
            p.settle()


def credits(home, _number):
    yield "told without end", lambda: stays(RECEIVES, *[MOST] * 300)
    yield "all there are, and more", lambda: stays(2**32 - 1, *[MOST] * 3)
    yield "none", lambda: stays(0)
    yield "none, and told of some", lambda: ignored(home)
    yield "not meant", lambda: not_meant(home)
    yield "one", lambda: stingy(home)
    if is_iwarp():
        yield "holds memory up", lambda: holds_memory_up(home)
    yield "no more", lambda: no_more(home)
    yield "ignored", greedy
    yield "none in a reply", lambda: replied(home, 0)
    yield "none in a reply, and told of some", lambda: replied(home, 0, *[MOST] * 20)
    yield "all there are in a reply, and more", lambda: replied(home, 2**32 - 1, *[MOST] * 3)


if __name__ == "__main__":
    sys.exit(main({"credits": credits}))
