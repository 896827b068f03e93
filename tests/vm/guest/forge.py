# SPDX-License-Identifier: GPL-2.0
"""forge.py LIBRARY ATTACK: the rogue peer with RDMA CM requests of its own.

It works as rogue.py does, but writes the requests of the RDMA CM itself (roce.py). So it can claim
any address to the RDMA CM of the node.
"""

import random
import sys
import time

import frames
import roce
from peer import PATIENCE
from rds import times_up
from rogue import FAILED, MINE, MINE6, NODE, NODE6, REFUSED, connected, main, need, rise, until_said

TRACING = "/sys/kernel/tracing"
FORGED = "conn_reject_forged"
# An address of the rogue, in addition to that of its victim.
OTHER6 = "fd08::2"


def received(kind):
    """Returns how many CM messages of this kind the rogue's device has received."""
    with open(f"/sys/class/infiniband/rogx1/ports/1/cm_rx_msgs/{kind}", encoding="ascii") as f:
        return int(f.read())


def some_number():
    """Returns a number for a queue pair that does not exist, or for a request."""
    return random.randrange(1 << 23, 1 << 24)


def ask(sender, target, claimed, path, **more):
    """Requests a connection from `sender` in the name of `claimed`, two addresses.

    `path` has the addresses of the GIDs. Returns the number of the request.
    """
    number = some_number()
    message = roce.request(claimed, frames.private(*claimed), [roce.gid(x) for x in path], random.getrandbits(64),
                           some_number(), number, **more)
    roce.send_cm(sender, target, message)
    return number


def claims(home, sender, victim, node):
    """Yields attacks. `sender` and `victim` are addresses of peers; the victim has a connection."""
    def honest():
        """Sends the same with its own address only.

        The node must answer, so a refusal is due to the address.
        """
        before, answers = home.counters(), received("rep")
        ask(sender, node, (sender, node), (sender, node))
        # The rogue does not confirm the answer.
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
            rose = rise(before, home.counters(), (REFUSED, FAILED))
            need(not rose, f"counted {rose}")

    yield "in one's own name", honest
    yield "in another's name", lambda: forged((victim, node), (sender, node))
    yield "answered to another", lambda: forged((sender, node), (victim, node))
    yield "in one's own name after all that", honest


def timewait(home, sender, node):
    """Yields attacks of a peer whose connections are in timewait for a millisecond.

    The CM thus reports the end of timewait while the node still has its end of the connection. The
    node waits for its queue pair to be flushed.
    """
    def heard():
        with open(f"{TRACING}/trace", encoding="utf-8") as f:
            return any(sender in x and "TIMEWAIT_EXIT" in x for x in f)

    def switch(value):
        for name, what in ("trace", ""), ("events/rdma_cma/cm_event_handler/enable", value):
            with open(f"{TRACING}/{name}", "w", encoding="ascii") as f:
                f.write(what)

    def come_and_go(wire):
        before, ups = home.counters(), sum(times_up(node, sender))
        number = ask(sender, node, (sender, node), (sender, node), timeout=0)
        answer = wire.await_message(roce.REP, node, sender)
        qpn = int.from_bytes(answer.fields[12:15], "big")
        roce.send_cm(sender, node, roce.disconnection(number, answer.local, qpn))
        home.wait_for("the end of an attempt", lambda now: now[FAILED] > before[FAILED])
        rose = rise(before, home.counters(), (FAILED, REFUSED))
        need(rose == {FAILED: 1} and sum(times_up(node, sender)) == ups, f"counted {rose}")

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
