# SPDX-License-Identifier: GPL-2.0
"""Packets of RoCE v2, written byte by byte to an ordinary UDP socket, as any program with such a
socket can do.

They are messages of the InfiniBand CM. Every field can differ from what the RDMA CM of a kernel
writes.
"""

import ctypes
import ipaddress
import random
import socket
import struct
import time
import zlib
from collections import namedtuple

from peer import PATIENCE, PORTS, PeerError

PORT = 4791
# A number, the port space of TCP, and the port.
SERVICE = 0x0106 << 16
UD_SEND_ONLY, WITH_CM, CM_CLASS = 0x64, 0x80010000, 7
REQ, REJ, REP, DREQ = 0x10, 0x12, 0x13, 0x15
IP_MTU_DISCOVER, IP_PMTUDISC_DO, IP_FREEBIND = 10, 2, 15
ETH_P_ALL, ETH_P_IP = 3, 0x0800
# Bytes of a REQ before the private data of the RDMA CM's user.
REQ_HEAD = 140 + 36


def packed(address):
    return ipaddress.ip_address(address).packed


def gid(address):
    """Returns an IP address in the form of RoCE: IPv4 in the mapped form."""
    return packed(address).rjust(16, b"\0") if ":" in address else bytes(10) + b"\xff\xff" + packed(address)


def cma_header(source, target, port=0):
    """Returns the bytes that the RDMA CM puts before the private data of its user."""
    version = 6 if ":" in source else 4
    return struct.pack("!BBH", 0, version << 4, port) + b"".join(packed(x).rjust(16, b"\0") for x in (source, target))


def cm_message(kind, number, fields):
    head = struct.pack("!BBBBHHQHHI", 1, CM_CLASS, 2, 3, 0, 0, number, kind, 0, 0)
    return (head + fields).ljust(256, b"\0")


def request(header, private, gids, guid, qpn, number, timeout=22):
    """Returns a request for a connection with a queue pair. The PSN of its first packet is the
    number of the queue pair.

    `number` is that of the request. `gids` are the sender's and the receiver's, `header` the
    addresses that it claims for them. The peer has 4 us * 2^timeout to acknowledge packets, and the
    node's CM keeps a connection in timewait for about as long. Nothing acknowledges packets here,
    so this takes 17 s by default.
    """
    source, target = header
    fields = struct.pack("!I4xQQ4xI", number, SERVICE + PORTS[":" in target], guid, 0)
    # Depths of 1, timeouts of 4 s, a reliable connection, 7 retries, an MTU of 1024.
    fields += struct.pack("!IIII", qpn << 8 | 1, 1, 20 << 3, qpn << 8 | 20 << 3 | 7)
    fields += struct.pack("!HBB", 0xFFFF, 3 << 4 | 7, 15 << 4)
    fields += struct.pack("!HH", 0xFFFF, 0xFFFF) + b"".join(gids)
    fields += struct.pack("!IBBBB", 0, 0, 64, 0, timeout << 3) + bytes(44)
    return cm_message(REQ, number, fields + cma_header(source, target) + private)


def rejection(local, remote, rejected, reason, length=0, ari=b"", private=b""):
    """Returns a rejection of a kind of message (0: REQ, 1: REP, 2: none of them).

    `local` and `remote` are the numbers of the sender and of the receiver. `length` is the length
    that it states for the additional information.
    """
    fields = struct.pack("!IIBBH", local, remote, rejected << 6, length << 1, reason)
    return cm_message(REJ, local, fields + ari.ljust(72, b"\0") + private)


def disconnection(local, remote, qpn):
    """Returns a DREQ.

    `local` and `remote` are the numbers of the sender and of the receiver, which has the queue
    pair.
    """
    return cm_message(DREQ, local, struct.pack("!III", local, remote, qpn << 8))


# A message of the CM. The numbers are those of its sender and its receiver; a REQ has only the
# first.
Message = namedtuple("Message", "source target kind local remote fields")


# BPF for IPv4 packets that are datagrams of RoCE: each byte or half-word at an offset has a value.
LOAD_BYTE, LOAD_HALF, UNLESS, RETURN = 0x30, 0x28, 0x15, 0x06
DATAGRAMS = ((LOAD_BYTE, 0, 0, 9), (UNLESS, 0, 5, socket.IPPROTO_UDP), (LOAD_HALF, 0, 0, 22), (UNLESS, 0, 3, PORT),
             (LOAD_BYTE, 0, 0, 28), (UNLESS, 0, 1, UD_SEND_ONLY), (RETURN, 0, 0, 0xFFFF), (RETURN, 0, 0, 0))
SO_ATTACH_FILTER = 26


class Wire:
    """Messages of the CM over IPv4 that pass a network device in either direction, even if RDMA
    does not take them."""

    def __init__(self, device):
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *x) for x in DATAGRAMS))
        # Other traffic would fill the buffer.
        self.sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", len(DATAGRAMS), ctypes.addressof(code)))
        self.sock.bind((device, ETH_P_ALL))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def hardware(self):
        """Returns the hardware address of the device."""
        return self.sock.getsockname()[4].hex(":")

    def next(self, seconds=PATIENCE):
        """Returns the next message, or None if there is none in that time."""
        deadline = time.monotonic() + seconds
        while True:
            self.sock.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                packet, where = self.sock.recvfrom(2048)
            except TimeoutError:
                return None
            # The headers of IP, UDP, InfiniBand, and datagrams; then the message.
            of_cm = where[1] == ETH_P_IP and packet[9:10] == b"\x11" and packet[22:24] == PORT.to_bytes(2, "big")
            if of_cm and packet[28] == UD_SEND_ONLY and len(packet) >= 304 and packet[49] == CM_CLASS:
                fields = packet[72:304]
                local, remote = struct.unpack_from("!II", fields)
                source, target = (str(ipaddress.ip_address(packet[i:i + 4])) for i in (12, 16))
                return Message(source, target, int.from_bytes(packet[64:66], "big"), local, remote, fields)

    def await_message(self, kind, source, target):
        """Returns the next message of that kind from `source` to `target`."""
        while (found := self.next()) is not None:
            if (found.kind, found.source, found.target) == (kind, source, target):
                return found
        raise PeerError(f"no message {kind:#x} of the CM came from {source}")


def checked(ip, udp, payload):
    """Returns a payload with its ICRC, which also covers the headers, with ones in fields that
    change in transit."""
    masked = payload[:4] + b"\xff" + payload[5:]
    return payload + struct.pack("<I", zlib.crc32(b"\xff" * 8 + ip + udp + masked))


def send_cm(source, target, message):
    """Sends a message to the CM of `target`, from a local address."""
    deth = struct.pack("!II", WITH_CM, 1)
    send(source, target, UD_SEND_ONLY, 1, random.getrandbits(24), deth + message)


def send(source, target, opcode, qpn, psn, payload):
    """Sends a packet to a queue pair."""
    v6 = ":" in source
    payload = struct.pack("!BBHII", opcode, 0x40, 0xFFFF, qpn, psn) + payload
    with socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        if not v6:
            # Also if packets for that address are not delivered to this namespace.
            sock.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
        sock.bind((source, 0))
        length = 8 + len(payload) + 4
        if v6:
            ip = struct.pack("!IHBB", 0x6FFFFFFF, length, 17, 0xFF)
        else:
            # Gives the packet the number 0.
            sock.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
            ip = struct.pack("!BBHHHBBH", 0x45, 0xFF, 20 + length, 0, 0x4000, 0xFF, 17, 0xFFFF)
        udp = struct.pack("!HHHH", sock.getsockname()[1], PORT, length, 0xFFFF)
        sock.sendto(checked(ip + packed(source) + packed(target), udp, payload), (target, PORT))
