# SPDX-License-Identifier: GPL-2.0
"""The memory of messages to other nodes, and the share of it that one user may take."""

import json

import pytest
from rdsvm.cluster import PAIR
from test_hogs import Hog
from traffic import setting

pytestmark = [pytest.mark.impls("rust")]

# Pool limit in units of 4 KiB. A user may have a 16th of it.
POOL = 1024
MESSAGES, SIZE = 50, 4096


@pytest.fixture
def small_pools(node):
    with setting("ib/max_recv_allocation", POOL, node):
        yield
    node.forget()


@pytest.mark.usefixtures("small_pools")
def test_another_user_sends(node, guest):
    """Another user, whose peer takes nothing, has hundreds of sockets that are full or would be."""
    hog = Hog(node, guest, "send_buffers")
    told = json.loads(node.run(["python3", guest / "shares.py", "other", *PAIR]).out)
    hog.finish()
    assert told == {str(SIZE): MESSAGES}


@pytest.mark.on_siw("release")
@pytest.mark.usefixtures("small_pools")
def test_wait_for_room(node, guest):
    node.run(["python3", guest / "shares.py", "full", *PAIR])


@pytest.mark.usefixtures("small_pools")
def test_wait_for_a_full_pool(node, guest):
    """Programs without a share have filled a pool. A call waits for a buffer, until its timeout or
    a signal, and goes on when buffers return. One that must not wait fails with EAGAIN."""
    node.run(["python3", guest / "shares.py", "pool", *PAIR])


@pytest.mark.usefixtures("small_pools")
def test_user_namespaces(node, guest):
    """The creator of a user namespace is charged for all users in it, unless the creator is
    root."""
    told = json.loads(node.run(["python3", guest / "shares.py", "namespaces", *PAIR]).out)
    assert told == {"user of his": "EAGAIN", "root of his": "EAGAIN", "user of another's": 1, "user of root's": 1}
