# SPDX-License-Identifier: GPL-2.0
"""Memory regions, registered, used by peers, and gone; and peers that serve no operations on theirs."""

import pytest
from test_rogue import add_rogue

pytestmark = [pytest.mark.impls("rust"), pytest.mark.on_siw("release")]


def play(program, node, tools, guest):
    """Runs a program with a peer over verbs."""
    add_rogue(node, guest)
    node.run(["python3", guest / program, tools.parent / "verbs.so", int(node.kind == "rxe")], timeout=600)


def test_regions(node, tools, guest):
    play("mr.py", node, tools, guest)


# On iWARP nobody can tell: drivers say different things of what was agreed on.
@pytest.mark.kinds("rxe")
def test_peer_that_serves_nothing(node, tools, guest):
    play("unserved.py", node, tools, guest)
