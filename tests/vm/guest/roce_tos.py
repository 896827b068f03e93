# SPDX-License-Identifier: GPL-2.0
"""roce_tos.py DEVICE: prints, when a line comes on its input, which type of service RoCE packets of queue
pairs carry, in and out, as JSON. Those of the CM, which has queue pair 1, do not count."""

import json
import select
import socket
import sys

ETH_P_ALL = 3
ROCE_PORT = 4791


def tos_of(frame):
    """The TOS of IPv4 or the traffic class of IPv6 if it is a packet of a queue pair, else None."""
    kind, ip = frame[12:14], frame[14:]
    if kind == b"\x08\x00" and ip[9] == socket.IPPROTO_UDP:
        tos, udp = ip[1], ip[(ip[0] & 15) * 4:]
    elif kind == b"\x86\xdd" and ip[6] == socket.IPPROTO_UDP:
        tos, udp = (ip[0] & 15) << 4 | ip[1] >> 4, ip[40:]
    else:
        return None
    if int.from_bytes(udp[2:4], "big") != ROCE_PORT or int.from_bytes(udp[13:16], "big") == 1:
        return None
    return tos


with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as s:
    s.bind((sys.argv[1], ETH_P_ALL))
    s.setblocking(False)
    print("ready", flush=True)
    seen = {"in": set(), "out": set()}
    ended = False
    while not ended:
        # What came before the line counts.
        ended = sys.stdin in select.select([s, sys.stdin], [], [])[0]
        try:
            while True:
                data, address = s.recvfrom(128)
                if (tos := tos_of(data)) is not None:
                    seen["out" if address[2] == socket.PACKET_OUTGOING else "in"].add(tos)
        except BlockingIOError:
            pass
    print(json.dumps({way: sorted(x) for way, x in seen.items()}), flush=True)
