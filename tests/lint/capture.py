# SPDX-License-Identifier: GPL-2.0
"""Captures that a test composes: packets of RoCE, InfiniBand, iWARP and TCP in the format of pcap.

Sequence numbers count on by themselves, for each flow.
"""

import struct
import sys
from collections import defaultdict
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / x) for x in ("vm", "vm/guest")]

import frames  # noqa: E402, F401
import roce  # noqa: E402
import tshark  # noqa: E402, F401

TOP = Path(__file__).resolve().parents[2]
# The record of a capture card (ERF), as which tcpdump captures from an adapter.
ETHERNET, INFINIBAND = 1, 197
ERF_INFINIBAND = 21
SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY, WRITE_ONLY = 0, 1, 2, 4, 10
MTU = 1024
A, B = "192.0.2.1", "192.0.2.2"
A6, B6 = "2001:db8::1", "2001:db8::2"


def ip(source, target, protocol, payload):
    """Returns a packet of IPv4 or IPv6."""
    ends = roce.packed(source) + roce.packed(target)
    if ":" in source:
        return struct.pack("!IHBB", 0x60000000, len(payload), protocol, 64) + ends + payload
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0x4000, 64, protocol, 0)
    return head + ends + payload


def ethernet(packet):
    kind = 0x86DD if packet[0] >> 4 == 6 else 0x0800
    return bytes.fromhex("020000000002020000000001") + struct.pack("!H", kind) + packet


class Capture:
    """A capture of one kind of link."""

    def __init__(self, link=ETHERNET):
        self.link, self.packets = link, []
        self.psn, self.tcp = defaultdict(int), defaultdict(lambda: 1)
        self.msn = defaultdict(int)

    def add(self, packet, cut=None):
        """Adds a packet. `cut` is the number of bytes that the capture has of it."""
        self.packets.append((packet[:cut], len(packet)))

    def write(self, path):
        with open(path, "wb") as out:
            out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, self.link))
            for number, (packet, length) in enumerate(self.packets):
                out.write(struct.pack("<IIII", 1, number, len(packet), length) + packet)
        return path

    def transport(self, source, target, opcode, qp, payload, cut=None, number=None):
        """Adds a packet of a queue pair."""
        flow = (target, qp)
        if number is None:
            number, self.psn[flow] = self.psn[flow], self.psn[flow] + 1
        pad = -len(payload) % 4
        body = struct.pack("!BBHII", opcode, 0x40 | pad << 4, 0xFFFF, qp, number) + payload + bytes(pad)
        if self.link == INFINIBAND:
            # Local route header; both checksums are not verified.
            words = (8 + len(body) + 4) // 4
            packet = struct.pack("!BBHHH", 0, 2, int(target), words, int(source)) + body + bytes(6)
            record = struct.pack("!BBHHH", ERF_INFINIBAND, 4, 16 + len(packet[:cut]), 0, len(packet))
            self.add(bytes(8) + record + packet[:cut])
        else:
            udp = struct.pack("!HHHH", 49152, roce.PORT, 8 + len(body) + 4, 0)
            self.add(ethernet(ip(source, target, 17, udp + body + bytes(4))), cut)

    def send(self, source, target, qp, frame):
        """Adds the packets of a frame."""
        parts = [frame[i:i + MTU] for i in range(0, len(frame), MTU)] or [b""]
        for at, part in enumerate(parts):
            last = at == len(parts) - 1
            opcode = (SEND_ONLY if last else SEND_FIRST) if at == 0 else SEND_LAST if last else SEND_MIDDLE
            self.transport(source, target, opcode, qp, part)

    def connection_manager(self, source, target, message):
        """Adds a message of the CM of RoCE."""
        self.transport(source, target, roce.UD_SEND_ONLY, 1, struct.pack("!II", roce.WITH_CM, 1) + message)

    def segment(self, source, target, sport, dport, data, cut=None):
        """Adds a segment of TCP."""
        flow = (source, target, sport, dport)
        head = struct.pack("!HHIIBBHHH", sport, dport, self.tcp[flow], 1, 5 << 4, 0x18, 8192, 0, 0)
        self.tcp[flow] += len(data)
        self.add(ethernet(ip(source, target, 6, head + data)), cut)

    def stream(self, source, target, sport, dport, data, size=1400):
        """Adds the segments of data."""
        for i in range(0, len(data), size):
            self.segment(source, target, sport, dport, data[i:i + size])

    def mpa(self, source, target, sport, dport, private, reply=False, enhanced=False):
        """Adds the frame of iWARP that asks for a connection, or that grants it."""
        if enhanced:
            private = struct.pack("!HH", 16, 16) + private
        key = b"MPA ID Rep Frame" if reply else b"MPA ID Req Frame"
        head = struct.pack("!BBH", 0x10 if enhanced else 0, 2 if enhanced else 1, len(private))
        self.segment(source, target, sport, dport, key + head + private)

    def iwarp_send(self, source, target, sport, dport, frame, size=1200):
        """Adds the segments of a SEND of iWARP, one in each segment of TCP."""
        flow = (source, target, sport, dport)
        self.msn[flow] += 1
        for at in range(0, len(frame), size):
            part = frame[at:at + size]
            last = at + size >= len(frame)
            # Untagged, DDP version 1; RDMAP version 1, SEND.
            body = struct.pack("!BBIIII", 0x41 if last else 1, 0x43, 0, 0, self.msn[flow], at) + part
            whole = struct.pack("!H", len(body)) + body
            self.segment(*flow, whole + bytes(-len(whole) % 4) + bytes(4))


def reply(local, remote, qp, private):
    """Returns a reply of the CM to the request with the number `remote`."""
    return roce.cm_message(roce.REP, remote, struct.pack("!IIII", local, remote, 0, qp << 8) + bytes(20) + private)
