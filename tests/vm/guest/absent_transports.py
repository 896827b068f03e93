# SPDX-License-Identifier: GPL-2.0
"""absent_transports.py HOST: prints what calls that need RDMA or TCP return, as JSON. HOST is an
address of a network device."""

import ctypes
import json
import struct
import sys

import rdma
from cases import outcome
from rds import RDS_INFO_CONNECTIONS, SO_RDS_TRANSPORT, SOL_RDS, Sock, info

IB, TCP = 0, 2
LOOP = "127.0.0.1"
PEER = (LOOP, 4999)
RDS_INFO_TCP_SOCKETS, RDS_INFO_IB_CONNECTIONS, RDS_INFO_RDMA_CONNECTION_STATS = 10007, 10008, 10018


def bound(host, choice=None):
    """Returns the transport of a socket at an address, or the error of the choice or the bind."""
    with Sock() as s:
        if choice is not None:
            s.setsockopt(SOL_RDS, SO_RDS_TRANSPORT, choice)
        s.bind(host)
        return s.transport()


def registered(host, flags=rdma.READWRITE, dest=None):
    with Sock((host, 0) if host else None) as s:
        memory = rdma.Memory(s, 1)
        rdma.register(s, memory.base, 4096, flags, dest)
        return "registered"


def freed(host, cookie):
    with Sock((host, 0)) as s:
        s.set_raw(rdma.FREE_MR, struct.pack("=QQ", cookie, 0))
        return "ok"


def sent(host, control):
    with Sock((host, 0)) as s:
        s.connect(*PEER)
        return rdma.send(s, b"x", control)


def table(number):
    """Returns the number of records of a table, or None if there is no such table."""
    records = info(number)
    return None if records is None else len(records)


def main():
    host = sys.argv[1]
    page = ctypes.create_string_buffer(64)
    area = ctypes.addressof(page), 64
    write, local = rdma.transfer(1, (0, 64), [area], rdma.READWRITE)
    cookie = ctypes.c_ulonglong()
    mapped = SOL_RDS, rdma.MAP, struct.pack("=QQQQ", *area, ctypes.addressof(cookie), rdma.READWRITE)
    added = rdma.atomic(rdma.FETCH_ADD, 1, area[0], 0, [1], 0)
    found = {
        "bind": outcome(bound, host),
        "bind, IB": outcome(bound, host, IB),
        "bind, TCP": outcome(bound, host, TCP),
        "bind, loopback": outcome(bound, LOOP),
        "bind, loopback, TCP": outcome(bound, LOOP, TCP),
        "register, unbound": outcome(registered, None),
        "register": outcome(registered, LOOP),
        "register for a peer": outcome(registered, LOOP, rdma.READWRITE, PEER),
        "free": outcome(freed, LOOP, 1),
        "free all": outcome(freed, LOOP, 0),
        "write": outcome(sent, LOOP, write),
        "map": outcome(sent, LOOP, mapped),
        "add": outcome(sent, LOOP, added),
        "connections": table(RDS_INFO_CONNECTIONS),
        "IB connections": table(RDS_INFO_IB_CONNECTIONS),
        "queue pairs": table(RDS_INFO_RDMA_CONNECTION_STATS),
        "TCP sockets": table(RDS_INFO_TCP_SOCKETS),
    }
    del local
    print(json.dumps(found))


main()
