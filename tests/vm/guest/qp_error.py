# SPDX-License-Identifier: GPL-2.0
"""qp_error.py ROLE OWN PEER [QPN PSN]: breaks an idle connection from outside, and tells how long it takes
until RDS messages are answered again, in milliseconds of this machine's clock.

"spoiler" breaks its peer's end. If that is soft-RoCE, it sends the queue pair QPN the end of a message
that never began. Such a packet ends a queue pair by the InfiniBand specification, if it comes from the
right address and has the number that is due, PSN. Without QPN and PSN it is soft-iWARP, and the packet
resets the TCP connection. "victim" waits to be told that this was done. ROLE may end in "-silent": then
nothing is sent from here.
"""

import socket
import struct
import sys
import time
import zlib

from rds import Sock

ETH_P_IP = 0x0800
TELL_PORT = 4799
ROCE_PORT, SEND_LAST, DEFAULT_PKEY = 4791, 0x02, 0xFFFF
RESET = 0x04
# Nothing on the wire for so long, in seconds: a connection counts as proven, and as idle.
IDLE = 1.5


def ip_header(own, peer, protocol, size, tos=0, ttl=64, check=0):
    """The kernel fills in the checksum."""
    return struct.pack("!BBHHHBBH4s4s", 0x45, tos, 20 + size, 1, 0x4000, ttl, protocol, check,
                       socket.inet_aton(own), socket.inet_aton(peer))


def lone_end(own, peer, qpn, psn):
    """The last packet of a message. The ICRC covers all of it but for what a router may change."""
    def packet(udp_check, reserved, **ip):
        payload = bytes(4)
        size = 8 + 12 + len(payload) + 4
        return (ip_header(own, peer, socket.IPPROTO_UDP, size, **ip)
                + struct.pack("!HHHH", ROCE_PORT, ROCE_PORT, size, udp_check)
                + struct.pack("!BBHII", SEND_LAST, 0, DEFAULT_PKEY, reserved << 24 | qpn, psn)
                + payload)

    masked = b"\xff" * 8 + packet(0xFFFF, 0xFF, tos=0xFF, ttl=0xFF, check=0xFFFF)
    return packet(0, 0) + struct.pack("<I", zlib.crc32(masked))


def last_segment(packets, own, peer):
    """Ports of the peer and of our own, and what the peer has acknowledged, when all has been said."""
    found = None
    packets.settimeout(IDLE)
    while True:
        try:
            data = packets.recv(128)
        except TimeoutError:
            return found
        tcp = data[(data[0] & 15) * 4:]
        ends = (socket.inet_aton(peer), socket.inet_aton(own))
        if data[9] == socket.IPPROTO_TCP and (data[12:16], data[16:20]) == ends:
            found = struct.unpack_from("!HHxxxxI", tcp)


def tcp_reset(own, peer, segment):
    theirs, ours, number = segment
    header = struct.pack("!HHIIBBHHH", ours, theirs, number, 0, 5 << 4, RESET, 0, 0, 0)
    pseudo = socket.inet_aton(own) + socket.inet_aton(peer) + struct.pack(
        "!BBH", 0, socket.IPPROTO_TCP, len(header))
    total = sum(struct.unpack(f"!{len(pseudo + header) // 2}H", pseudo + header))
    total = (total & 0xFFFF) + (total >> 16)
    check = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    return (ip_header(own, peer, socket.IPPROTO_TCP, len(header))
            + header[:16] + struct.pack("!H", check) + header[18:])


def ping(rds, peer):
    rds.send(b"", (peer, 0))
    rds.recv()


role, own, peer, *rest = sys.argv[1:]
with (Sock((own, 0), timeout=60) as rds, socket.socket(type=socket.SOCK_DGRAM) as told,
      socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_IP)) as packets,
      socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw):
    told.bind((own, TELL_PORT))
    print("ready", flush=True)
    if role.startswith("spoiler"):
        if rest:
            packet = lone_end(own, peer, *map(int, rest))
        else:
            ping(rds, peer)
            packet = tcp_reset(own, peer, last_segment(packets, own, peer))
        start = time.monotonic()
        raw.sendto(packet, (peer, 0))
        told.sendto(b"done", (peer, TELL_PORT))
    else:
        told.recv(4)
        start = time.monotonic()
    if not role.endswith("-silent"):
        ping(rds, peer)
        print(round(1000 * (time.monotonic() - start), 1))
