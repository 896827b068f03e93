# SPDX-License-Identifier: GPL-2.0
"""flow.py send HOST PORT PEER PEERPORT, flow.py recv HOST PORT: messages until a line arrives on
the sender's standard input.

The sender then prints how many it has sent, and the receiver gets this number on its input. If the
receiver gets "more" instead, it prints the number of messages that have arrived, once there are
MORE of them. Each message has its number. All must arrive, in order.
"""

import os
import select
import struct
import sys

from rds import Sock

SIZE = 3000
# More than two sockets hold: some of them were sent later.
MORE = 200


def send(host, port, peer, peer_port):
    with Sock((host, int(port))) as s:
        count = 0
        while not select.select([sys.stdin], [], [], 0)[0]:
            s.send(struct.pack("=I", count).ljust(SIZE, b"x"), (peer, int(peer_port)))
            count += 1
        print("sent", count, flush=True)
        sys.stdin.readline()
        # Closing the socket would cancel messages that are not delivered yet.
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
