# SPDX-License-Identifier: GPL-2.0
"""One failure of each allocation in socket calls, in a load and in an unload."""

import pytest
from faults import faults, faults_within, place
from rdsvm.cluster import PAIR, must
from traffic import ping

pytestmark = [pytest.mark.impls("rust"), pytest.mark.flavors("debug"), pytest.mark.long]

MEMORY = ("failslab", "fail_page_alloc", "fail_usercopy")


@pytest.mark.on_siw
def test_calls(node, tools, guest):
    """Each call is refused without an effect, or is done. All that it took is released, which the
    unload also checks."""
    node.forget()
    with faults(node, *MEMORY, probability=0, min_order=0):
        print(node.run(["python3", guest / "fail_nth.py", int(node.kind == "rxe")], timeout=900).out)
    ping(tools, node, PAIR[1], PAIR[0])
    node.forget()


@pytest.mark.kinds("siw")
@pytest.mark.on_siw
@pytest.mark.parametrize("every", (1, 15), ids=("each", "some"))
def test_loads(every, node, tools, guest):
    """Runs on siw, with a kernel that counts memory. After each load the kernel reports what is
    left, for C by call site."""
    must(node.unload())
    before = node.allocated_by_rust()
    with faults_within(node, (1, 2), *MEMORY, probability=0, min_order=0, spared=place(node, "siw")):
        print(node.run(["python3", guest / "fail_load.py", node.module, every], timeout=1500).out)
    must(node.load())
    # This unload finds all memory that the Rust code has kept during the loads.
    node.allocated = before
    must(node.unload())
    must(node.load())
    ping(tools, node, PAIR[1], PAIR[0])
