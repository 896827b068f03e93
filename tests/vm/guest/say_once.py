# SPDX-License-Identifier: GPL-2.0
"""say_once.py HOST PORT PEER PEERPORT: one of two programs that send numbers to each other.

Each message is sent once, without other messages before or behind it, so a lost message stays lost.
The program reads lines, and answers each with a line:

send N  sends the next N messages
posted  waits until RDS has handed all of them to the device
reset   resets the connection
read N  reads the next N messages

At the end of the input no message may be unread.
"""

import socket
import struct
import sys

from cases import eventually
from rds import Sock, counters, info
from reset import reset

# RDS_INFO_SEND_MESSAGES: the messages that no connection has sent yet.
SEND_MESSAGES = 10003
NUMBER = struct.Struct("=I")
PATIENCE = 60


def unsent(port):
    """Returns how many messages from this port RDS has not handed to the device yet."""
    rows = (struct.unpack("=QI4s4s2s2sBB", raw) for raw in info(SEND_MESSAGES))
    return sum(row[4] == struct.pack("!H", port) for row in rows)


def read(sock, number):
    """Reads a message, which must have this number."""
    try:
        data, _ = sock.recv()
    except TimeoutError:
        old = counters()["recv_drop_old_seq"]
        sys.exit(f"{number} does not come; this node has taken {old} messages for old")
    if data != NUMBER.pack(number):
        sys.exit(f"{NUMBER.unpack(data)[0]} comes instead of {number}")


def main(host, port, peer, peer_port):
    sent = received = 0
    with Sock((host, port), PATIENCE) as s:
        print("ready", flush=True)
        for line in sys.stdin:
            command, *count = line.split()
            if command == "send":
                for _ in range(int(*count)):
                    s.send(NUMBER.pack(sent), (peer, peer_port))
                    sent += 1
            elif command == "posted":
                eventually("all messages to be posted", lambda: not unsent(port))
            elif command == "reset":
                reset(host, peer)
            else:
                for _ in range(int(*count)):
                    read(s, received)
                    received += 1
            print(f"done: {line}", end="", flush=True)
        try:
            data, _ = s.recv(flags=socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        sys.exit(f"{NUMBER.unpack(data)[0]} comes though all {received} messages have come")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
