# SPDX-License-Identifier: GPL-2.0
"""Regions of devices that do not answer, and of two devices at once."""

from contextlib import contextmanager

import pytest
from faults import EVERYWHERE, faults_within

pytestmark = [pytest.mark.impls("rust")]


def play(case, node, guest):
    node.run(["python3", guest / "regions.py", case], timeout=300)


@contextmanager
def device_faults(node):
    with faults_within(node, EVERYWHERE, "rds_faults/lose_registration", probability=0):
        yield


@pytest.mark.on_siw
@pytest.mark.flavors("debug")
@pytest.mark.parametrize("case", ("apart", "closed"))
def test_silent_device(case, node, guest):
    """A device that does not end a region keeps nobody waiting but who has one there."""
    with device_faults(node):
        play(case, node, guest)
