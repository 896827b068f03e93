# SPDX-License-Identifier: GPL-2.0
"""Restarts of a node beside a peer that stays up and remembers it.

The programs send each message once and exchange no greeting, so nothing repairs a loss.
"""

from contextlib import contextmanager

import pytest
from rdsvm.cluster import must, wire_address
from traffic import lose_filtered, ports

A, B = wire_address(0, 1), wire_address(0, 2)
# Messages in the former life and at the beginning of the new one. The peer that stays knows the
# numbers of more messages than the new life begins with.
BEFORE, FIRST = 40, 10
# Offset of the opcode in the BTH of RoCE v2 from the header of IPv4, and the opcode of the CM.
BTH, UD_SEND = 28, 0x64

NEVER_IN_CI = pytest.mark.long("release", "debug")
ON_RELEASE = pytest.mark.long("debug")
# The kind of restart. With "cut" the first connection after it breaks before the peer has received
# any message from it.
HOW = pytest.mark.parametrize("how, cut", (
    pytest.param("reload", False, id="reload"), pytest.param("reload", True, id="reload-cut"),
    pytest.param("crash", False, id="crash", marks=NEVER_IN_CI),
    pytest.param("crash", True, id="crash-cut", marks=ON_RELEASE)))


class Talk:
    """Two programs that send to each other on command."""

    def __init__(self, guest, *ends):
        port = ports()
        (left, here), (right, there) = ends
        self.programs = {}
        for m, *names in (left, here, port, there, port + 1), (right, there, port + 1, here, port):
            self.programs[m] = m.start(["python3", guest / "say_once.py", *names])
        for program in self.programs.values():
            program.expect("^ready$")

    def tell(self, command, *nodes):
        """Gives a command to the programs on these nodes, or on both, at the same time. Waits for
        them."""
        programs = [self.programs[x] for x in nodes] or list(self.programs.values())
        answer = f"done: {command}\n"
        seen = [x.out.count(answer) for x in programs]
        for program in programs:
            program.write(f"{command}\n")
        for program, count in zip(programs, seen):
            program.expect(rf"(^{answer}(.*\n)*?){{{count + 1}}}", timeout=300)

    def end(self, *nodes):
        for node in nodes:
            self.programs[node].finish()


@contextmanager
def losing_data(node):
    """Loses all packets that the queue pairs of connections send from this node over RoCE v2 and
    IPv4.

    The CM's packets pass. Yields a function that returns the number of lost packets.
    """
    netdev = node.netdevs[0]
    roce, cm = "u32 match ip dport 4791 0xffff", f"match u8 {UD_SEND} 0xff at {BTH}"
    lost = lose_filtered(node, netdev, f"prio 1 {roce} {cm} flowid 1:1", f"prio 2 {roce} flowid 1:3")
    try:
        yield lost
    finally:
        # The queueing discipline stays for now: a packet may be refused while it is being replaced.
        node.run(f"tc qdisc change dev {netdev} parent 1:3 handle 3: netem loss 0%")


def begin_anew(node, how):
    if how == "crash":
        node.restart()
    else:
        must(node.unload())
    must(node.load())


def speak_first(pair, guest, anew, how, cut):
    """Makes both nodes send as soon as node `anew` is back.

    Whatever the link does, each node gets all messages of the other, once and in order.
    """
    ends = list(zip(pair, (A, B)))
    stays = next(m for m in pair if m is not anew)
    former = Talk(guest, *ends)
    # At the end each node knows that the other has all acknowledgements except the last. Otherwise
    # retransmitted first messages of C RDS could not be told from old ones: see
    # Documentation/protocol.md.
    for count in (BEFORE, 1, 1):
        former.tell(f"send {count}")
        former.tell(f"read {count}")
    former.programs[anew].stop()
    begin_anew(anew, how)
    now = Talk(guest, *ends)
    if cut:
        # C RDS cannot reset a connection.
        ours = anew if anew.impl == "rust" else stays
        with losing_data(anew) as lost:
            now.tell(f"send {FIRST}")
            now.tell("posted")
            now.tell("reset", ours)
            assert lost() >= FIRST, "the first connection was to bring nothing"
    else:
        now.tell(f"send {FIRST}")
    for _ in range(2):
        now.tell(f"read {FIRST}")
        now.tell(f"send {FIRST}")
    now.tell(f"read {FIRST}")
    now.end(*pair)
    # The former program got no message of the new life.
    former.end(stays)
    if cut:
        anew.set_loss(0)


# On iWARP the CM's packets share the TCP connection with all others.
@pytest.mark.kinds("rxe")
@pytest.mark.on_c
@HOW
def test_rust_restarts(pair, guest, how, cut):
    """A node with this module restarts. The peer, which runs this module or C RDS, stays."""
    a, b = pair
    speak_first(pair, guest, b if b.impl == "rust" else a, how, cut)


@pytest.mark.kinds("rxe")
@pytest.mark.pairs("rust-c", "c-rust")
@pytest.mark.parametrize("cut", (pytest.param(False, id="whole", marks=NEVER_IN_CI),
                                 pytest.param(True, id="cut")))
def test_c_restarts(pair, guest, cut):
    """C RDS restarts beside this module, which detects that from the peer's messages."""
    a, b = pair
    speak_first(pair, guest, b if b.impl == "c" else a, "crash", cut)
