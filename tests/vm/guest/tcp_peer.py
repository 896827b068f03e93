# SPDX-License-Identifier: GPL-2.0
"""A peer over TCP, without RDS: headers as C RDS sends them, and the beginning and end of
connections."""

import socket
import struct


# Sequence, ack, length, ports, flags, checksum and extensions.
HEADER = struct.Struct("!QQIHHBx4xH16s")
MAP_BYTES, CONG_BITMAP = 8192, 1


def header(sequence, length=0, sport=77, dport=78, flags=0, extensions=b""):
    """Returns a header. Only the congestion map has flag 1, and no message has sequence 0."""
    return HEADER.pack(sequence, 0, length, sport, dport, flags, 0, extensions)


def congestion_map():
    """Returns the first frame of C RDS: no port is congested."""
    return header(0, MAP_BYTES, 0, 0, CONG_BITMAP) + bytes(MAP_BYTES)


def probe(sequence, extensions=b""):
    """Returns a question of C RDS for the number of paths."""
    return header(sequence, sport=1, dport=0, extensions=extensions)


def take(s, length):
    """Returns the next bytes of a connection."""
    data = b""
    while len(data) < length:
        received = s.recv(length - len(data))
        assert received, "the node has ended the connection"
        data += received
    return data


def connect(host, peer, port, timeout=60):
    """Returns a connection of a host to a node."""
    s = socket.create_connection((peer, port), source_address=(host, 0))
    s.settimeout(timeout)
    return s


def refused(s):
    """Waits until the node has ended a connection, and closes it. The node must send nothing."""
    with s:
        try:
            assert s.recv(1) == b"", "the node has answered"
        except ConnectionResetError:
            pass


def ask(host, peer, port):
    """Makes a connection without a message, which asks a node with a lower address to connect."""
    try:
        refused(connect(host, peer, port))
    except ConnectionResetError:
        # Before the handshake was over here.
        pass


def ended(s):
    """Waits until the node has ended a connection. Its congestion map comes first."""
    try:
        while s.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
