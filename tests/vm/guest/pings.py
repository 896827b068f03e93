# SPDX-License-Identifier: GPL-2.0
"""pings.py LIBRARY one|flood NUMBER: the rogue peer of rogue.py sends more pings than it gets
answers to.

It does this on one connection or on several.
"""

import contextlib
import sys
import time

import frames
from peer import PATIENCE, RECEIVES, Peer
from rogue import MINE, MINE6, NODE, NODE6, connected, main, need


def flood(home, number, types=range(64, 70)):
    """Pings on connections of one address, which reads the answers and acknowledges none."""
    # Limits of answers that wait: on one connection, on all, and the number that each may have in
    # any case.
    most, most_in_all, few = 4097, 16384, 16
    all_pings = [frames.message(x, sport=2000) for x in range(1, number + 1)]
    size = RECEIVES // 2
    packed = [frames.packed(*all_pings[i:i + size]) for i in range(0, number, size)]

    def flood_one(p, others):
        """Returns how many answers there are."""
        def at_node():
            return next(x for x in home.connections() if (x.local, x.peer, x.tos) == (p.target, p.source, p.tos))

        def await_taken(count):
            deadline = time.monotonic() + PATIENCE
            while at_node().next_rx <= count:
                need(time.monotonic() < deadline and not p.gone, "the node does not take all pings")
                p.pump(0.01)
            return at_node().next_tx

        p.open()
        first = last = at_node().next_tx
        # Each time as many pings as there are receives for the answers, as long as there are
        # answers.
        for i, frame in enumerate(packed):
            p.send(frame)
            end = await_taken(min(number, size * (i + 1)))
            if end == last:
                break
            while p.seen < end - 1:
                need((answer := p.frame()) is not None, f"answer {p.seen} was the last of {first} to {end}")
                p.note(answer)
            for each in (p, *others):
                # No connection may be taken for dead.
                each.send(frames.header(credit=each.told()))
            last = end
        p.send(*packed[i + 1:])
        p.seq = number
        return await_taken(number) - first

    def answers():
        with contextlib.ExitStack() as stack:
            peers, counts = [], []
            before = home.counters()["send_pong_dropped"]
            for tos in types:
                p = stack.enter_context(Peer(MINE[7], NODE, tos=tos))
                counts.append(flood_one(p, peers))
                peers.append(p)
            with connected(home, MINE6, NODE6) as other:
                need(other.ping(), "another one is not served")
            need(counts[0] == most and sum(counts) <= most_in_all + few * len(counts), f"{counts} answers wait")
            dropped = home.counters()["send_pong_dropped"] - before
            need(dropped >= number * len(counts) - sum(counts), f"{dropped} answers were dropped")
            for p in peers:
                p.settle()

    yield "answers that nobody acknowledges", answers


if __name__ == "__main__":
    sys.exit(main({"one": lambda home, number: flood(home, number, [64]), "flood": flood}))
