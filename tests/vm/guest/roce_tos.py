# SPDX-License-Identifier: GPL-2.0
"""roce_tos.py DEVICE HOST: prints the types of service of RoCE packets from and to an address, in
and out, as JSON.

It prints them when a line arrives on standard input. Packets of the CM, which has queue pair 1, do
not count.
"""

import json
import select
import socket
import sys

ETH_P_ALL = 3
ROCE_PORT = 4791


def tos_of(frame, host):
    """Returns the TOS of IPv4 or the traffic class of IPv6 of a packet of a queue pair from or to
    an address.

    Returns None for other packets.
    """
    kind, ip = frame[12:14], frame[14:]
    if kind == b"\x08\x00" and ip[9] == socket.IPPROTO_UDP:
        tos, ends, udp = ip[1], (ip[12:16], ip[16:20]), ip[(ip[0] & 15) * 4:]
    elif kind == b"\x86\xdd" and ip[6] == socket.IPPROTO_UDP:
        tos, ends, udp = (ip[0] & 15) << 4 | ip[1] >> 4, (ip[8:24], ip[24:40]), ip[40:]
    else:
        return None
    if host not in ends:
        return None
    if int.from_bytes(udp[2:4], "big") != ROCE_PORT or int.from_bytes(udp[13:16], "big") == 1:
        return None
    return tos


with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as s:
    netdev, host = sys.argv[1:]
    address = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    s.bind((netdev, ETH_P_ALL))
    s.setblocking(False)
    print("ready", flush=True)
    seen = {"in": set(), "out": set()}
    ended = False
    while not ended:
        # Packets that arrived before the line count.
        ended = sys.stdin in select.select([s, sys.stdin], [], [])[0]
        try:
            while True:
                data, where = s.recvfrom(128)
                if (tos := tos_of(data, address)) is not None:
                    seen["out" if where[2] == socket.PACKET_OUTGOING else "in"].add(tos)
        except BlockingIOError:
            pass
    print(json.dumps({way: sorted(x) for way, x in seen.items()}), flush=True)
