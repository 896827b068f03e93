# SPDX-License-Identifier: GPL-2.0
"""Connections that an administrator resets, as programs for Oracle's kernels do."""

import pytest
from rdsvm.cluster import PAIR, PAIR6
from traffic import PATIENT, ports

pytestmark = pytest.mark.impls("rust")


@pytest.mark.smoke
@pytest.mark.on_siw("release")
@pytest.mark.parametrize("ends", [PAIR, PAIR6], ids="-".join)
def test_one_connection(node, guest, load, ends):
    """The other connections are not affected. The reset connection comes back without a message
    that needs it."""
    load(PATIENT)
    node.run(["python3", guest / "reset.py", "one", *ends, ports()], timeout=300)


def test_all_connections_of_an_address(node, guest, load):
    load(PATIENT)
    node.run(["python3", guest / "reset.py", "all", *PAIR, ports()], timeout=300)


@pytest.mark.race
def test_under_traffic(node, guest):
    """Several threads reset a connection repeatedly. Messages are only delayed."""
    node.run(["python3", guest / "reset.py", "traffic", *PAIR, ports()], timeout=500)
