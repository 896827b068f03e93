# SPDX-License-Identifier: GPL-2.0
"""Operations on memory of peers: RDMA reads and writes, and atomics."""

import pytest
from rdsvm.cluster import must, wire_address

pytestmark = [pytest.mark.impls("rust"), pytest.mark.on_siw]
CASES = ("transfers", "silent", "cookies", "atomics", "bad_arguments", "bad_keys", "untold", "closed", "killed",
         "unfenced",
         # The debug kernel takes too long for so many connections with so few CPUs.
         pytest.param("first_of_all", marks=pytest.mark.flavors("release")), "unread", "forgotten", "waiting", "limits", "removed")


@pytest.mark.parametrize("case", CASES)
def test_operations(case, node, guest):
    node.run(["python3", guest / "operate.py", int(node.kind == "rxe"), case], timeout=600)


def between(owner, user, guest, rounds):
    """Operations of a program on one node, on memory of one on the other."""
    (n, here), (m, there) = owner, user
    first = n.start(["python3", guest / "rdma_end.py", "owner", here, there, rounds])
    first.expect("ready")
    second = m.start(["python3", guest / "rdma_end.py", "user", there, here, rounds])
    must(second.wait(300))
    must(first.wait(60))


A, B = wire_address(0, 1), wire_address(0, 2)


@pytest.mark.pairs("rust-rust")
def test_two_nodes(pair, guest):
    between((pair[0], A), (pair[1], B), guest, 20)
    between((pair[1], B), (pair[0], A), guest, 20)


@pytest.mark.on_c
@pytest.mark.pairs("rust-c")
@pytest.mark.parametrize("owner", ("rust", "c"))
def test_with_c(owner, pair, guest):
    ends = [(pair[0], A), (pair[1], B)]
    if owner == "c":
        ends.reverse()
    between(*ends, guest, 20)
