# SPDX-License-Identifier: GPL-2.0
"""Memory of messages and control groups."""

import json

import pytest

pytestmark = pytest.mark.impls("rust")


def test_a_sender_pays(node, guest):
    result = node.run(["python3", guest / "memcg.py"], timeout=300)
    for kind, (payload, during, after) in json.loads(result.out).items():
        assert payload <= during <= 3 * payload, (kind, payload, during)
        assert after <= payload // 4, (kind, payload, after)
