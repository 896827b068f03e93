# SPDX-License-Identifier: GPL-2.0
"""Devices that never report the completion of sends, or of operations on memory of peers."""

import errno
import re
from contextlib import contextmanager

import pytest
from faults import EVERYWHERE, faults_within
from tracing import traced

pytestmark = [pytest.mark.impls("rust"), pytest.mark.flavors("debug")]

# Operations need memory of a peer, which cannot bounce.
ON_MEMORY_OF_PEERS = pytest.mark.dma("translated", "strict")
TIMEOUT = "/proc/sys/net/rds/ib/completion_timeout_secs"


@contextmanager
def given_up_after(node, seconds):
    """Sets the time after which a device without completions is given up. The watchdog asks the
    device after an eighth of that."""
    before = node.read_file(TIMEOUT)
    node.write_file(TIMEOUT, f"{seconds}\n")
    try:
        yield
    finally:
        node.write_file(TIMEOUT, before)


def play(case, node, guest, seconds):
    # Grown rings would send probes to shrink.
    node.forget()
    # The faults also occur when soft-RoCE runs in an interrupt.
    with given_up_after(node, seconds), faults_within(node, EVERYWHERE, "rds_faults/lose_completion", probability=0):
        with traced(node) as trace:
            node.run(["python3", guest / "lost.py", case, node.kind], timeout=300)
            return trace()


@ON_MEMORY_OF_PEERS
def test_one_completion(node, guest):
    """The next completion covers the lost one, and the watchdog makes the device report it."""
    play("asked", node, guest, 40)


@pytest.mark.on_siw
@pytest.mark.kinds("siw")
def test_a_read_of_iwarp(node, guest):
    play("read", node, guest, 2)


@pytest.mark.on_siw
@pytest.mark.parametrize("case", (pytest.param("given_up", marks=ON_MEMORY_OF_PEERS), "full"))
def test_all_completions(case, node, guest):
    """The connection is given up, and the next one continues."""
    told = play(case, node, guest, 2)
    assert any(re.fullmatch(rf"error: <.*> completion timeout: {-errno.ETIMEDOUT}", x) for x in told), told
