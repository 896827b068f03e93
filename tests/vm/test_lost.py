# SPDX-License-Identifier: GPL-2.0
"""Devices that never report the end of what was posted to them: of sends, and of operations on memory of peers."""

import errno
import re
from contextlib import contextmanager

import pytest
from faults import EVERYWHERE, faults_within
from tracing import traced

pytestmark = [pytest.mark.impls("rust"), pytest.mark.flavors("debug")]

TIMEOUT = "/proc/sys/net/rds/ib/completion_timeout_secs"


@contextmanager
def given_up_after(node, seconds):
    """How long a device may report nothing. It is asked after an eighth of that."""
    before = node.read_file(TIMEOUT)
    node.write_file(TIMEOUT, f"{seconds}\n")
    try:
        yield
    finally:
        node.write_file(TIMEOUT, before)


def play(case, node, guest, seconds):
    # Rings that have grown are made smaller with messages of their own.
    node.forget()
    # Whatever soft-RoCE was doing when it was interrupted.
    with given_up_after(node, seconds), faults_within(node, EVERYWHERE, "rds_faults/lose_completion", probability=0):
        with traced(node) as trace:
            node.run(["python3", guest / "lost.py", case, node.kind], timeout=300)
            return trace()


def test_one_completion(node, guest):
    """The next one stands for it, and the device is asked for that."""
    play("asked", node, guest, 40)


@pytest.mark.on_siw
@pytest.mark.kinds("siw")
def test_a_read_of_iwarp(node, guest):
    play("read", node, guest, 2)


@pytest.mark.on_siw
@pytest.mark.parametrize("case", ("given_up", "full"))
def test_all_completions(case, node, guest):
    """The connection is given up, and the next one goes on."""
    told = play(case, node, guest, 2)
    assert any(re.fullmatch(rf"error: <.*> no report: {-errno.ETIMEDOUT}", x) for x in told), told
