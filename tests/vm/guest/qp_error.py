# SPDX-License-Identifier: GPL-2.0
"""qp_error.py ROLE OWN PEER [rxe QPN PSN | siw PORT PEERPORT]: breaks an idle connection from
outside.

Waits until RDS messages are answered again. "spoiler" breaks the queue pair of its peer. "victim"
waits for a message that this was done. ROLE may end in "-silent": then nothing is sent from here.

On soft-RoCE it sends to queue pair QPN the end of a message that never began. By the InfiniBand
specification such a packet ends a queue pair, if it comes from the right address and has the
expected number, PSN. On soft-iWARP it resets the peer's end of the TCP connection between two
ports.
"""

import socket
import struct
import sys
import zlib

from rds import Sock

TELL_PORT = 4799
ROCE_PORT, SEND_LAST, DEFAULT_PKEY = 4791, 0x02, 0xFFFF
SYN, RST, ACK = 0x02, 0x04, 0x10


def ip_header(own, peer, protocol, size, tos=0, ttl=64, check=0):
    """Returns an IPv4 header. The kernel fills in the checksum."""
    return struct.pack("!BBHHHBBH4s4s", 0x45, tos, 20 + size, 1, 0x4000, ttl, protocol, check,
                       socket.inet_aton(own), socket.inet_aton(peer))


def lone_end(own, peer, qpn, psn):
    """Returns the last packet of a message.

    The ICRC covers all of it except what a router may change.
    """
    def packet(udp_check, reserved, **ip):
        payload = bytes(4)
        size = 8 + 12 + len(payload) + 4
        return (ip_header(own, peer, socket.IPPROTO_UDP, size, **ip)
                + struct.pack("!HHHH", ROCE_PORT, ROCE_PORT, size, udp_check)
                + struct.pack("!BBHII", SEND_LAST, 0, DEFAULT_PKEY, reserved << 24 | qpn, psn)
                + payload)

    masked = b"\xff" * 8 + packet(0xFFFF, 0xFF, tos=0xFF, ttl=0xFF, check=0xFFFF)
    return packet(0, 0) + struct.pack("<I", zlib.crc32(masked))


def segment(own, peer, ports, number, flag):
    """Returns a TCP segment without data. Its checksum covers the addresses, too."""
    def with_check(check):
        return struct.pack("!HHIIBBHHH", *ports, number, 0, 5 << 4, flag, 0, check, 0)

    covered = (socket.inet_aton(own) + socket.inet_aton(peer)
               + struct.pack("!HH", socket.IPPROTO_TCP, 20) + with_check(0))
    total = sum(struct.unpack("!16H", covered))
    return with_check(~((total & 0xFFFF) + (total >> 16)) & 0xFFFF)


def break_roce(own, peer, qpn, psn):
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        raw.sendto(lone_end(own, peer, qpn, psn), (peer, 0))


def break_iwarp(own, peer, *ports):
    """Sends a TCP reset, which must have the expected sequence number.

    The peer reports this number in its answer to a new SYN from the same port (RFC 5961).
    """
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as raw:
        raw.bind((own, 0))
        raw.connect((peer, 0))
        raw.settimeout(30)
        raw.send(segment(own, peer, ports, 0, SYN))
        while True:
            answer = raw.recv(64)[20:]
            *found, _, due, _, flags = struct.unpack("!HHIIBB", answer[:14])
            if tuple(found) == ports[::-1] and flags == ACK:
                break
        raw.send(segment(own, peer, ports, due, RST))


def ping(rds, peer):
    rds.send(b"", (peer, 0))
    rds.recv()


role, own, peer, *rest = sys.argv[1:]
with Sock((own, 0), timeout=60) as rds, socket.socket(type=socket.SOCK_DGRAM) as told:
    told.bind((own, TELL_PORT))
    print("ready", flush=True)
    if role.startswith("spoiler"):
        kind, *numbers = rest
        spoil = {"rxe": break_roce, "siw": break_iwarp}[kind]
        spoil(own, peer, *map(int, numbers))
        told.sendto(b"done", (peer, TELL_PORT))
    else:
        told.recv(4)
    if not role.endswith("-silent"):
        ping(rds, peer)
