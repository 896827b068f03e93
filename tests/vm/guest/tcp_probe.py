# SPDX-License-Identifier: GPL-2.0
"""tcp_probe.py HOST PEER TCP_PORT: probes of multipath peers, as the versions of C RDS send them,
to a node of this module with one path. HOST is the lower address. Prints the number of probes, and
that of connections for other paths, which the node resets."""

import errno
import socket
import sys

from tcp_peer import CONG_BITMAP, HEADER, congestion_map, probe, take

host, peer, tcp_port = *sys.argv[1:3], int(sys.argv[3])
EIGHT, GENERATION, PORT_INDEX = b"\x05\x00\x08", b"\x06\x01\x02\x03\x04", b"\x08\x00"
PROBES = [EIGHT + GENERATION + PORT_INDEX, EIGHT + PORT_INDEX, EIGHT + GENERATION, EIGHT, b""]


def answer(s):
    """Returns the extensions of the next answer to a probe."""
    while True:
        _, _, length, sport, dport, flags, _, extensions = HEADER.unpack(take(s, HEADER.size))
        take(s, length)
        if flags & CONG_BITMAP == 0 and (sport, dport) == (0, 1):
            return extensions


def connect(path):
    """Connects from a port of the path with this index. None of them is of the range that nodes
    use."""
    for port in range(61000 + path, 65536, 8):
        try:
            s = socket.create_connection((peer, tcp_port), 60, (host, port))
        except OSError as error:
            # An earlier connection had this port.
            if error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
                continue
            raise
        s.sendall(congestion_map())
        return s
    sys.exit("no port is free")


def is_reset(path):
    """Returns whether the node resets a connection that has no message yet."""
    try:
        with connect(path) as s:
            return s.recv(1) == b""
    except (ConnectionResetError, BrokenPipeError):
        return True


found = set()
resets = 0
for first in 1, 100:
    with connect(0) as s:
        for number, extensions in enumerate(PROBES, first):
            s.sendall(probe(number, extensions))
            found.add(answer(s))
        for path in range(1, 8):
            assert is_reset(path), f"the node takes path {path} for the first one"
            resets += 1
        # The first path is up as before.
        s.sendall(probe(first + len(PROBES)))
        found.add(answer(s))
# One path, and no generation: C RDS would drop messages of the connection that has it.
assert found == {b"\x05\x00\x01\x08" + bytes(12)}, found
print(2 * (len(PROBES) + 1), resets)
