# SPDX-License-Identifier: GPL-2.0
"""Each allocation of a call of the socket interface, of a load and of an unload fails once."""

import pytest
from faults import faults, faults_within, place
from rdsvm.cluster import PAIR, must
from traffic import ping

pytestmark = [pytest.mark.impls("rust"), pytest.mark.flavors("debug"), pytest.mark.long]

MEMORY = ("failslab", "fail_page_alloc", "fail_usercopy")


@pytest.mark.on_siw
def test_calls(node, tools, guest):
    """It is refused, and changes nothing, or is done. What was taken is given back, which the unload looks at, too."""
    node.forget()
    with faults(node, *MEMORY, probability=0, min_order=0):
        print(node.run(["python3", guest / "fail_nth.py", int(node.kind == "rxe")], timeout=900).out)
    ping(tools, node, PAIR[1], PAIR[0])
    node.forget()


@pytest.mark.kinds("siw")
@pytest.mark.on_siw
@pytest.mark.parametrize("every", (1, 15), ids=("each", "some"))
def test_loads(every, node, tools, guest):
    """On the devices whose kernel counts memory: it says after each what is left, C's call site by call site."""
    must(node.unload())
    before = node.allocated_by_rust()
    with faults_within(node, (1, 2), *MEMORY, probability=0, min_order=0, spared=place(node, "siw")):
        print(node.run(["python3", guest / "fail_load.py", node.module, every], timeout=1500).out)
    must(node.load())
    # What Rust code has kept of all of them is found at this unload.
    node.allocated = before
    must(node.unload())
    must(node.load())
    ping(tools, node, PAIR[1], PAIR[0])
