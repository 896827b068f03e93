# SPDX-License-Identifier: GPL-2.0
"""A message is admitted before it is copied: a send that is refused does not touch the program's memory, whatever the
reason. guest/admission.py tries."""

import json

import pytest

pytestmark = pytest.mark.impls("rust")

SIZE = 1 << 20


def refused(*errors):
    """What the call says, whether it touched the memory, bytes that were copied."""
    return [[x, False, 0] for x in errors]


WRONG = {"not bound": "ENOTCONN", "no destination": "ENOTCONN", "no address": "EINVAL",
         "another family": "EOPNOTSUPP", "flag": "EOPNOTSUPP", "too long": "EMSGSIZE"}
EXPECTED = {
    # Otherwise the rest would say nothing.
    "admitted": [[SIZE, True, SIZE]] * 2,
    "wrong": {what: [error, False, 0] for what, error in WRONG.items()},
    "no_room": refused("EAGAIN", "ETIMEDOUT"),
    "full_receiver_of_this_node": refused("ENOBUFS", "ETIMEDOUT"),
    "full_receiver": refused("ENOBUFS", "ETIMEDOUT"),
}


@pytest.mark.parametrize("case", EXPECTED)
def test_admission(node, guest, case):
    result = node.run(["python3", guest / "admission.py", case], timeout=400)
    assert json.loads(result.out)["value"] == EXPECTED[case]
