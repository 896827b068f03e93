# SPDX-License-Identifier: GPL-2.0
"""rejects.py LIBRARY ATTACK: the rogue peer of rogue.py writes the rejections of the InfiniBand CM
itself (roce.py).

They have any reason, come at any time, and contain rubbish. In between it is an ordinary peer, over
verbs.

The CM of Linux 7.2 finds the request of a rejection by the numbers of both ends. A rejection of a
REQ matches only if the REQ has not been answered. Reason 4, a timeout, is matched by the number of
the sender and the GUID in the additional information. So it matches what has been answered. The CM
ends all such attempts, and also a connection that is up.
"""

import contextlib
import random
import struct
import subprocess
import sys

import attacks
import frames
import roce
from frames import RETRANSMITTED
from peer import PATIENCE, PORTS, End, Peer, PeerError, next_request, raw_address
from roce import Wire
from rds import Sock
from rogue import FAILED, MINE, NODE, connected, main, need, rise
from rogue_connect import PORT, Recorder, message_of_node

WIRE = "rog1"
REASONS = [*range(65), 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF]
# IB_CM_REJ_TIMEOUT, _INVALID_SERVICE_ID, _STALE_CONN and _CONSUMER_DEFINED.
TIMEOUT, NOBODY, STALE, BY_PEER = 4, 8, 10, 28
SOME_REASONS = (TIMEOUT, NOBODY, STALE, BY_PEER, 0xFFFF)
OF_REQ, OF_REP = range(2)
REFUSED = ("conn_reject_bad_request", "conn_reject_forged")
LOST = (FAILED, "conn_reset", *REFUSED)

rng = random.Random(1)


def ip(lines):
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)


def some_number():
    """Returns a number for a queue pair that does not exist, or for a connection."""
    return rng.randrange(1 << 23, 1 << 24)


def reject(source, local, remote, rejected, reason, guid=None):
    """Sends a rejection to the node, with rubbish where there is room for it.

    `guid` is what a timeout names.
    """
    ari = rng.randbytes(72) if guid is None else guid + rng.randbytes(64)
    roce.send_cm(source, NODE, roce.rejection(local, remote, rejected, reason, rng.randrange(128), ari,
                                              rng.randbytes(148)))


@contextlib.contextmanager
def unserved(home, sources, hardware):
    """Yields while nothing answers packets of the node to these addresses.

    They are the rogue's, but have no route. `hardware` is their hardware address.
    """
    def neighbours(state):
        # Queries for the hardware address get no answer either.
        with home.at_home():
            ip(f"neigh replace {x} lladdr {hardware} nud {state} dev rog0" for x in sources)

    def routes(change, more=""):
        ip(f"route {change} local {x} dev {WIRE} table local proto kernel scope host {more}" for x in sources)

    neighbours("permanent")
    routes("del")
    try:
        yield
    finally:
        # As in the kernel's own routes, the source is the first address of the network.
        routes("add", f"src {MINE[0]}")
        neighbours("reachable")


class Refused:
    """The node's requests for a connection with one address, and the reasons of their rejections.

    The reasons are those of a list. When it is at its end the request is not rejected.
    """

    def __init__(self, source, reasons):
        self.source, self.reasons = source, list(reasons)
        self.answers = {}

    def proposed(self):
        """Returns what the node has to propose next: only the peer's own rejections count
        (protocol.md)."""
        refusals = list(self.answers.values()).count(BY_PEER)
        return (3, 1) if refusals % 3 == 2 else (4, 1)

    def answer(self, request):
        """Rejects the request, also if it is repeated, because the rejection may have been lost."""
        number = request.local
        if number not in self.answers:
            private = request.fields[roce.REQ_HEAD:]
            asked = frames.decode_private(private)
            need((asked.source, asked.target) == (NODE, self.source), f"the node asked {asked}")
            need((asked.major, asked.minor) == self.proposed(), f"it proposes {asked} after {self.answers}")
            self.answers[number] = self.reasons.pop(0) if self.reasons else None
        if (reason := self.answers[number]) is None:
            return
        reject(self.source, some_number(), number, OF_REQ, reason)
        if reason != TIMEOUT:
            # A rejection of a request that has ended.
            reject(self.source, some_number(), number, OF_REQ, BY_PEER)


def every(home, _number):
    """Rejects each request of the node until each reason was used. Then its messages arrive."""
    sources = MINE[:5]
    wanted = [struct.pack("=I", i) + attacks.TEXT for i in range(3)]

    def take(all_refused, wire, seconds):
        """Answers the next request. Returns true if any message has arrived."""
        found = wire.next(seconds)
        if found is not None and found.kind == roce.REQ:
            for refused in all_refused:
                if refused.source == found.target:
                    refused.answer(found)
        return found is not None

    def reject_all(all_refused, wire, before):
        while not all(None in x.answers.values() for x in all_refused):
            need(take(all_refused, wire, PATIENCE), f"no requests come any more: {[(x.source, x.answers) for x in all_refused]}")

        def counted(now):
            while take(all_refused, wire, 0):
                pass
            # The last request of each is not answered.
            return now[FAILED] - before[FAILED] == sum(len(x.answers) - 1 for x in all_refused)

        home.wait_for("a failed attempt for each request", counted)

    def arrives(source):
        with End() as listener:
            listener.call("listen", raw_address(source, PORTS[False]))
            p, asked = next_request(listener, source, NODE, Recorder)
            with p:
                p.qp()
                p.accept(asked)
                need(p.ping(), "the connection is lost")
                p.settle()
                need(p.found == [(x, 0) for x in wanted], f"{p.found} came")

    def play():
        # Two rejections of the peer itself, so that a wrong count shows in the next proposal.
        all_refused = [Refused(x, [BY_PEER, BY_PEER, *REASONS[i::len(sources)]]) for i, x in enumerate(sources)]
        with home.at_home():
            sock = Sock((NODE, 0))
        with sock:
            with Wire(WIRE) as wire:
                with unserved(home, sources, wire.hardware()):
                    before = home.counters()
                    with home.at_home():
                        for source in sources:
                            for text in wanted:
                                sock.send(text, (source, PORT))
                    reject_all(all_refused, wire, before)
                # All requests so far. The kernel may have rejected some of them earlier. Later
                # listeners get only requests for which the node waits.
                left = [(x.source, list(x.answers)[-1]) for x in all_refused]
                while (found := wire.next(0)) is not None:
                    if found.kind == roce.REQ and found.target in sources:
                        left.append((found.target, found.local))
                for source, number in left:
                    reject(source, some_number(), number, OF_REQ, NOBODY)
            for source in sources:
                arrives(source)
            rose = rise(before, home.counters(), REFUSED)
            need(not rose, f"counted {rose}")

    yield "each reason", play


def late(home, _number):
    """Rejects requests that were answered already, or were never made."""
    source = MINE[5]
    with open("/sys/class/infiniband/rogx1/node_guid", encoding="ascii") as f:
        own_guid = bytes.fromhex(f.read().strip().replace(":", ""))

    def accepted(p, wire):
        """Connects, and returns the numbers of both ends from the REP: (the rogue's, the node's).
        """
        p.open(fragment=0)
        answer = wire.await_message(roce.REP, NODE, source)
        return answer.remote, answer.local

    def strangers():
        """Rejections that belong to no connection of the node change nothing."""
        with Wire(WIRE) as wire, Peer(source, NODE) as p:
            ours, theirs = accepted(p, wire)
            need(p.ping(), "no traffic")
            before = home.counters()
            for i, reason in enumerate(REASONS):
                reject(source, ours, theirs, OF_REQ, reason)
                # The last value has no meaning.
                reject(source, ours, some_number(), i % 4, reason)
                reject(source, some_number(), theirs, i // 4 % 4, reason)
            reject(source, ours, theirs, OF_REP, TIMEOUT)
            reject(source, some_number(), theirs, OF_REP, TIMEOUT, own_guid)
            need(p.ping(), "the connection is lost")
            rose = rise(before, home.counters(), LOST)
            need(not rose, f"counted {rose}")
            p.settle()

    def up(reason):
        """The node connects again, and repeats what was not acknowledged."""
        with contextlib.ExitStack() as stack:
            wire, listener = stack.enter_context(Wire(WIRE)), stack.enter_context(End())
            listener.call("listen", raw_address(source, PORTS[False]))
            with home.at_home():
                sock = stack.enter_context(Sock((NODE, 0)))
            p = stack.enter_context(Peer(source, NODE))
            ours, theirs = accepted(p, wire)
            with home.at_home():
                sock.send(attacks.TEXT, (source, PORT))
            need(not message_of_node(p).flags & RETRANSMITTED, "it was not sent before")
            # The first connection was requested by the rogue, the second one by the node.
            for _ in range(2):
                before = home.counters()
                reject(source, ours, theirs, OF_REP, reason, own_guid)
                p, asked = next_request(listener, source, NODE)
                stack.enter_context(p)
                p.qp()
                p.accept(asked)
                answer = wire.await_message(roce.REP, source, NODE)
                ours, theirs = answer.local, answer.remote
                need(message_of_node(p).flags & RETRANSMITTED, "it was sent before")
                rose = rise(before, home.counters(), LOST)
                need(rose == {"conn_reset": 1}, f"counted {rose}")
            p.settle()

    def our_reply():
        """The attempt fails, once, and the next one succeeds."""
        with Wire(WIRE) as wire:
            for reason in SOME_REASONS:
                before = home.counters()
                guid, ours, qpn = rng.getrandbits(64), some_number(), some_number()
                roce.send_cm(source, NODE, roce.request((source, NODE), frames.private(source, NODE), [
                    roce.gid(x) for x in (source, NODE)], guid, qpn, ours))
                theirs = wire.await_message(roce.REP, NODE, source).local
                for _ in range(2):
                    reject(source, ours, theirs, OF_REP, reason, struct.pack("!Q", guid))
                home.wait_for(f"the end of an attempt, reason {reason}", lambda now: now[FAILED] > before[FAILED])
                rose = rise(before, home.counters(), LOST)
                need(rose == {FAILED: 1}, f"reason {reason}: counted {rose}")
        with connected(home, source) as p:
            need(p.ping(), "no traffic")

    yield "of nobody", strangers
    for reason in SOME_REASONS:
        yield f"while the connection is up, reason {reason}", lambda: up(reason)
    yield "of the node's reply", our_reply


if __name__ == "__main__":
    sys.exit(main({"every": every, "late": late}))
