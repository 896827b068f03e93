# SPDX-License-Identifier: GPL-2.0
"""Packets of RoCE v2, written byte by byte to an ordinary UDP socket, as any program can that has one: messages of the
InfiniBand CM, in which every field can be another than the RDMA CM of a kernel would write."""

import ipaddress
import random
import socket
import struct
import zlib

from peer import PORTS

PORT = 4791
# A number, the port space of TCP, and the port.
SERVICE = 0x0106 << 16
UD_SEND_ONLY, WITH_CM, CM_CLASS, REQ = 0x64, 0x80010000, 7, 0x10
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2


def packed(address):
    return ipaddress.ip_address(address).packed


def gid(address):
    """An IP address as RoCE has it: IPv4 in the mapped form."""
    return packed(address).rjust(16, b"\0") if ":" in address else bytes(10) + b"\xff\xff" + packed(address)


def cma_header(source, target, port=0):
    """What the RDMA CM puts before the private data of its user."""
    version = 6 if ":" in source else 4
    return struct.pack("!BBH", 0, version << 4, port) + b"".join(packed(x).rjust(16, b"\0") for x in (source, target))


def cm_message(kind, number, fields):
    head = struct.pack("!BBBBHHQHHI", 1, CM_CLASS, 2, 3, 0, 0, number, kind, 0, 0)
    return (head + fields).ljust(256, b"\0")


def request(header, private, gids, guid, qpn, number):
    """A request for a connection with a queue pair, whose first packet has its number, too; `number` is that of the
    request. `gids` are the sender's and the receiver's, `header` the addresses that it claims for them."""
    source, target = header
    fields = struct.pack("!I4xQQ4xI", number, SERVICE + PORTS[":" in target], guid, 0)
    # Depths of 1, timeouts of 4 s, a reliable connection, 7 retries, an MTU of 1024.
    fields += struct.pack("!IIII", qpn << 8 | 1, 1, 20 << 3, qpn << 8 | 20 << 3 | 7)
    fields += struct.pack("!HBB", 0xFFFF, 3 << 4 | 7, 15 << 4)
    fields += struct.pack("!HH", 0xFFFF, 0xFFFF) + b"".join(gids)
    # Nothing acknowledges what is sent to the queue pair: the sender has 17 s.
    fields += struct.pack("!IBBBB", 0, 0, 64, 0, 22 << 3) + bytes(44)
    return cm_message(REQ, number, fields + cma_header(source, target) + private)


def checked(ip, udp, payload):
    """A payload with its ICRC: over the headers, too, in which what changes on the way is ones."""
    masked = payload[:4] + b"\xff" + payload[5:]
    return payload + struct.pack("<I", zlib.crc32(b"\xff" * 8 + ip + udp + masked))


def send_cm(source, target, message):
    """Sends a message to the CM of `target`, from an address of our own."""
    deth = struct.pack("!II", WITH_CM, 1)
    send(source, target, UD_SEND_ONLY, 1, random.getrandbits(24), deth + message)


def send(source, target, opcode, qpn, psn, payload):
    """Sends a packet to a queue pair."""
    v6 = ":" in source
    payload = struct.pack("!BBHII", opcode, 0x40, 0xFFFF, qpn, psn) + payload
    with socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((source, 0))
        length = 8 + len(payload) + 4
        if v6:
            ip = struct.pack("!IHBB", 0x6FFFFFFF, length, 17, 0xFF)
        else:
            # So the packet has the number 0.
            sock.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
            ip = struct.pack("!BBHHHBBH", 0x45, 0xFF, 20 + length, 0, 0x4000, 0xFF, 17, 0xFFFF)
        udp = struct.pack("!HHHH", sock.getsockname()[1], PORT, length, 0xFFFF)
        sock.sendto(checked(ip + packed(source) + packed(target), udp, payload), (target, PORT))
