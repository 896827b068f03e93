# SPDX-License-Identifier: GPL-2.0
"""rogue.py LIBRARY ATTACK [NUMBER]: a peer that keeps to no rule, against the RDS of this kernel.

It plays the other end of RDS connections from the network namespace "rogue", see test_rogue.py. It
ends with status 1 and a line for each wrong answer of the node. LIBRARY is verbs.c, compiled.
NUMBER is the number of repetitions of repeated attacks, or the seed of "random".
"""

import contextlib
import errno
import itertools
import random
import re
import select
import socket
import struct
import sys
import time

import attacks
import frames
import peer
from cases import outcome
from info_paths import row
from peer import PATIENCE, REJECTED, End, Home, Peer, PeerError, raw_address
from rds import Sock

NODE, NODE6 = "10.8.0.100", "fd08::100"
# The device of the node for those addresses.
DEVICE = "rogx0"
MINE, MINE6 = [f"10.8.0.{i}" for i in range(1, 9)], "fd08::1"
VIOLATIONS = ("recv_drop_bad_header", "recv_drop_bad_fragment", "recv_drop_bad_checksum",
              "recv_drop_bad_ack")
REFUSED, FAILED = "conn_reject_bad_request", "conn_attempt_failed"


def need(condition, text):
    if not condition:
        raise PeerError(text)


def rise(before, after, names=VIOLATIONS):
    """Returns the counters that have risen, and by how much."""
    return {x: after[x] - before[x] for x in names if after[x] != before[x]}


def is_iwarp():
    with open(f"/sys/class/infiniband/{DEVICE}/node_type", encoding="ascii") as f:
        return "RNIC" in f.read()


def until_said(home, pattern, attack):
    """Attacks until the node logs the pattern: the rate of its lines is limited."""
    deadline = time.monotonic() + PATIENCE
    while True:
        home.log()
        attack()
        lines = home.log()
        if any(re.search(pattern, line) for line in lines):
            return
        need(time.monotonic() < deadline, f"the log did not say {pattern!r}, last {lines}")


@contextlib.contextmanager
def connected(home, source=MINE[0], target=NODE, **fields):
    """Yields a peer with a connection, which leaves nothing behind."""
    with Peer(source, target) as p:
        p.open(**fields)
        yield p
        p.settle()


# Rows of a table: each is a generator of (name, function).

def broken(home, table):
    """Each ends the connection, is counted once, and the node logs the reason. Frames behind it are
    dropped, too."""
    def attack(make, counter):
        with Peer(MINE[0], NODE) as p:
            p.open()
            all_frames = make(p) + attacks.BEHIND
            before = home.counters()
            p.send(*all_frames)
            p.await_end()
            rose = rise(before, home.counters())
        need(rose == {counter: 1} or counter is None and sum(rose.values()) == 1, f"counted {rose}")

    with home.at_home():
        reader, start = Sock((NODE, attacks.READER)), home.counters()
    for what, make, counter, line in table:
        yield what, lambda: until_said(home, f"{MINE[0]}.*dropping the connection: .*{line}",
                                       lambda: attack(make, counter))
        yield what, lambda: need(not select.select([reader], [], [], 0)[0], "a part of it was delivered")

    # The queue pair can fail before the frames behind it arrive.
    more = itertools.cycle((make, counter) for _, make, counter, _ in table)
    yield "what is behind", lambda: home.wait_for(
        "a drop of what is behind",
        lambda now: now["recv_drop_broken"] > start["recv_drop_broken"] or attack(*next(more)))
    reader.sock.close()


def lines(home, number):
    """A peer cannot exceed its limit of lines in the log, and suppresses no lines about others."""
    def attack(source=MINE[0]):
        with Peer(source, NODE) as p:
            p.open()
            p.send(*attacks.BROKEN_FRAMES[0][1](p))
            p.await_end()

    def attacks_in_a_row():
        # Earlier attacks may have used up the limit of these five seconds.
        until_said(home, "dropping the connection", attack)
        for _ in range(number):
            attack()
        home.few_lines(f"{MINE[0]}.*dropping the connection")
        attack(MINE[1])
        need(home.said(f"{MINE[1]}: dropping the connection"), "another peer's line is missing")

    yield "lines in the log", attacks_in_a_row


def harmless(home, _number):
    """Attacks that do not end the connection: one connection is enough for all."""
    p = Peer(MINE[0], NODE)
    p.open()

    def attack(make, counter):
        need(not p.gone, "there is no connection")
        before = home.counters()
        need(p.send(*make(p)) and p.ping(), "the node has ended the connection")
        after = home.counters()
        need(not rise(before, after), f"counted {rise(before, after)}")
        need(not counter or after[counter] > before[counter], f"{counter} did not go up")

    def no_credits():
        before = home.counters()
        need(p.send(*[frames.header(credit=255)] * 20) and p.ping(), "the node has ended the connection")
        need(not (rose := rise(before, home.counters(), ("ib_rx_credit_updates",))), f"counted {rose}")

    for what, make, counter in attacks.HARMLESS:
        yield what, lambda: attack(make, counter)
    if not is_iwarp():  # iWARP has flow control.
        yield "credits of a connection without flow control", no_credits
    yield "the end", p.settle
    p.free()


def operations(home, _number):
    """Operations of verbs that RDS does not use, on memory that was not registered for the peer."""
    def ends(opcode, frame):
        with Peer(MINE[0], NODE) as p:
            p.open()
            if p.send(frame, opcode=opcode) or not is_iwarp():  # iWARP cannot do all of it.
                p.await_failure()
            p.disconnect()
        with connected(home) as p:
            need(p.ping(), "the node does not serve any more")

    def with_immediate():
        with connected(home) as p:
            p.send(frames.message(p.number(), sport=2000), opcode=peer.SEND_WITH_IMM)
            need(p.await_pong(2000) and p.ping(), "the connection is lost")

    for what, opcode, size in (("write", peer.WRITE, 64), ("read", peer.READ, 64),
                               ("write and tell", peer.WRITE_WITH_IMM, 64),
                               ("write nothing and tell", peer.WRITE_WITH_IMM, 0),
                               ("compare and swap", peer.COMPARE_AND_SWAP, 8),
                               ("fetch and add", peer.FETCH_AND_ADD, 8),
                               ("send and invalidate", peer.SEND_WITH_INVALIDATE, 48),
                               ("longer than a receive", peer.SEND, 8400)):
        yield what, lambda: ends(opcode, frames.message(1).ljust(size, b"\0")[:size])
    # iWARP has no immediate data.
    if not is_iwarp():
        yield "send with immediate data", with_immediate


def requests(home, source, target, bad=attacks.BAD_REQUESTS, good=attacks.GOOD_REQUESTS):
    v6 = ":" in target

    def refused(make, line):
        with End() as e:
            e.resolve(source, target)
            e.qp()
            before = home.counters()
            event, _, data = e.connect(make(source, target))
            need(event == REJECTED, f"not refused: event {event}")
            # Soft-iWARP disconnects after its answer, and the disconnect may be faster.
            lost = is_iwarp() and not data
            need(lost or data[:4] == struct.pack("=i", 1), f"refused with {data.hex()}")
            # The answer precedes the count.
            after = home.wait_for("a refusal", lambda x: x[REFUSED] > before[REFUSED])
            need(after[REFUSED] == before[REFUSED] + 1, "it was refused more than once")

    def accepted(fields, wanted):
        with Peer(source, target) as p:
            reply = p.open(**fields)
            wrong = {k: (getattr(reply, k), v) for k, v in wanted.items() if getattr(reply, k) != v}
            need(not wrong, f"the reply is {reply}: {wrong}")
            need((reply.source, reply.target) == (target, source), f"the reply is {reply}")
            need(p.ping(), "no traffic")
            p.settle()

    for what, make, line in bad:
        pattern = f"refused a connection from .*{source}.*{line}"
        yield what, lambda: until_said(home, pattern, lambda: refused(make, line))
    for fields, wanted in good:
        fields = {"mask": 3, "fragment": 8192, **fields}
        yield f"accepted: {fields}", lambda: accepted(fields, wanted)
    if not v6:
        yield "a request while its victim is connected", lambda: impersonate(home)


def impersonate(home):
    """One address has a connection. Requests from another address in its name change nothing."""
    with connected(home, MINE[0]) as victim:
        for i in range(20):
            with End() as e:
                e.resolve(MINE[1], NODE)
                e.qp()
                event, *_ = e.connect(frames.private(MINE[0], NODE))
                need(event == REJECTED, f"event {event}")
        need(victim.ping(), "the victim has lost its connection")


def replies(home, _number):
    """The node requests a connection, and each of its attempts gets another answer."""
    source, port = MINE[2], 7000
    listener = End()
    listener.call("listen", raw_address(source, peer.PORTS[False]))
    with home.at_home():
        sock = Sock((NODE, 0))
        sock.send(attacks.TEXT, (source, port))

    def request():
        p, asked = peer.next_request(listener, source, NODE)
        need((asked.major, asked.minor) in ((4, 1), (3, 1)) and asked.mask == 3, f"asked {asked}")
        return p, asked

    def answer(make):
        p, _ = request()
        with p:
            p.qp()
            before = home.counters()
            p.call("accept", data := make(source, NODE), len(data))
            p.await_end()
            home.wait_for("a failed attempt", lambda x: x[FAILED] > before[FAILED])

    def reject(data):
        p, asked = request()
        with p:
            p.call("reject", data or None, len(data))
        return asked.major

    def rejected():
        majors = [reject(data) for data in attacks.REJECTIONS * 2]
        need(3 in majors and 4 in majors, f"proposed {majors}")
        with home.at_home():
            shown = row(NODE, source, 0)["reason"]
        need(shown == 23, f"the table of paths shows the reason {shown}")

    def silence():
        p, _ = request()
        before = home.counters()
        home.wait_for("the end of a silent attempt", lambda x: x[FAILED] > before[FAILED])
        p.free()

    def goes_silent():
        """Accepts, and answers nothing after that, not even the disconnect."""
        p, asked = request()
        p.qp(0)
        data = p.private(fragment=0)
        p.call("accept", data, len(data))
        p.call("kill_qp")
        before = home.counters()
        home.wait_for("a lost connection", lambda x: x["conn_reset"] > before["conn_reset"])
        p.free()

    def at_last():
        p, asked = request()
        with p:
            p.qp()
            p.accept(asked)
            p.message(port, attacks.TEXT)
            p.settle()

    for what, make, line in attacks.BAD_REPLIES:
        yield what, lambda: until_said(home, f"the peer's reply .*{line}", lambda: answer(make))
    yield "rejections", rejected
    yield "no answer", silence
    # TCP answers for a program that does not, and continues to try for a quarter of an hour.
    if not is_iwarp():
        yield "silent after the answer", goes_silent
    yield "a good reply at last", at_last
    listener.free()
    with home.at_home():
        sock.sock.close()


def many_requests(home, number):
    """Requests from one address at once, and with disconnects in all phases."""
    def at_once():
        ends = []
        for _ in range(max(4, number // 8)):
            e = Peer(MINE[3], NODE)
            e.resolve(MINE[3], NODE)
            e.qp(4)
            ends.append(e)
        for e in ends:
            e.ask(e.private())
        for e in ends:
            need(e.event() is not None, "a request without an answer")
        for e in ends:
            e.free()
        with connected(home, MINE[3]) as p:
            need(p.ping(), "no traffic afterwards")

    def hang_up(after):
        home.log()
        for _ in range(number):
            with Peer(MINE[3], NODE) as p:
                p.resolve(MINE[3], NODE)
                p.qp(1)
                p.ask(p.private())
                after(p)
        home.few_lines(rf"{MINE[3]}.*connected")
        with connected(home, MINE[3]) as p:
            need(p.ping(), "no traffic afterwards")

    def no_confirmation():
        before = home.counters()
        with Peer(MINE[3], NODE) as p:
            p.resolve(MINE[3], NODE)
            p.qp(1)
            p.ask(p.private())
            # The answer is not read, so nothing confirms it.
            home.wait_for("the end of an attempt", lambda x: x[FAILED] > before[FAILED])

    yield "at once", at_once
    yield "hung up before the answer", lambda: hang_up(lambda p: None)
    yield "hung up after it", lambda: hang_up(lambda p: p.event())
    yield "hung up in order", lambda: hang_up(lambda p: (p.event(), p.disconnect()))
    yield "no confirmation", no_confirmation


def resources(home, number):
    """Connections that are made and ended in all ways leave nothing."""
    def some(count):
        for i in range(count):
            with Peer(MINE[4 + i % 2], NODE) as p:
                p.open()
                p.send(*rng.choice(attacks.BROKEN_FRAMES)[1](p))
                p.await_end()

    rng = random.Random(1)

    def pools():
        """Returns the bytes of the pools of the device to which the rogue connects."""
        with open("/sys/kernel/debug/rds/pools", encoding="ascii") as f:
            return sum(int(size) for size in re.findall(rf"^{DEVICE} .* bytes=(\d+)", f.read(), re.M))

    def grows():
        some(number)
        before = pools()
        some(3 * number)
        after = pools()
        need(0 < before and after <= before + (1 << 20), f"the pools grew from {before} to {after} bytes")

    yield "comes and goes", grows


def in_part(home, number):
    """Messages that begin, and do not continue."""
    def amid_a_message():
        """One message of 1 MiB on each connection: other connections are served."""
        peers = []
        for source in MINE[:number]:
            p = Peer(source, NODE)
            p.open()
            p.send(*frames.fragments(1, bytes(frames.MAX_MESSAGE), dport=attacks.NOBODY)[:-1])
            p.drain()
            peers.append(p)
        with connected(home, MINE6, NODE6) as other:
            need(other.ping(), "another one is not served")
        held = home.counters()["ib_pool_bufs_in_use"]
        for p in peers:
            p.disconnect()
            p.free()
        home.wait_for("the memory of the messages",
                      lambda x: x["ib_pool_bufs_in_use"] <= held - 200 * number)

    yield "long messages in part", amid_a_message


def unread(home, _number):
    """A peer that ignores a full port."""
    def full_port():
        """Accepted messages can be read, the rest is dropped, and the reader is notified. Other
        sockets are not affected."""
        with home.at_home():
            sock = Sock((NODE, 7002))
        # A message of more than a quarter of a buffer keeps the buffer. A socket takes 32 MiB, or
        # the 32nd part of the memory if that is more.
        size = 2500
        with open("/proc/meminfo", encoding="ascii") as f:
            memory = int(re.search(r"MemTotal: +(\d+)", f.read())[1]) << 10
        most = max(32 << 20, memory // 32)
        with sock, Peer(MINE[5], NODE) as p:
            p.open()
            before = home.counters()
            sent = most // 9000 + 100
            for _ in range(sent):
                p.send(frames.message(p.number(), bytes(size), dport=7002))
            need(p.ping(), "the connection is lost")
            need(outcome(sock.recv, size, socket.MSG_DONTWAIT) == "ENOBUFS", "the reader is not told")
            # The number of dropped messages does not matter: the reader can read.
            p.send(frames.message(p.number(), bytes(size), dport=7002))
            need(p.ping(), "the connection is lost")
            need(len(sock.recv(size, socket.MSG_DONTWAIT)[0]) == size, "it is told twice before it can read")
            need(outcome(sock.recv, size, socket.MSG_DONTWAIT) == "ENOBUFS", "the reader is told once only")
            # Counted by reading: other sockets receive messages meanwhile.
            taken = 1
            with contextlib.suppress(BlockingIOError):
                while True:
                    need(len(sock.recv(size, socket.MSG_DONTWAIT)[0]) == size, "a part of what was taken")
                    taken += 1
            need(most // 10000 < taken < most // 9000, f"{taken} messages were taken")
            lost = rise(before, home.counters(), ("recv_drop_overrun",)).get("recv_drop_overrun", 0)
            need(taken + lost == sent + 1, f"{lost} were dropped, of {sent + 1}")
            p.send(frames.message(p.number(), bytes(size), dport=7002))
            need(p.ping(), "there is room, and the connection is lost")
            need(len(sock.recv(size, socket.MSG_DONTWAIT)[0]) == size, "there is room, and no message")
            p.settle()

    yield "a full port", full_port


def flood(home, number):
    """More frames than there is room for."""
    def one_by_one():
        """Many small frames: more than the node has receives for."""
        with connected(home, MINE[3]) as p:
            before = home.counters()
            for _ in range(number):
                p.send(frames.message(p.number(), attacks.TEXT, dport=attacks.NOBODY))
            need(p.ping(), "the connection is lost")
            rose = rise(before, home.counters(), ("recv_drop_no_sock",))
            need(rose["recv_drop_no_sock"] >= number, f"counted {rose}")

    yield "more frames than receives", one_by_one


def full_socket(sock, target):
    """Sends until there is no room. Returns how many bytes fit."""
    total = 0
    while True:
        try:
            total += sock.send(bytes(8000), (target, 7001), socket.MSG_DONTWAIT)
        except OSError as e:
            need(e.errno == errno.EAGAIN, f"sending failed with {errno.errorcode[e.errno]}")
            return total
        need(total < 16 << 20, "the send buffer has no end")


def deaf(home, _number):
    """A peer to which a program of the node sends, and which does not cooperate."""
    def play(receives, rest):
        source = MINE[6]
        with connected(home, source):
            pass  # Nothing is left from before.
        with home.at_home():
            sock = Sock((NODE, 0))
        with sock, Peer(source, NODE) as p:
            p.open(receives)
            with home.at_home():
                sent = full_socket(sock, source)
            rest(p, sock, sent)
        # Nothing is left to send: the node stops its attempts.
        home.wait_for("the end of the connection", lambda _: all(
            x.state == "down" for x in home.connections() if x.peer == source))

    def no_receives(p, sock, sent):
        before = home.counters()
        p.send(*[frames.message(p.number(), dport=attacks.NOBODY) for _ in range(20)])
        home.wait_for("frames taken while nothing can be sent",
                      lambda x: x["recv_drop_no_sock"] >= before["recv_drop_no_sock"] + 20)
        p.disconnect()

    def no_acknowledgement(p, sock, sent):
        got = 0
        while got < sent:
            frame = p.frame()
            need(frame is not None, f"{got} bytes of {sent} came")
            got += sum(len(payload) for header, payload in p.note(frame) if header.dport == 7001)
        with home.at_home():
            need(full_socket(sock, MINE[6]) == 0, "there was room before anything was acknowledged")
        p.acknowledge()
        p.drain()
        need(p.ping(), "the connection is lost")
        with home.at_home():
            need(full_socket(sock, MINE[6]) > 0, "there is no room after all was acknowledged")
        # The pong would be sent again forever.
        p.acknowledge()
        p.drain()

    yield "posts no receives", lambda: play(0, no_receives)
    yield "acknowledges nothing", lambda: play(64, no_acknowledgement)


def cancelled(home, number):
    """A program cancels what it sends, and the peer announces new generations repeatedly."""
    def race():
        source = MINE[1]
        with home.at_home():
            sock = Sock((NODE, 0))
        with sock, connected(home, source) as p:
            for generation in range(1, number + 1):
                with contextlib.suppress(BlockingIOError):
                    for _ in range(5):
                        sock.send(bytes(3000), (source, 7001), socket.MSG_DONTWAIT)
                p.send(*frames.congestion(ext=frames.introduction(generation)))
                sock.cancel(source, 7001)
                while p.pump(0):
                    p.inbox.clear()
            need(full_socket(sock, source) > 0, "what was taken back still takes room")
            sock.cancel(source, 7001)

    yield "a new generation for each", race


def noise(home, seed, count):
    """Frames with random faults: the connection ends, or it works."""
    rng = random.Random(seed)
    p = None
    for i in range(count):
        if p is None:
            p = Peer(MINE[7], NODE)
            p.open()
        some = attacks.mutated(rng, p)

        def attack():
            try:
                if p.send(*some) and p.ping():
                    return
                p.await_end()
            except PeerError as e:
                raise PeerError(f"{e}; seed {seed}, {[x[:80].hex() for x in some]}") from e

        yield f"number {i}", attack
        if p.gone or p.failure:
            p.free()
            p = None
    # Its pongs must not be left behind.
    p = p or Peer(MINE[7], NODE)
    if not p.has_qp:
        p.open()
    p.settle()
    p.free()


ATTACKS = {
    "frames": lambda home, _: broken(home, attacks.BROKEN_FRAMES),
    "packed": lambda home, _: broken(home, attacks.BROKEN_PACKED),
    "maps": lambda home, _: broken(home, attacks.BROKEN_MAPS),
    "harmless": harmless,
    "cancelled": cancelled,
    "operations": operations,
    "requests": lambda home, _: requests(home, MINE[1], NODE),
    "requests6": lambda home, _: requests(home, MINE6, NODE6),
    "few-requests": lambda home, _: requests(
        home, MINE[1], NODE, attacks.BAD_REQUESTS[::4], attacks.GOOD_REQUESTS[::4]),
    "replies": replies,
    "many-requests": many_requests,
    "resources": resources,
    "flood": flood,
    "in-part": in_part,
    "lines": lines,
    "unread": unread,
    "deaf": deaf,
    "random": lambda home, seed: noise(home, seed, 300),
}


def main(table):
    library, name, *number = sys.argv[1:]
    peer.load(library)
    home = Home("rogue")
    failed = 0
    for what, attack in table[name](home, int(*number)):
        try:
            attack()
        except PeerError as e:
            failed += 1
            print(f"{name}, {what}: {e}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(ATTACKS))
