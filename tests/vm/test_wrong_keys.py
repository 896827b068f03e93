# SPDX-License-Identifier: GPL-2.0
"""A program that repeatedly uses wrong keys, and its effect on others."""

import pytest
from rdsvm.cluster import wire_address
from traffic import counters

# Soft-iWARP does not report that a key was refused. On the debug kernel a new connection takes as
# long as a few pings.
pytestmark = [pytest.mark.impls("rust"), pytest.mark.kinds("rxe"), pytest.mark.flavors("release")]

A, B = wire_address(0, 1), wire_address(0, 2)
# Number of uses of the key, and minimum number of answered pings of each other program per use.
# Without pacing it was one answer, or three with C RDS; with it 30, or 10, on a machine that does
# nothing else.
ROUNDS, ANSWERS, ANSWERS_OF_C = 12, 3, 4


def go_on(guest, user, other):
    """Checks that messages of others between the two nodes continue in both directions. Each
    argument is (node, address)."""
    (node, here), (_, there) = user, other
    before = counters(node, guest)
    pings = [m.start(["python3", guest / "ping_on.py", mine, theirs])
             for (m, mine), (_, theirs) in ((user, other), (other, user))]
    for ping in pings:
        ping.expect("^ready$")
    node.run(["python3", guest / "wrong_key.py", here, there, ROUNDS], timeout=300)
    for ping in pings:
        ping.write("", close=True)
    answers = [int(ping.wait(300, check=True).out.split()[1]) for ping in pings]
    now = counters(node, guest)
    rose = {x: now[x] - before[x] for x in ("conn_op_refused", "send_op_held", "conn_reset")}
    assert all(rose.values()), rose
    enough = ROUNDS * (ANSWERS_OF_C if "c" in (user[0].impl, other[0].impl) else ANSWERS)
    assert min(answers) >= enough, f"{answers} answers to pings: {rose}"


@pytest.mark.pairs("rust-rust")
@pytest.mark.parametrize("user", ("lower", "higher"))
def test_other_users_continue(user, pair, guest):
    ends = list(zip(pair, (A, B)))
    go_on(guest, *(ends if user == "lower" else ends[::-1]))


@pytest.mark.pairs("rust-c", "c-rust")
def test_other_users_continue_with_c(pair, guest):
    ends = list(zip(pair, (A, B)))
    go_on(guest, *(ends if pair[0].impl == "rust" else ends[::-1]))
