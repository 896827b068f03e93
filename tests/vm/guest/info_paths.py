# SPDX-License-Identifier: GPL-2.0
"""info_paths.py HOST PEER NOWHERE PORT TOS: prints the records of RDS_INFO_CONN_PATHS, the table of
Oracle's kernels.

They are those of a connection within this node with this type of service, when it is up and after a
reset. One more is of a connection to an address that no host has. The output is one JSON object.
"""

import ctypes
import json
import socket
import struct
import sys
import time

from cases import eventually
from info import ask
from rds import SOL_RDS, Sock, info, libc
from reset import exchange, reset

PATHS, PATHS6 = 10020, 10021
LAYOUT = struct.Struct("=16s16s16sBBqqqIIIBQQQQQi")
FIELDS = ("transport", "tos", "npaths", "attempted", "connected", "reset", "reason", "attempts", "index", "flags",
          "next_tx", "next_rx", "send_bytes", "recv_bytes", "retransmissions", "cpu")


def text(raw):
    """Returns an address. An IPv4 address is a mapped one."""
    return socket.inet_ntop(socket.AF_INET6, raw).removeprefix("::ffff:")


def rows(option):
    """Returns {(local address, peer, type of service): record}."""
    found = {}
    for raw in info(option):
        local, peer, transport, *rest = LAYOUT.unpack(raw)
        row = dict(zip(FIELDS, (transport.rstrip(b"\0").decode(), *rest), strict=True))
        found[text(local), text(peer), row["tos"]] = row
    return found


def row(*key):
    return rows(PATHS6)[key]


def span(function, *args):
    """Calls a function, and returns the seconds of the clock before and after it."""
    before = int(time.time())
    function(*args)
    return before, int(time.time())


def short(option):
    """Reads the table with each length that is too short by a byte, or by all of them."""
    needed = len(info(option)) * LAYOUT.size
    told = [ask(option, length) for length in (0, needed - 1)]
    with Sock() as s:
        size, buffer = ctypes.c_int(needed), ctypes.create_string_buffer(needed)
        each = libc.getsockopt(s.fileno(), SOL_RDS, option, buffer, ctypes.byref(size))
    return {"needed": needed, "short": told, "each": each, "length": size.value}


def main():
    host, peer, nowhere, port, tos = *sys.argv[1:4], *map(int, sys.argv[4:])
    ends = [(host, peer, tos), (peer, host, tos)]
    seen = {}

    def show(name, times, *keys):
        six, four = rows(PATHS6), rows(PATHS)
        seen[name] = {"from": times[0], "to": times[1], "rows": [six[key] for key in keys],
                      "in_the_other": sum(key in four for key in keys)}

    show("up", span(exchange, host, peer, port, tos), *ends)

    def reset_and_use():
        reset(host, peer, tos)
        eventually("the reset of both ends", lambda: all(row(*key)["reset"] for key in ends))
        exchange(host, peer, port, tos)

    show("reset", span(reset_and_use), *ends)

    with Sock((host, 0)) as s:
        s.set_tos(tos)

        def fail():
            s.send(b"lost", (nowhere, port), socket.MSG_DONTWAIT)
            eventually("attempts that fail", lambda: row(host, nowhere, tos)["attempts"] > 2)

        show("nowhere", span(fail), (host, nowhere, tos))
    seen["lengths"] = [short(option) for option in (PATHS, PATHS6)]
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
