# SPDX-License-Identifier: GPL-2.0
"""tcp_silent_paths.py HOST TCP_PORT: a peer like C RDS with eight paths, whose host has a higher
address than the node. It answers probes on the first path, and reads what comes on the others. It
sends nothing there: C RDS sends its map on the path that transmits next. Prints the number of a
path when it is connected."""

import socket
import sys
import threading

from tcp_peer import CONG_BITMAP, HEADER, congestion_map, header, take

host, tcp_port = sys.argv[1], int(sys.argv[2])
EXTENSIONS = b"\x05\x00\x08" + b"\x06\x01\x02\x03\x04" + b"\x08\x00"


def first_path(s):
    s.sendall(congestion_map())
    sequence = 0
    while True:
        _, _, length, sport, dport, flags, _, _ = HEADER.unpack(take(s, HEADER.size))
        take(s, length)
        if flags & CONG_BITMAP == 0 and (sport, dport) == (1, 0):
            sequence += 1
            s.sendall(header(sequence, sport=0, dport=1, extensions=EXTENSIONS))


def other_path(s):
    while s.recv(1 << 16):
        pass


with socket.create_server((host, tcp_port)) as listener:
    print("ready", flush=True)
    while True:
        made, (_, port) = listener.accept()
        print(port % 8, flush=True)
        threading.Thread(target=other_path if port % 8 else first_path, args=(made,), daemon=True).start()
