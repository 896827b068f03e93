# SPDX-License-Identifier: GPL-2.0
"""flow.py send HOST PORT PEER PEERPORT, flow.py recv HOST PORT: messages without end, until a line comes on the sender's
input. It says how many it has sent, and the receiver is told that on its input; or "more", and it says how
many have come once these are MORE. Each has its number; all must come, in order."""

import os
import select
import struct
import sys

from rds import Sock

SIZE = 3000
# More than two sockets hold: some were sent since.
MORE = 200


def send(host, port, peer, peer_port):
    with Sock((host, int(port))) as s:
        count = 0
        while not select.select([sys.stdin], [], [], 0)[0]:
            s.send(struct.pack("=I", count).ljust(SIZE, b"x"), (peer, int(peer_port)))
            count += 1
        print("sent", count, flush=True)
        sys.stdin.readline()
        # Closing would take back what is not yet delivered.
        sys.stdin.readline()


def recv(host, port):
    with Sock((host, int(port))) as s:
        print("ready", flush=True)
        count = 0
        due = wanted = None
        while count != due:
            ready, _, _ = select.select([s, sys.stdin], [], [])
            if s in ready:
                data, _ = s.recv(2 * SIZE)
                number, = struct.unpack_from("=I", data)
                if (number, len(data)) != (count, SIZE):
                    sys.exit(f"message {count} is number {number} of {len(data)} bytes")
                count += 1
            if sys.stdin in ready:
                line = os.read(0, 20)
                if line == b"more\n":
                    wanted = count + MORE
                else:
                    due = int(line)
            if count == wanted:
                print("more", count, flush=True)
        print("all", count, flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
