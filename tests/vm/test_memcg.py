# SPDX-License-Identifier: GPL-2.0
"""Accounting of message memory: the memory cgroup that is charged, and the amount."""

import json

import pytest

pytestmark = pytest.mark.impls("rust")


# Limits of the programs that try to send more than allowed.
LIMIT, MESSAGE = 4 << 20, 16000


@pytest.mark.long
def test_a_sender_pays(node, guest):
    """The memory of messages is charged to the sender's cgroup. The send buffer bounds it, however
    often the sender tries."""
    # Memory that pools keep is charged to the cgroup of its first use.
    node.forget()
    result = node.run(["python3", guest / "memcg.py"], timeout=300)
    for kind, (payload, during, after) in json.loads(result.out).items():
        assert payload <= during <= 3 * payload, (kind, payload, during)
        assert after <= payload // 4, (kind, payload, after)
        assert "refused" not in kind or 0 < payload <= LIMIT + MESSAGE, (kind, payload)


# Payload of a message and the memory that it takes: size classes of kmalloc(), and the message
# itself.
TAKEN = {0: 256, 152: 256, 153: 256 + 192, 200: 256 + 256, 4096: 256 + 4096, 4097: 256 + 8192,
         20000: 256 + 32768, 65536: 256 + 65536, 65537: 256 + 65536 + 8 + 64,
         200000: 256 + 3 * 65536 + 4096 + 96}


@pytest.mark.long
def test_a_copy_is_charged_at_its_true_size(node, guest):
    """A send buffer of 1 MiB has room until messages take that much memory."""
    result = node.run(["python3", guest / "loop_memory.py", 1 << 20, *TAKEN])
    assert json.loads(result.out) == [-(-(1 << 20) // each) for each in (*TAKEN.values(), 256 + 64)]
