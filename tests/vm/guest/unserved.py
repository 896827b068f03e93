# SPDX-License-Identifier: GPL-2.0
"""unserved.py LIBRARY: a peer that serves no reads and no atomics, on connections that either side
requests.

LIBRARY is verbs.c, compiled. The network is that of rogue.py, of soft-RoCE.
"""

import contextlib
import sys

import peer
import rdma
from peer import End, Home, Peer, raw_address
from rdma import NOTIFY_ME, SILENT
from rogue import MINE, NODE, need

PORT = 7000


@contextlib.contextmanager
def it_asks(_home, source, _sock):
    with Peer(source, NODE) as p:
        p.call("depth", 0)
        p.open()
        yield p


@contextlib.contextmanager
def node_asks(home, source, sock):
    listener = End()
    listener.call("listen", raw_address(source, peer.PORTS[False]))
    with home.at_home():
        rdma.send(sock, b"first")
    p, _ = peer.next_request(listener, source, NODE)
    with p:
        p.call("depth", 0)
        p.qp()
        data = p.private(fragment=0)
        p.call("accept", data, len(data))
        arrived(p, b"first")
        yield p
    listener.free()


def arrived(p, payload):
    """Reads frames until the message has arrived."""
    while True:
        frame = p.frame()
        need(frame is not None, f"{payload} did not come")
        if payload in [data for header, data in p.note(frame) if header.dport == PORT]:
            return


def refused(home, source, connecting):
    """Operations that the peer would have to serve fail at once.

    The connection stays, and messages arrive.
    """
    with home.at_home():
        sock = rdma.connected((NODE, 0), (source, PORT))
        memory = rdma.Memory(sock, 1)
    with connecting(home, source, sock) as p:
        need(p.ping(), "there is no connection")
        # Includes the pages of the peer, which uses verbs.
        pins = rdma.pins()
        before = home.counters()["send_drop_operation"]
        read, _place = rdma.transfer(1, (0, 8), [(memory.base, 8)], NOTIFY_ME, 1)
        silent, _place2 = rdma.transfer(1, (0, 8), [(memory.base, 8)], NOTIFY_ME | SILENT, 2)
        add = rdma.atomic(rdma.FETCH_ADD, 1, memory.base, 0, [1], NOTIFY_ME, 3)
        tried = [read, silent, add]
        for token, control in enumerate(tried, 1):
            rdma.send(sock, b"" if control is silent else b"never", control)
            found = rdma.status(sock)
            need(found == (token, rdma.OTHER_ERROR), f"operation {token}: {found}")
        need(home.counters()["send_drop_operation"] == before + len(tried), "they are not counted")
        rdma.send(sock, b"after")
        arrived(p, b"after")
        need(rdma.pins() == pins, "memory is still pinned")
        p.settle()
    sock.sock.close()


def main():
    peer.load(sys.argv[1])
    home = Home("rogue")
    for source, connecting in zip(MINE, (it_asks, node_asks)):
        refused(home, source, connecting)


if __name__ == "__main__":
    sys.exit(main())
