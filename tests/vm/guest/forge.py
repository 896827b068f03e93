# SPDX-License-Identifier: GPL-2.0
"""forge.py LIBRARY ATTACK: as rogue.py, but the peer writes the requests of the RDMA CM itself (roce.py): so it
can claim any address before the RDMA CM of the node."""

import random
import sys
import time

import frames
import roce
from peer import PATIENCE
from rogue import FAILED, MINE, MINE6, NODE, NODE6, REFUSED, connected, main, need, rise, until_said

TRACING = "/sys/kernel/tracing"
FORGED = "conn_reject_forged"
# Of the rogue, beside the one that is its victim's.
OTHER6 = "fd08::2"


def received(kind):
    """Messages of the CM that have come back to the rogue's device."""
    with open(f"/sys/class/infiniband/rogx1/ports/1/cm_rx_msgs/{kind}", encoding="ascii") as f:
        return int(f.read())


def some_number():
    """For a queue pair that does not exist, or a request."""
    return random.randrange(1 << 23, 1 << 24)


def ask(sender, target, claimed, path, **more):
    """Asks for a connection from `sender`, in the name of `claimed`, two addresses. `path` has those of the GIDs. Returns
    the number of the request."""
    number = some_number()
    message = roce.request(claimed, frames.private(*claimed), [roce.gid(x) for x in path], random.getrandbits(64),
                           some_number(), number, **more)
    roce.send_cm(sender, target, message)
    return number


def claims(home, sender, victim, node):
    """`sender` and `victim` are addresses of peers, of which the latter has a connection."""
    def honest():
        """The same with no other address than its own: the node answers, and what is refused is what is said."""
        before, answers = home.counters(), received("rep")
        ask(sender, node, (sender, node), (sender, node))
        # Nothing confirms the answer.
        home.wait_for("the end of an attempt", lambda now: now[FAILED] > before[FAILED])
        need(received("rep") > answers, "the node did not answer")
        rose = rise(before, home.counters(), (FORGED, REFUSED))
        need(not rose, f"counted {rose}")

    def forged(claimed, path):
        with connected(home, victim, node) as p:
            need(p.ping(), "no traffic")
            before, answers = home.counters(), received("rej")

            def attack():
                start = home.counters()[FORGED]
                ask(sender, node, claimed, path)
                home.wait_for("a refusal", lambda now: now[FORGED] > start)
                need(home.counters()[FORGED] == start + 1, "it was refused more than once")

            until_said(home, f"refused a connection from .*{claimed[0]}.*its path is from .*{path[0]}", attack)
            home.wait_for("a rejection", lambda _: received("rej") > answers)
            need(p.ping(), "the victim has lost its connection")
            rose = rise(before, home.counters(), (REFUSED, FAILED, "conn_reset"))
            need(not rose, f"counted {rose}")

    yield "in one's own name", honest
    yield "in another's name", lambda: forged((victim, node), (sender, node))
    yield "answered to another", lambda: forged((sender, node), (victim, node))
    yield "in one's own name after all that", honest


def timewait(home, sender, node):
    """A peer whose connections are in timewait for a millisecond. So the CM says that it is over as long as the node has
    the end of such a connection: while it waits for its queue pair to be flushed."""
    def heard():
        with open(f"{TRACING}/trace", encoding="utf-8") as f:
            return any(sender in x and "TIMEWAIT_EXIT" in x for x in f)

    def switch(value):
        for name, what in ("trace", ""), ("events/rdma_cma/cm_event_handler/enable", value):
            with open(f"{TRACING}/{name}", "w", encoding="ascii") as f:
                f.write(what)

    def come_and_go(wire):
        before = home.counters()
        number = ask(sender, node, (sender, node), (sender, node), timeout=0)
        answer = wire.await_message(roce.REP, node, sender)
        qpn = int.from_bytes(answer.fields[12:15], "big")
        roce.send_cm(sender, node, roce.disconnection(number, answer.local, qpn))
        home.wait_for("the end of an attempt", lambda now: now[FAILED] > before[FAILED])
        rose = rise(before, home.counters(), (FAILED, "conn_reset", REFUSED))
        need(rose == {FAILED: 1}, f"counted {rose}")

    def until_heard():
        deadline = time.monotonic() + PATIENCE
        switch("1")
        try:
            with roce.Wire("rog1") as wire:
                while not heard():
                    need(time.monotonic() < deadline, "the CM did not say that a timewait is over")
                    come_and_go(wire)
        finally:
            switch("0")
        with connected(home, sender, node) as p:
            need(p.ping(), "no traffic")

    yield "the end of a timewait", until_heard


if __name__ == "__main__":
    sys.exit(main({"claims": lambda home, _: claims(home, MINE[1], MINE[0], NODE),
                   "claims6": lambda home, _: claims(home, OTHER6, MINE6, NODE6),
                   "timewait": lambda home, _: timewait(home, MINE[1], NODE)}))
