# SPDX-License-Identifier: GPL-2.0
"""refused.py ATOMICS CASE...: operations that this node or the peer refuses, on one machine.

ATOMICS is 1 if the devices have atomic operations.
"""

import select
import socket
import struct
import sys

import rdma
from cases import IB, PROT_NONE, eventually, need, outcome, play, protected
from rdma import FENCE, NOTIFY_ME, READWRITE, SILENT, B, Pair

ATOMICS = sys.argv[1] == "1"
PAGE, RECVERR = 4096, 5


def bad_arguments():
    """Invalid operations are refused, and leave nothing."""
    with Pair(4) as p:
        cookie = p.theirs.register(0, PAGE)
        base = p.ours.base

        def asked(remote, pieces, flags=READWRITE):
            control, _place = rdma.transfer(cookie, remote, pieces, flags)
            return outcome(rdma.send, p.a, b"bad", control)

        some = [(base, 100)]
        cases = {
            "no piece": (asked((0, 100), []), "EINVAL"),
            "too many pieces": (asked((0, 2000), [(base, 1)] * 1025), "EMSGSIZE"),
            "an empty piece": (asked((0, 100), [(base, 0)]), "EINVAL"),
            "more than there": (asked((0, 99), some), "EINVAL"),
            "too much": (asked((0, (1 << 20) + 1), some), "EMSGSIZE"),
            "a piece of 4 GiB": (asked((0, 100), [(base, 1 << 32)]), "EINVAL"),
            "pieces that wrap": (asked((0, 100), [(base, (1 << 64) - 1), (base, 2)]), "EINVAL"),
            "nowhere": (asked((0, 100), [(8, 100)]), "EFAULT"),
            "the kernel": (asked((0, 100), [(0xffff888000000000, 100)]), "EFAULT"),
            "the second is nowhere": (asked((0, 200), some + [(8, 100)]), "EFAULT"),
            "around the end": (asked(((1 << 64) - 50, 100), some), "EINVAL"),
        }
        wrong = {name: got for name, (got, wanted) in cases.items() if got != wanted}
        need(not wrong, f"{wrong}")
        control, _place = rdma.transfer(cookie, (0, 100), some, READWRITE)
        add = rdma.atomic(rdma.FETCH_ADD, cookie, base, 0, [1], 0)
        dest = rdma.SOL_RDS, rdma.DEST, struct.pack("=Q", p.ours.register(0, PAGE))
        fresh = rdma.SOL_RDS, rdma.MAP, struct.pack("=QQQQ", base, PAGE, 0, READWRITE)
        # Memory that was pinned for refused operations is released soon.
        p.ours.free(0)
        pins = rdma.pins()
        for pair in ((control, control), (control, add), (add, control), (add, add), (dest, dest), (dest, fresh),
                     (fresh, dest), (fresh, fresh)):
            need((told := outcome(rdma.send, p.a, b"", *pair)) == "EINVAL", f"{[kind for _, kind, _ in pair]}: {told}")
            need(rdma.pins() == pins, f"{[kind for _, kind, _ in pair]}: something is registered")
        need(outcome(rdma.send, p.a, b"", (control[0], control[1], control[2][:55])) == "EINVAL", "half of one")
        with rdma.connected(("127.0.0.1", 0), ("127.0.0.1", 4009)) as loop:
            need(outcome(rdma.send, loop, b"", control) == "EOPNOTSUPP", "on loopback")
        nothing, _ = protected(PROT_NONE)
        told = p.ours.base + PAGE
        fresh = rdma.SOL_RDS, rdma.MAP, struct.pack("=QQQQ", base, PAGE, told, READWRITE)
        for controls in ((fresh,), (fresh, control)):
            need(outcome(rdma.send, p.a, nothing, *controls) == "EFAULT", "a message that is not there")
            p.ours.free(0)
            need(rdma.pins() == pins, "memory that nobody was told of is registered")
            cookie, = struct.unpack_from("=Q", p.ours.pages, PAGE)
            need(cookie and outcome(p.ours.free, cookie) == "EINVAL", f"{cookie:#x} can be freed")
        rdma.send(p.a, b"good")
        need(rdma.receive(p.b)[0] == b"good", "nothing bad arrives")


def shorter():
    """Less local memory than remote bytes is no error: only this much is written, or read."""
    ours, theirs = b"o" * 200, b"t" * 200
    with Pair(4) as p:
        cookie = p.theirs.register(0, PAGE)
        for token, flags, changed, wanted in ((1, READWRITE, p.theirs, ours[:100] + theirs[100:]),
                                              (2, FENCE, p.ours, theirs[:100] + ours[100:])):
            p.ours.fill(0, ours)
            p.theirs.fill(0, theirs)
            p.transfer(b"good", cookie, (0, 200), [(0, 60), (60, 40)], flags | NOTIFY_ME, token)
            need(rdma.receive(p.b)[0] == b"good", f"{token}: the message")
            need(rdma.status(p.a) == (token, rdma.SUCCESS), f"{token}: the end")
            need(changed.pages[:200] == wanted, f"{token}: {changed.pages[:200]}")


def bad_keys():
    """Operations with a bad key are reported, and all else arrives, in order and once."""
    with Pair(4) as p, rdma.connected((IB[0], 4003), B) as other:
        cookie = p.theirs.register(0, PAGE)
        sent = 0
        bad = [(p.write, cookie ^ 0xff, 10), (p.read, cookie, 2 * PAGE), (p.write, cookie + 0x5500, 10)]
        for number, (operate, key, length) in enumerate(bad):
            for _ in range(20):
                rdma.send(other, b"%d" % sent)
                sent += 1
            # An operation is dropped if it is lost with the connection that the one before has
            # ended.
            for _ in range(10):
                operate(b"never", key, [(0, length)], number)
                rdma.send(other, b"%d" % sent)
                sent += 1
                token, how = rdma.status(p.a)
                need(token == number and how in (rdma.REMOTE_ERROR, rdma.DROPPED), f"{token}: {how}")
                if how == rdma.REMOTE_ERROR or not ATOMICS:
                    break
            else:
                raise AssertionError(f"{number}: it is always dropped")
        for number in range(sent):
            data = rdma.receive(p.b)[0]
            need(data == b"%d" % number, f"{data} arrived, {number} was next")
        p.write(b"good", cookie, [(0, 10)], 100)
        need(rdma.receive(p.b)[0] == b"good", "a good one")
        need(rdma.status(p.a) == (100, rdma.SUCCESS), "its end")


def silent_bad_keys():
    """An operation with a bad key and without a message is reported, too, if the program asks for
    it.

    The next operation succeeds, after a repetition if it is dropped.
    """
    with Pair(4) as p:
        cookie = p.theirs.register(0, PAGE)
        for number in range(0, 12, 2):
            p.write(b"", cookie ^ 0xff, [(0, 10)], number, SILENT)
            found, how = rdma.status(p.a)
            need(found == number and how in (rdma.REMOTE_ERROR, rdma.DROPPED), f"{found}: {how}")
            # It may be dropped with the connection that the one before has ended.
            for _ in range(10):
                p.write(b"", cookie, [(0, 10)], number + 1, SILENT)
                found, how = rdma.status(p.a)
                need(found == number + 1 and how in (rdma.SUCCESS, rdma.DROPPED), f"{found}: {how}")
                if how == rdma.SUCCESS:
                    break
            else:
                raise AssertionError(f"{number}: the next one is always dropped")
        rdma.send(p.a, b"good")
        need(rdma.receive(p.b)[0] == b"good", "something came")


def untold():
    """Failures are reported to programs that did not ask for them only by calls that have room for
    it."""
    with Pair(4) as p:
        def fail(token):
            p.transfer(b"never", 0x12345600, (0, 10), [(0, 10)], READWRITE, token)

        def looked():
            return isinstance(outcome(p.a.sock.recvmsg, 10, 100, socket.MSG_PEEK | socket.MSG_DONTWAIT), tuple)

        def poll():
            return bool(select.select([p.a], [], [], 0)[0])

        fail(77)
        eventually("the end", looked)
        need(not poll(), "poll tells of it")
        need(outcome(p.a.sock.recv, 10, socket.MSG_DONTWAIT) == "EAGAIN", "a call without room tells of it")
        # A call that waits without room does so until there is a message.
        rdma.send(p.b, b"heard")
        need(p.a.sock.recv(10) == b"heard", "the message")
        need(rdma.status(p.a)[0] == 77, "the end")
        # A call that waits with room returns when the notification arrives.
        fail(78)
        need(rdma.status(p.a)[0] == 78, "the end")
        p.a.set_raw(RECVERR, struct.pack("=i", 1))
        fail(79)
        eventually("the end", poll)
        need(p.a.sock.recv(10) == b"", "a call without room misses it, and says so")
        need(not poll() and not looked(), "it is there still")
        p.a.set_raw(RECVERR, struct.pack("=i", 0))
        fail(80)
        cookie = p.theirs.register(0, PAGE)
        for token in range(81, 101):
            p.write(b"good", cookie, [(0, 10)], token)
            found, how = rdma.status(p.a)
            need(found == token, f"{found} is told, {token} is next")
            if how == rdma.SUCCESS:
                break
        need(rdma.receive(p.b)[0] == b"good", "what came after it")


if __name__ == "__main__":
    play(globals(), sys.argv[2:])
