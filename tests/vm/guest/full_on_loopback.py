# SPDX-License-Identifier: GPL-2.0
"""full_on_loopback.py COUNT: fills the ports of COUNT loopback addresses that use TCP, as an
ordinary user. Prints how many objects of 8 KiB the kernel has allocated meanwhile, net.

From these addresses no message goes to another node.
"""

import os
import re
import resource
import socket
import struct
import sys

from cases import need, outcome
from rds import SO_RDS_TRANSPORT, SOL_RDS, TRANSPORTS, Sock

COUNT = int(sys.argv[1])
SIZE, NOBODY = 1000, 65534
TCP = next(number for number, name in TRANSPORTS.items() if name == "tcp")


def allocated(slabs):
    slabs.seek(0)
    return sum(int(x) for x in re.findall(r"^kmalloc\S*-8k +(\d+) ", slabs.read(), re.M))


def fill(host):
    s = Sock(timeout=60)
    s.sock.setsockopt(SOL_RDS, SO_RDS_TRANSPORT, struct.pack("=i", TCP))
    s.bind(host)
    s.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    while (told := outcome(s.send, bytes(SIZE), s.name(), socket.MSG_DONTWAIT)) == SIZE:
        pass
    need(told == "ENOBUFS", f"a send to a full port of {host}: {told}")
    return s


with open("/proc/slabinfo") as slabs:
    resource.setrlimit(resource.RLIMIT_NOFILE, (COUNT + 100,) * 2)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    before = allocated(slabs)
    sockets = [fill(f"127.8.{i // 256}.{i % 256}") for i in range(COUNT)]
    print(allocated(slabs) - before, flush=True)
    told = outcome(sockets[0].send, b"", ("10.9.0.77", 4000), socket.MSG_DONTWAIT)
    need(told == "ENETUNREACH", f"a message to another node: {told}")
