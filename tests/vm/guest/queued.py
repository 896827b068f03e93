# SPDX-License-Identifier: GPL-2.0
"""queued.py send HOST PORT PEER PEERPORT and queued.py recv HOST PORT: three long messages that are
queued without waiting.

The sender stays until a line arrives on its standard input. The receiver checks the messages.
"""

import socket
import sys

from rds import Sock

MESSAGES = [bytes((i * 7 + j * 13 + (j >> 8)) & 0xff for j in range(size))
            for i, size in enumerate((30000, 4097, 16385))]


def main():
    role, host, port, *peer = sys.argv[1:]
    with Sock((host, int(port))) as s:
        if role == "send":
            for message in MESSAGES:
                s.send(message, (peer[0], int(peer[1])), socket.MSG_DONTWAIT)
            print("queued", flush=True)
            sys.stdin.readline()
            return
        print("ready", flush=True)
        for i, expected in enumerate(MESSAGES):
            data, _ = s.recv()
            if data != expected:
                at = next((k for k, (x, y) in enumerate(zip(data, expected)) if x != y), None)
                sys.exit(f"message {i}: {len(data)} bytes of {len(expected)}, wrong from {at} on")
        print("all", flush=True)


main()
