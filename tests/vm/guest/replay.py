# SPDX-License-Identifier: GPL-2.0
"""replay.py HOST PEER PORT TOS: sends messages within this node over a connection.

TOS is its type of service. The connection is reset, until a message is sent again. The output is
one JSON object: the payload bytes, the seconds of the clock, and the lines of both ends in debugfs.
"""

import json
import sys
import time

from cases import eventually
from rds import Sock, read_numbered
from reset import reset

# The port must not become congested, as nobody reads before the reset. A message occupies 8 KiB.
SIZE, COUNT = 5000, 16
FILE = "/sys/kernel/debug/rds/connections"


def line(host, peer, tos):
    """Returns {word: value} of a connection."""
    with open(FILE, encoding="utf-8") as f:
        return next(dict(x.split("=") for x in words.split()) for what, _, words in (x.partition(": ") for x in f)
                    if what == f"{host} -> {peer} tos {tos}")


def main():
    host, peer, port, tos = *sys.argv[1:3], *map(int, sys.argv[3:])
    sent, before = 0, int(time.time())

    with Sock((host, 0), 60) as s, Sock((peer, port), 60) as r:
        s.set_tos(tos)

        def attempt():
            nonlocal sent
            for number in range(COUNT):
                s.send(number.to_bytes(4, sys.byteorder).ljust(SIZE, b"x"), r.name())
            reset(host, peer, tos)
            read_numbered(r, COUNT, SIZE)
            sent += COUNT * SIZE
            return int(line(host, peer, tos)["retransmissions"]) > 0

        eventually("a message that is sent again", attempt)
        eventually("the last acknowledgement", lambda: line(host, peer, tos)["unacked"] == "0")
        print(json.dumps({"bytes": sent, "from": before, "to": int(time.time()),
                          "ends": [line(host, peer, tos), line(peer, host, tos)]}))


if __name__ == "__main__":
    main()
