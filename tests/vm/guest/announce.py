# SPDX-License-Identifier: GPL-2.0
"""announce.py DEVICE ADDRESS: announces to neighbours that this network device has an address, as a
failover does.

Sends a gratuitous ARP request, or an unsolicited neighbour advertisement.
"""

import socket
import struct
import sys

ETH_P_ARP = 0x0806
ALL_NODES = "ff02::1"
ADVERTISEMENT, OVERRIDE, TARGET_LINK_ADDRESS = 136, 1 << 29, 2

device, address = sys.argv[1:]
with open(f"/sys/class/net/{device}/address", encoding="ascii") as f:
    mac = bytes.fromhex(f.read().strip().replace(":", ""))
if ":" in address:
    with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as s:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
        s.bind((address, 0))
        # The kernel fills in the checksum.
        s.sendto(struct.pack("!BBHI", ADVERTISEMENT, 0, 0, OVERRIDE)
                 + socket.inet_pton(socket.AF_INET6, address)
                 + struct.pack("!BB", TARGET_LINK_ADDRESS, 1) + mac,
                 (ALL_NODES, 0, 0, socket.if_nametoindex(device)))
else:
    everyone, host = b"\xff" * 6, socket.inet_aton(address)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as s:
        s.bind((device, ETH_P_ARP))
        s.send(everyone + mac + struct.pack("!HHHBBH", ETH_P_ARP, 1, 0x0800, 6, 4, 1)
               + mac + host + everyone + host)
