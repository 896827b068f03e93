# SPDX-License-Identifier: GPL-2.0
"""Admission before copying: a send that is refused never touches the program's memory.

guest/admission.py makes the calls.
"""

import json

import pytest

pytestmark = pytest.mark.impls("rust")

SIZE = 1 << 20


def refused(*errors):
    """Returns, for each error: the error, whether the call touched the memory, and the bytes
    copied."""
    return [[x, False, 0] for x in errors]


WRONG = {"not bound": "ENOTCONN", "no destination": "ENOTCONN", "no address": "EINVAL",
         "another family": "EOPNOTSUPP", "flag": "EOPNOTSUPP", "too long": "EMSGSIZE"}
EXPECTED = {
    # A control: without it, the other cases prove nothing.
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
