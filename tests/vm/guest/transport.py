# SPDX-License-Identifier: GPL-2.0
"""transport.py HOST RDMA_HOST PEER: prints the transport that a socket gets, by itself and by
selection. The addresses are one without an RDMA device and one with a device."""

import errno
import sys

from rds import SO_RDS_TRANSPORT, SOL_RDS, Sock, connections

IB, TCP = 0, 2


def bound(host, choice=None):
    """Returns the transport of a socket at an address, or the error number of its bind."""
    with Sock() as s:
        if choice is not None:
            s.setsockopt(SOL_RDS, SO_RDS_TRANSPORT, choice)
        try:
            s.bind(host)
        except OSError as e:
            return errno.errorcode[e.errno]
        return s.transport()


host, rdma_host, peer = sys.argv[1:]
expected = {
    (host, None): "tcp",
    (host, TCP): "tcp",
    (host, IB): "ENOPROTOOPT",
    (rdma_host, None): "infiniband",
    (rdma_host, IB): "infiniband",
    (rdma_host, TCP): "tcp",
    ("127.0.0.1", None): "loopback",
    ("127.0.0.1", TCP): "tcp",
    ("127.0.0.1", IB): "ENOPROTOOPT",
    ("192.0.2.77", None): "EADDRNOTAVAIL",
    ("192.0.2.77", TCP): "ENOPROTOOPT",
}
found = {case: bound(*case) for case in expected}
if found != expected:
    sys.exit(f"{ {case: found[case] for case in expected if found[case] != expected[case]} }")

# A type of service that a socket got while RDMA was selected is none over TCP. The peer would take
# a connection of its own for another end of the one that there is.
with Sock() as s:
    s.setsockopt(SOL_RDS, SO_RDS_TRANSPORT, IB)
    s.set_tos(5)
    # The selection ends with a bind that fails.
    try:
        s.bind(rdma_host, 1)
    except OSError as e:
        assert e.errno == errno.EINVAL, e
    s.bind(host)
    assert s.transport() == "tcp", s.transport()
    s.set_tos(7)
    s.send(b"x", (peer, 4000))
    types = {x.tos for x in connections() if x.local == host}
    assert types == {0}, types
