# SPDX-License-Identifier: GPL-2.0
"""Messages that are cancelled by RDS_CANCEL_SENT_TO or by close()."""

import json

import pytest
from rdsvm.cluster import PAIR
from traffic import ports


@pytest.mark.race
@pytest.mark.impls("rust")
@pytest.mark.on_siw
def test_long_messages(node, guest, flavor):
    """The peer gets partially sent messages whole, and other messages arrive as well."""
    count = 50 if flavor == "release" else 10
    result = node.run(["python3", guest / "cancel_sent_to.py", *PAIR, ports(), count], timeout=300)
    cancelled, *broken = map(int, result.out.split())
    assert cancelled >= count
    assert broken == [0, 0, 0]


@pytest.mark.impls("rust")
@pytest.mark.on_siw
def test_partially_sent_and_disconnected(slow_node, guest):
    """A cancelled message of which only a part was sent is not started again on the next link."""
    result = slow_node.run(["python3", guest / "cancel_half_out.py", *PAIR, ports()], timeout=300)
    assert result.out == "0\n"


# The send queue does not depend on the device below it.
@pytest.mark.impls("rust")
@pytest.mark.kinds("rxe")
def test_close_among_other_messages(node, guest):
    """close() removes the messages of its socket from the queue, at any position, and no others."""
    seen, dropped = json.loads(node.run(["python3", guest / "close_midst.py", PAIR[0]], timeout=300).out)
    assert seen == dropped and min(dropped) > 0
