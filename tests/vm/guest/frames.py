# SPDX-License-Identifier: GPL-2.0
"""The wire format of RDS, written a second time so that every field can be wrong.

Documentation/protocol.md defines what is right. Only decode() checks anything.
"""

import ipaddress
import struct
from collections import namedtuple

HEADER = 48
MAX_MESSAGE = 1 << 20
MAP = 8192
PING_PORT = 0

CONG, ACK_REQUIRED, RETRANSMITTED, HB_PING, HB_PONG, EXTENSION = 1, 2, 4, 8, 16, 32
# Extensions and the number of bytes of their data.
EXTENSIONS = {1: 4, 2: 4, 3: 8, 4: 8, 5: 2, 6: 4, 7: 4, 8: 1, 9: 8}
GENERATION, CAPABILITIES = 6, 7

_HEADER = struct.Struct("!QQIHHBB4sH16s")
Header = namedtuple("Header", "seq ack len sport dport flags credit padding checksum ext")


def folded(data):
    """Returns the one's complement sum of the 16-bit words of data."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def header(seq=0, ack=0, len=0, sport=0, dport=0, flags=0, credit=0, padding=bytes(4), checksum=None,
           ext=b""):
    """Returns a header. The checksum is the right one if none is given."""
    fields = [seq % 2**64, ack % 2**64, len % 2**32, sport, dport, flags, credit, padding, 0,
              ext.ljust(16, b"\0")]
    fields[8] = 0xFFFF - folded(_HEADER.pack(*fields)) if checksum is None else checksum
    return _HEADER.pack(*fields)


def decode(frame):
    """Returns the header of a frame from the node, and its payload. The checksum must be right."""
    found = Header(*_HEADER.unpack_from(frame))
    if folded(frame[:HEADER]) != 0xFFFF:
        raise ValueError(f"the node sent a wrong checksum: {found}")
    return found, frame[HEADER:]


def split(frame):
    """Yields the messages of a frame from the node.

    It may have several, each at a multiple of 8 bytes.
    """
    while frame:
        found, rest = decode(frame)
        yield found, rest[:found.len]
        used = HEADER + found.len
        frame = frame[used + -used % 8:]


def fixed(frame):
    """Returns a frame whose header has the right checksum."""
    if len(frame) < HEADER:
        return frame
    bare = frame[:30] + bytes(2) + frame[32:HEADER]
    return bare[:30] + struct.pack("!H", 0xFFFF - folded(bare)) + bare[32:] + frame[HEADER:]


def message(seq, payload=b"", dport=PING_PORT, sport=77, **fields):
    """Returns a message of one frame."""
    return header(seq, len=fields.pop("len", len(payload)), sport=sport, dport=dport, **fields) + payload


def fragments(seq, payload, size=4096, **fields):
    """Returns a message in frames of `size` bytes of payload."""
    return [message(seq, payload[i:i + size], len=len(payload), **fields)
            for i in range(0, len(payload), size)]


def packed(*messages):
    """Returns messages in one frame."""
    frame = b""
    for each in messages:
        frame += bytes(-len(frame) % 8) + each
    return frame


def extension(kind, data=None):
    return bytes([kind]) + (bytes(EXTENSIONS[kind]) if data is None else data)


def introduction(generation, capabilities=0):
    ext = extension(GENERATION, struct.pack("!I", generation))
    return ext + (extension(CAPABILITIES, struct.pack("!I", capabilities)) if capabilities else b"")


def congestion(bits=bytes(MAP), size=4096, ext=b"", **fields):
    """Returns the frames of a congestion update."""
    fields = {"flags": CONG, "len": MAP, "ext": ext, **fields}
    return [header(**fields) + bits[i:i + size] for i in range(0, len(bits), size)]


def private(source, target, major=4, minor=1, mask=3, tos=0, fragment=8192, acked=0, credit=0,
            reserved=0, padding=0):
    """Returns the private data of a request or a reply, in the length of the address family."""
    addresses = b"".join(ipaddress.ip_address(x).packed for x in (source, target))
    return addresses + struct.pack("!BBHBBHQII", major, minor, mask, tos, reserved, fragment, acked,
                                   credit, padding)


Private = namedtuple("Private", "source target major minor mask tos reserved fragment acked credit padding")


def decode_private(data, v6=False):
    size = 16 if v6 else 4
    source, target = (str(ipaddress.ip_address(data[i:i + size])) for i in (0, size))
    return Private(source, target, *struct.unpack_from("!BBHBBHQII", data, 2 * size))
