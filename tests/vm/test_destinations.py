# SPDX-License-Identifier: GPL-2.0
"""Destinations that are not the address of one host."""

import itertools
import json
from contextlib import contextmanager

import pytest
from rdsvm.cluster import PAIR
from traffic import ports, wait_for

pytestmark = pytest.mark.impls("rust")

_networks = itertools.count(10)
# Answers of connect() and sendto().
REFUSED = ["EINVAL", "EINVAL"]
WRONG_TYPE = ["EPROTOTYPE", "EINVAL"]


@contextmanager
def with_network(node):
    """Gives a device an address in a new network."""
    network = f"10.78.{next(_networks)}"
    node.run(f"ip addr add {network}.1/24 dev rdsv0")
    try:
        yield network
    finally:
        node.run(f"ip addr del {network}.1/24 dev rdsv0")


def broadcasts(node):
    """Returns the number of broadcast packets that this node has sent."""
    names, values = [x.split()[1:] for x in node.read_file("/proc/net/netstat").splitlines()
                     if x.startswith("IpExt:")]
    return int(dict(zip(names, values))["OutBcastPkts"])


@pytest.mark.on_siw
def test_not_one_host(node, guest):
    """Such destinations are refused, and no connection is created for them."""
    with with_network(node) as network:
        node.run(["python3", guest / "laddr.py", "bound", f"{network}.1"])

        def ask(*addresses):
            return json.loads(node.run(["python3", guest / "destinations.py", f"{network}.1", *addresses]).out)

        _, before = ask()
        answers, now = ask(f"{network}.255", f"::ffff:{network}.255", "255.255.255.255", "224.0.0.1")
        assert answers == {f"{network}.255": REFUSED, f"::ffff:{network}.255": WRONG_TYPE,
                           "255.255.255.255": REFUSED, "224.0.0.1": REFUSED}
        # Unused connections of other tests may be forgotten meanwhile.
        assert set(now) <= set(before), (before, now)


# Soft-iWARP sends over TCP, which refuses such a destination.
@pytest.mark.kinds("rxe")
def test_becomes_a_broadcast_address(node, guest):
    """A message waits for a host whose address later becomes a broadcast address."""
    network = f"10.78.{next(_networks)}"
    holder = node.start(["python3", guest / "to_one.py", PAIR[0], f"{network}.255", ports()])
    holder.expect("^sent$")
    node.run(f"ip addr add {network}.1/24 dev rdsv0")
    before, failed = broadcasts(node), []

    def enough(seen):
        failed.append(seen.get("conn_attempt_failed", 0))
        return failed[-1] >= failed[0] + 3

    wait_for(node, guest, enough)
    holder.finish()
    node.run(f"ip addr del {network}.1/24 dev rdsv0")
    assert broadcasts(node) == before
