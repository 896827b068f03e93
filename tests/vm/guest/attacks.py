# SPDX-License-Identifier: GPL-2.0
"""Tables of what the rogue peer sends: frames that break a rule, frames that break none, requests
and replies.

rogue.py sends them and judges the answers.
"""

import struct

from frames import (ACK_REQUIRED, CONG, EXTENSION, EXTENSIONS, HB_PING, HB_PONG, MAP, MAX_MESSAGE,
                    RETRANSMITTED, congestion, extension, fixed, fragments, header,
                    introduction, message, packed, private)

# No socket is bound to this port.
NOBODY = 999
# A socket is bound to this port. It must not receive any part of a broken message.
READER = 998
TEXT = bytes(range(100))

BAD_HEADER, BAD_FRAGMENT, BAD_CHECKSUM, BAD_ACK = (
    "recv_drop_bad_header", "recv_drop_bad_fragment", "recv_drop_bad_checksum", "recv_drop_bad_ack")


def spoiled(frame, at=0):
    """Returns the frame with a wrong bit that the checksum covers."""
    return frame[:at] + bytes([frame[at] ^ 0x10]) + frame[at + 1:]


def amid(*then, size=3 * 4096):
    """Returns frames with `then` in the place of the second fragment of a message."""
    return [fragments(1, bytes(size), dport=READER)[0], *then]


def second(**wrong):
    """Returns two fragments of a message. One field of the second is wrong."""
    right = {"seq": 1, "len": 2 * 4096, "dport": READER}
    return [fragments(1, bytes(2 * 4096), dport=READER)[0],
            message(**{**right, **wrong}, payload=bytes(4096))]


def never_sent(peer, ahead):
    """Returns a valid acknowledgement, and one of a message that the node has not sent yet."""
    peer.ping()
    return [header(ack=peer.seen), header(ack=peer.seen + ahead)]


# If the node delivered these, a program would notice.
BEHIND = [message(1, TEXT, dport=READER)] * 4

# Each entry has the counter that the node counts, and the text that it logs.
BROKEN_FRAMES = [
    ("no bytes", lambda p: [b""], BAD_HEADER, "a frame of 0 bytes"),
    ("1 byte", lambda p: [b"x"], BAD_HEADER, "a frame of 1 bytes"),
    ("31 bytes", lambda p: [header(seq=1)[:31]], BAD_HEADER, "a frame of 31 bytes"),
    ("47 bytes", lambda p: [header(seq=1)[:47]], BAD_HEADER, "a frame of 47 bytes"),
    ("a wrong checksum", lambda p: [spoiled(message(1, TEXT))], BAD_CHECKSUM, "Checksum"),
    ("a wrong checksum of an extension", lambda p: [spoiled(header(seq=1), 47)], BAD_CHECKSUM, "Checksum"),
    ("1 MiB and a byte", lambda p: [message(1, bytes(4096), len=MAX_MESSAGE + 1)], BAD_HEADER,
     r"TooLong\(1048577\)"),
    ("4 GiB", lambda p: [message(1, bytes(4096), len=2**32 - 1)], BAD_HEADER, r"TooLong\(4294967295\)"),
    ("a byte too few", lambda p: [message(1, TEXT[:99], len=100, dport=READER)], BAD_FRAGMENT,
     r"FragmentSize \{ expected: 100, received: 99"),
    ("a byte too many", lambda p: [message(1, TEXT, len=99)], BAD_FRAGMENT, r"Short\(1\)"),
    ("a byte and no message", lambda p: [message(1, b"x", len=0, dport=NOBODY)], BAD_FRAGMENT, r"Short\(1\)"),
    ("a first fragment of no size", lambda p: [message(1, bytes(4000), len=8192, dport=READER)], BAD_FRAGMENT,
     "FragmentSize"),
    ("a first fragment without payload", lambda p: [message(1, b"", len=8192)], BAD_FRAGMENT, "FragmentSize"),
    ("a second fragment of another size",
     lambda p: amid(message(1, bytes(8192 - 48), len=3 * 4096, dport=READER)), BAD_FRAGMENT, "FragmentSize"),
    ("a second fragment without payload", lambda p: amid(message(1, b"", len=3 * 4096, dport=READER)),
     BAD_FRAGMENT, "FragmentSize"),
    ("a last fragment too short",
     lambda p: amid(message(1, bytes(4095), len=8192, dport=READER), size=8192), BAD_FRAGMENT, "FragmentSize"),
    ("a fragment of another message", lambda p: second(seq=2), BAD_FRAGMENT, "Interleaved"),
    ("a fragment of another length", lambda p: second(len=3 * 4096), BAD_FRAGMENT, "Interleaved"),
    ("a fragment from another port", lambda p: second(sport=78), BAD_FRAGMENT, "Interleaved"),
    ("a fragment to another port", lambda p: second(dport=NOBODY), BAD_FRAGMENT, "Interleaved"),
    ("a fragment with other flags", lambda p: second(flags=RETRANSMITTED), BAD_FRAGMENT, "Interleaved"),
    ("a message within a message", lambda p: amid(message(2, TEXT)), BAD_FRAGMENT, "Interleaved"),
    ("a ping within a message", lambda p: amid(message(2)), BAD_FRAGMENT, "Interleaved"),
    ("a map within a message", lambda p: amid(*congestion()), BAD_FRAGMENT, "Interleaved"),
    ("a heartbeat within a message", lambda p: amid(header(seq=2, flags=HB_PING)), BAD_FRAGMENT, "Interleaved"),
    ("several messages within a message", lambda p: amid(packed(message(2, TEXT), message(3, TEXT))),
     BAD_FRAGMENT, "Interleaved"),
    ("the next message acknowledged", lambda p: never_sent(p, 1), BAD_ACK,
     r"acknowledged message \d+, but the last one sent is \d+"),
    ("acknowledged far ahead", lambda p: [header(ack=2**62)], BAD_ACK,
     "acknowledged message 4611686018427387904"),
    ("half of all numbers acknowledged", lambda p: [header(ack=2**63)], BAD_ACK, "acknowledged message"),
    ("all numbers acknowledged", lambda p: [header(ack=2**64 - 1)], BAD_ACK,
     "acknowledged message 18446744073709551615"),
    ("acknowledged with a message", lambda p: [message(1, TEXT, ack=2**62, dport=NOBODY)], BAD_ACK,
     "acknowledged message"),
    ("acknowledged with a map", lambda p: congestion(ack=2**62), BAD_ACK, "acknowledged message"),
]

GOOD = message(1, TEXT[:8], dport=NOBODY)

# The first of several messages is valid each time: it arrives.
BROKEN_PACKED = [
    ("a byte more", lambda p: [GOOD + b"x"], BAD_FRAGMENT, r"several messages: Short\(1\)"),
    ("only what fills up", lambda p: [message(1, TEXT[:5], dport=NOBODY) + bytes(2)], BAD_FRAGMENT,
     r"Short\(2\)"),
    ("fills up and ends", lambda p: [message(1, TEXT[:5], dport=NOBODY) + bytes(3)], BAD_FRAGMENT,
     r"Short\(3\)"),
    ("most of a header", lambda p: [GOOD + bytes(47)], BAD_FRAGMENT, r"Short\(47\)"),
    ("the second cut off", lambda p: [GOOD + message(2, TEXT[:99], len=100)], BAD_FRAGMENT,
     r"Cut\(100, 99\)"),
    ("the second not aligned", lambda p: [message(1, TEXT[:5], dport=NOBODY) + message(2, TEXT)],
     None, "several messages"),
    ("the second with a wrong checksum", lambda p: [GOOD + spoiled(message(2, TEXT))], BAD_CHECKSUM,
     r"Header\(Checksum\)"),
    ("the second too long", lambda p: [GOOD + message(2, TEXT, len=MAX_MESSAGE + 1)], BAD_HEADER,
     r"Header\(TooLong"),
    ("the second a fragment", lambda p: [GOOD + message(2, bytes(2000), len=8192)], BAD_FRAGMENT,
     r"Cut\(8192, 2000\)"),
    ("the second a piece of a map", lambda p: [GOOD + congestion()[0][:4000]], BAD_FRAGMENT, r"Cut\(8192, "),
    ("the second a short map", lambda p: [GOOD + congestion(len=64)[0][:112]], BAD_HEADER,
     r"Header\(CongLength\(64\)\)"),
    ("the second acknowledges too much", lambda p: [GOOD + message(2, TEXT, ack=2**62)], BAD_ACK,
     "acknowledged message"),
    ("more than a frame of several has", lambda p: [GOOD + bytes(4200)], BAD_FRAGMENT, r"Long\(4256\)"),
    ("the last of many cut off",
     lambda p: [packed(*[message(i + 1, dport=NOBODY) for i in range(80)], header(len=1))], BAD_FRAGMENT,
     r"Cut\(1, 0\)"),
]

BROKEN_MAPS = [
    ("a map too short", lambda p: congestion(bytes(4096), len=4096), BAD_HEADER, r"CongLength\(4096\)"),
    ("a map too long", lambda p: congestion(bytes(4096), len=MAP + 1), BAD_HEADER, r"CongLength\(8193\)"),
    ("a map without length", lambda p: [header(flags=CONG)], BAD_HEADER, r"CongLength\(0\)"),
    ("a map of 1 MiB", lambda p: congestion(bytes(4096), len=MAX_MESSAGE), BAD_HEADER, "CongLength"),
    ("a map with an unknown flag", lambda p: congestion(flags=CONG | 0x40), BAD_HEADER, r"CongFlags\(65\)"),
    ("a map with all flags", lambda p: congestion(flags=0xFF), BAD_HEADER, r"CongFlags\(255\)"),
    ("a map without bits", lambda p: [header(flags=CONG, len=MAP)], BAD_FRAGMENT, "FragmentSize"),
    ("a piece too short", lambda p: congestion(size=4000)[:1], BAD_FRAGMENT, "FragmentSize"),
    ("a second piece too short", lambda p: [congestion()[0], congestion()[1][:-1]], BAD_FRAGMENT,
     "FragmentSize"),
    ("a second piece too long", lambda p: [congestion()[0], congestion()[1] + b"x"], BAD_FRAGMENT,
     "FragmentSize"),
    ("a second piece with other flags",
     lambda p: [congestion()[0], congestion(flags=CONG | ACK_REQUIRED)[1]], BAD_FRAGMENT, "Interleaved"),
    ("a message in a map", lambda p: [congestion()[0], message(1, TEXT)], BAD_FRAGMENT, "Interleaved"),
]


def cut(kind):
    """Returns an extension whose data would reach beyond the space."""
    return (extension(8) * 8)[:16 - EXTENSIONS[kind]] + bytes([kind]) + b"\xff" * (EXTENSIONS[kind] - 1)


def exts():
    """Yields all kinds of extensions, valid and invalid: (name, bytes)."""
    for kind, size in EXTENSIONS.items():
        yield f"extension {kind}", extension(kind, b"\xff" * size)
        yield f"extension {kind} cut off", cut(kind)
    yield "extensions without end", extension(8) * 8
    yield "an unknown extension", b"\x2a" + b"\xff" * 15
    yield "extension 255", b"\xff" * 16
    yield "an unknown extension behind a known one", introduction(7) + b"\x63" + b"\xff" * 10
    yield "two generations", introduction(7) + introduction(8)


def several(peer, count, **fields):
    """Returns messages in as few frames as can hold them."""
    each = [message(peer.number(), **fields) for _ in range(count)]
    return [packed(*each[i:i + 80]) for i in range(0, count, 80)]


def with_map(ext):
    return lambda p: congestion(ext=ext)


def with_message(ext, flags):
    return lambda p: [message(p.number(), TEXT, dport=NOBODY, ext=ext, flags=flags)]


# Frames that change nothing: the connection stays. Some of them are counted.
HARMLESS = [
    ("no checksum", lambda p: [message(p.number(), TEXT, dport=NOBODY, checksum=0)], "recv_drop_no_sock"),
    ("nobody's port", lambda p: [message(p.number(), TEXT, dport=NOBODY)], "recv_drop_no_sock"),
    ("nobody's port, 1 MiB", lambda p: fragments(p.number(), bytes(MAX_MESSAGE), dport=NOBODY),
     "recv_drop_no_sock"),
    ("credits", lambda p: [header(credit=255)] * 20, None),
    ("padding", lambda p: [message(p.number(), TEXT, dport=NOBODY, padding=b"\xff" * 4)], "recv_drop_no_sock"),
    ("unknown flags", lambda p: [message(p.number(), TEXT, dport=NOBODY, flags=0xC0)], "recv_drop_no_sock"),
    ("heartbeats", lambda p: [header(seq=p.number(), flags=x) for x in (HB_PING, HB_PONG)], None),
    ("the probe of multipath peers",
     lambda p: [message(p.number(), sport=1, dport=0, ext=extension(5, b"\xff\xff"))], "recv_ping"),
    ("an answer to a probe", lambda p: [message(p.number(), sport=0, dport=1)], None),
    ("an answer to a ping that nobody sent", lambda p: [message(p.number(), sport=0, dport=NOBODY)],
     "recv_drop_no_sock"),
    ("an old acknowledgement", lambda p: [header(ack=p.seen), header(ack=max(p.seen - 1, 0)), header()], None),
    ("a number far ahead", lambda p: [message(2**40, TEXT, dport=NOBODY)], "recv_drop_no_sock"),
    ("a number that goes back", lambda p: [message(3, TEXT, dport=NOBODY)], "recv_drop_no_sock"),
    ("number 0", lambda p: [message(0, TEXT, dport=NOBODY)], "recv_drop_no_sock"),
    ("the last number of all, and the one after it",
     lambda p: [message(2**64 - 1, TEXT, dport=NOBODY),
                message(0, TEXT, dport=NOBODY, flags=RETRANSMITTED)], "recv_drop_no_sock"),
    ("sent again, and old",
     lambda p: [message(500, TEXT, dport=NOBODY), message(500, TEXT, dport=NOBODY, flags=RETRANSMITTED),
                message(2, TEXT, dport=NOBODY, flags=RETRANSMITTED)], "recv_drop_old_seq"),
    ("sent again, and old, in fragments",
     lambda p: [message(500, TEXT, dport=NOBODY),
                *fragments(3, bytes(20000), dport=NOBODY, flags=RETRANSMITTED)], "recv_drop_old_seq"),
    ("sent again, half of all numbers away",
     lambda p: [message(500, TEXT, dport=NOBODY),
                message(500 + 2**63 + 1, TEXT, dport=NOBODY, flags=RETRANSMITTED)], "recv_drop_old_seq"),
    ("several pings in a frame", lambda p: several(p, 3), "recv_ping"),
    ("bare acknowledgements in one frame", lambda p: [packed(*[header(ack=p.seen)] * 80)], None),
    ("other things than zeros between messages",
     lambda p: [message(p.number(), b"x", dport=NOBODY) + b"\xff" * 7 +
                message(p.number(), b"x", dport=NOBODY)], "recv_drop_no_sock"),
    ("a map in one frame", lambda p: congestion(size=MAP), "cong_update_received"),
    ("a map with a number and ports", lambda p: congestion(seq=9, sport=9, dport=9), "cong_update_received"),
    ("a map that is to be acknowledged", lambda p: congestion(flags=CONG | ACK_REQUIRED),
     "cong_update_received"),
    ("the first half of a map, again and again", lambda p: congestion()[:1] * 200, "cong_update_received"),
    ("a new generation amid everything", lambda p: congestion(ext=introduction(0xBAD)), "cong_update_received"),
    ("acknowledgements without end", lambda p: [packed(*[header(ack=p.seen)] * 80)] * 20, None),
    ("pings from port 0 without end", lambda p: several(p, 2000, sport=0, flags=HB_PING), None),
    ("messages to nobody without end", lambda p: several(p, 2000, dport=NOBODY), "recv_drop_no_sock"),
    ("all of them to be acknowledged", lambda p: several(p, 400, dport=NOBODY, flags=ACK_REQUIRED),
     "recv_ack_required"),
] + [(f"{what} in a map", with_map(ext), "cong_update_received") for what, ext in exts()] + [
    (f"{what} in a message", with_message(ext, flags), "recv_drop_no_sock")
    for what, ext in exts() for flags in (0, EXTENSION)]


# The private data of requests, from source and target, and the text that the node logs.
VERSION = "no common version"
OTHERS = "its private data has other addresses than its CM header"
BAD_REQUESTS = [
    ("no private data", lambda a, b: b"", "bad private data"),
    ("only addresses", lambda a, b: private(a, b)[:8 if "." in a else 32], "bad private data"),
    ("zeros", lambda a, b: bytes(56), "bad private data"),
    ("version 0.1", lambda a, b: private(a, b, 0, 1), "NoVersion"),
    ("version 1.0", lambda a, b: private(a, b, 1, 0), VERSION),
    ("version 2.0", lambda a, b: private(a, b, 2, 0), VERSION),
    ("version 3.0", lambda a, b: private(a, b, 3, 0), VERSION),
    ("version 3.2", lambda a, b: private(a, b, 3, 2), VERSION),
    ("version 5.1", lambda a, b: private(a, b, 5, 1), VERSION),
    ("version 255.255", lambda a, b: private(a, b, 255, 255, 0xFFFF), VERSION),
    ("version 4 without a minor", lambda a, b: private(a, b, mask=0), VERSION),
    ("version 4 with other minors", lambda a, b: private(a, b, mask=0xFFFC), VERSION),
    ("another's address", lambda a, b: private(neighbour(a), b), OTHERS),
    ("the node's own address", lambda a, b: private(b, b), OTHERS),
    ("no address", lambda a, b: private("0.0.0.0" if "." in a else "::", b), OTHERS),
    ("to another", lambda a, b: private(a, neighbour(b)), OTHERS),
    ("to itself", lambda a, b: private(a, a), OTHERS),
    ("the wrong way round", lambda a, b: private(b, a), OTHERS),
    ("to all", lambda a, b: private(a, "255.255.255.255" if "." in a else "ff02::1"), OTHERS),
    ("private data of the other family",
     lambda a, b: private("fd08::1", "fd08::100") if "." in a else private("10.8.0.1", "10.8.0.100"), ""),
    ("noise", lambda a, b: b"\xa5" * 56, ""),
]


def neighbour(address):
    return address[:-1] + ("7" if address[-1] != "7" else "8")


# Requests that are unusual but accepted: fields, and those of the reply. The fragment size of the
# node is 8192.
GOOD_REQUESTS = [
    ({"fragment": 0}, {"fragment": 0}),
    ({"fragment": 1}, {"fragment": 0}),
    ({"fragment": 4095}, {"fragment": 0}),
    ({"fragment": 4097}, {"fragment": 0}),
    ({"fragment": 8191}, {"fragment": 0}),
    ({"fragment": 12288}, {"fragment": 8192}),
    ({"fragment": 65535}, {"fragment": 8192}),
    ({"credit": 2**32 - 1}, {}),
    ({"acked": 2**64 - 1}, {"acked": 0}),
    ({"reserved": 255, "padding": 2**32 - 1}, {"reserved": 0, "padding": 0}),
    ({"major": 3, "minor": 1, "mask": 0, "fragment": 16384}, {"major": 3, "minor": 1, "fragment": 0}),
    ({"minor": 200, "mask": 0xFFFF}, {"major": 4, "minor": 1}),
    ({"minor": 0, "mask": 1, "fragment": 16384}, {"major": 4, "minor": 0, "fragment": 0}),
]

# Replies to a request from target to source, and the text that the node logs.
BAD_REPLIES = [
    ("no private data", lambda a, b: b"", "malformed"),
    ("zeros", lambda a, b: bytes(56), "malformed"),
    ("noise", lambda a, b: b"\xa5" * 56, "is invalid"),
    ("another's address", lambda a, b: private(neighbour(a), b), "Addresses"),
    ("to another", lambda a, b: private(a, neighbour(b)), "Addresses"),
    ("the wrong way round", lambda a, b: private(b, a), "Addresses"),
    ("version 2.0", lambda a, b: private(a, b, 2, 0), r"Version \{ major: 2, minor: 0"),
    ("version 3.0", lambda a, b: private(a, b, 3, 0), "Version"),
    ("version 4.2", lambda a, b: private(a, b, 4, 2), "Version"),
    ("version 5.1", lambda a, b: private(a, b, 5, 1), "Version"),
    ("larger fragments than asked for", lambda a, b: private(a, b, fragment=16384), r"Fragment\(16384\)"),
    ("the largest number of all", lambda a, b: private(a, b, fragment=65535), r"Fragment\(65535\)"),
    ("another type of service", lambda a, b: private(a, b, tos=9), r"Tos\(9\)"),
]

# The data of rejections: some that C RDS sends, and some that it does not.
# The last two are those of Oracle's kernels.
REJECTIONS = [b"", struct.pack("=i", 1), struct.pack("=i", -22), b"\xff" * 148, struct.pack(">I", 0x04010020),
              struct.pack("=i", -95)]


def mutated(rng, peer):
    """Returns some frames, most of the time with something wrong in them."""
    number = peer.number()
    size = rng.choice((0, 1, 100, 4000, 4096, 4097, 9000, 20000))
    some = rng.choice((
        lambda: fragments(number, bytes(size), dport=NOBODY, flags=rng.choice((0, 2, 4, 6))) or
        [message(number, dport=NOBODY)],
        lambda: [message(number)],
        lambda: congestion(bytes(MAP), size=rng.choice((4096, 8192)), ext=rng.randbytes(16)),
        lambda: [packed(*[message(number, bytes(rng.randrange(60)), dport=NOBODY)
                          for _ in range(rng.randrange(2, 20))])],
        lambda: [header(ack=rng.choice((0, peer.seen, rng.getrandbits(64))), credit=rng.randrange(256))],
    ))()
    for _ in range(rng.randrange(3)):
        i = rng.randrange(len(some))
        frame = some[i]
        at = rng.randrange(min(len(frame), 64) or 1)
        some[i:i + 1] = rng.choice((
            lambda: [frame[:at] + bytes([rng.randrange(256)]) + frame[at + 1:]],
            lambda: [fixed(frame[:at] + bytes([rng.randrange(256)]) + frame[at + 1:])],
            lambda: [fixed(frame[:at] + b"\xff" * 8 + frame[at + 8:])],
            lambda: [frame[:rng.randrange(len(frame) + 1)]],
            lambda: [(frame + rng.randbytes(rng.randrange(200)))[:8192 + 48]],
            lambda: [frame, frame],
            lambda: [],
            lambda: [rng.randbytes(rng.randrange(200))],
        ))()
        if not some:
            break
    if rng.randrange(8) == 0:
        rng.shuffle(some)
    return some
