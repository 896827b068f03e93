# SPDX-License-Identifier: GPL-2.0
"""Regions of devices that do not answer or do not release them, and of two devices at once."""

import pytest
from faults import EVERYWHERE, faults_within
from traffic import new_devices

# Peers never access a bounce buffer.
pytestmark = [pytest.mark.impls("rust"), pytest.mark.dma("translated", "strict")]


def play(case, node, guest):
    node.run(["python3", guest / "regions.py", case], timeout=300)


def device_faults(node, *names):
    names = names or ("lose_registration", "fail_dereg_mr")
    return faults_within(node, EVERYWHERE, *(f"rds_faults/{x}" for x in names), probability=0)


@pytest.mark.flavors("debug")
@pytest.mark.parametrize("case", ("apart", "closed"))
def test_silent_device(case, node, guest):
    """A device that does not invalidate a region delays only programs with a region on that
    device."""
    with device_faults(node):
        play(case, node, guest)


@pytest.mark.on_siw
@pytest.mark.flavors("debug")
def test_device_that_is_full(node, guest):
    with device_faults(node, "fail_alloc_mr"):
        play("full", node, guest)


@pytest.mark.flavors("debug")
def test_frames_refused_before_an_operation(node, guest):
    with device_faults(node, "fail_post"):
        play("refused", node, guest)


@pytest.mark.on_siw
@pytest.mark.flavors("debug")
def test_device_that_keeps_a_region(node, guest):
    """The pages stay pinned until no device can access them: when the module is unloaded, or the
    device is removed."""
    for until in (node.forget, lambda: new_devices(node, guest)):
        mark = node.mark("regions are kept")
        with device_faults(node):
            play("kept", node, guest)
        node.wait_log("cannot deregister memory", mark)
        assert node.pins(10), "nothing is pinned"
        until()
        assert not node.pins()


@pytest.mark.kinds("rxe")
def test_a_key_of_two_devices(node, guest):
    new_devices(node, guest)
    try:
        play("same_key", node, guest)
    finally:
        new_devices(node, guest)


@pytest.mark.on_siw
@pytest.mark.kinds("siw")
def test_read_that_is_being_answered(node, guest):
    play("answered", node, guest)


@pytest.mark.on_siw
@pytest.mark.kinds("siw")
def test_read_that_is_interrupted(node, guest):
    node.forget()
    play("interrupted", node, guest)
