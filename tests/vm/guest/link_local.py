# SPDX-License-Identifier: GPL-2.0
"""link_local.py NETDEV echo ADDRESS PORT: returns a message to its sender.

link_local.py NETDEV ask ADDRESS PORT PEER: sends a message to PORT of PEER and waits until it is
returned.

Link-local addresses belong to the link of NETDEV. There is no route from one link to another.
"""

import socket
import sys

from cases import await_address, need, outcome
from rds import Sock, parse, scope

DATA = b"abc"


def name(netdev, host, port):
    return host, port, socket.if_nametoindex(netdev) if host.startswith("fe80:") else 0


def main():
    netdev, what, host, port, *peer = sys.argv[1:]
    await_address(*name(netdev, host, 0))
    if what == "echo":
        with Sock(name(netdev, host, int(port)), 60) as s:
            print("bound", flush=True)
            data, sender = s.recv_raw()
            host, port = parse(sender)
            # The address of the sender can be used for the answer as it is.
            s.send(data, (host, port, scope(sender)))
            # Closing the socket earlier would cancel the message before its delivery.
            s.recv()
        return
    to = name(netdev, *peer, int(port))
    own = name(netdev, host, 0)
    with Sock(own, 60) as s:
        s.connect(*to)
        link = own[2] or to[2]
        need(s.scopes() == [link, link], f"scopes {s.scopes()}")
        if host.startswith("fe80:"):
            elsewhere = "fe80::1", int(port), socket.if_nametoindex("lo")
            need(outcome(s.connect, *elsewhere) == "EINVAL", "a socket of one link connects on another")
            need(outcome(s.send, DATA, elsewhere) == "EINVAL", "a socket of one link sends on another")
            with Sock() as late:
                late.connect(*elsewhere)
                need(outcome(late.bind, *name(netdev, host, 0)) == "EINVAL",
                     "a socket that is connected on one link is bound on another")
        s.send(DATA, to)
        data, sender = s.recv_raw()
        need(scope(sender) == link, f"scope {scope(sender)} of who sends")
        if data != DATA:
            sys.exit(f"{data} came back")
        s.send(b"", to)
    print("back")


main()
