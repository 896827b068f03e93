#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""rdma_user.py HOST MAC: a user without privileges makes a network namespace.

There he has the IP address and the hardware address of an RDMA device. Prints the number of the
error when a socket of RDS is bound there, or its transport. At first the address is on an Ethernet
device, then on the loopback device, whose type is another one.
"""

import sys

from rds import Sock
from user_namespace import become_root_of_a_namespace, ip, set_up

host, mac = sys.argv[1:]
become_root_of_a_namespace()
ip(f"link add near address {mac} type veth peer name far", "link set far up")
for netdev, other in (("near", None), ("lo", "near")):
    if other:
        ip(f"link del {other}")
    set_up(netdev, host)
    try:
        with Sock((host, 0)) as s:
            print(s.transport())
    except OSError as error:
        print(error.errno)
