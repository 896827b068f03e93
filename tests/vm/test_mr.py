# SPDX-License-Identifier: GPL-2.0
"""Memory regions: registered, used by peers, and gone."""

import pytest
from test_rogue import NETWORK

pytestmark = pytest.mark.impls("rust")


@pytest.mark.on_siw
def test_regions(node, tools, guest):
    if "rogue" not in node.run("ip netns list").out:
        node.run(NETWORK.format(kind=node.kind))
        node.run(["python3", guest / "laddr.py", "bound", "10.8.0.100"])
    node.run(["python3", guest / "mr.py", tools.parent / "verbs.so", int(node.kind == "rxe")], timeout=600)
