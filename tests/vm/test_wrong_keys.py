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
# Number of programs that queue operations, and the least number of these. Only a link takes 126 of
# them, and the first one of these ends it. Five refusals are free, and one for each new socket.
PROGRAMS, MANY, MOST_REFUSED = 16, 4000, 22


def use_beside_pings(guest, user, other, *how):
    """Uses wrong keys while messages of others are exchanged between the two nodes, in both
    directions. Returns the output, the rise of counters, and the smaller number of answers. The
    second and third argument are (node, address)."""
    (node, here), (_, there) = user, other
    before = counters(node, guest)
    pings = [m.start(["python3", guest / "ping_on.py", mine, theirs])
             for (m, mine), (_, theirs) in ((user, other), (other, user))]
    for ping in pings:
        ping.expect("^ready$")
    out = node.run(["python3", guest / "wrong_key.py", here, there, *how], timeout=300).out
    for ping in pings:
        ping.write("", close=True)
    answers = [int(ping.wait(300, check=True).out.split()[1]) for ping in pings]
    now = counters(node, guest)
    rose = {x: now[x] - before[x] for x in ("conn_op_refused", "send_op_held", "conn_reset")}
    return out, rose, min(answers)


def go_on(guest, user, other):
    """Checks that messages of others between the two nodes continue. Each argument is (node,
    address)."""
    _, rose, answers = use_beside_pings(guest, user, other, "once", ROUNDS)
    assert rose["conn_op_refused"] > 0 < rose["send_op_held"], rose
    assert rose["conn_reset"] > 0, rose
    enough = ROUNDS * (ANSWERS_OF_C if "c" in (user[0].impl, other[0].impl) else ANSWERS)
    assert answers >= enough, f"{answers} answers to pings: {rose}"


@pytest.mark.pairs("rust-rust")
@pytest.mark.parametrize("user", ("lower", "higher"))
def test_other_users_continue(user, pair, guest):
    ends = list(zip(pair, (A, B)))
    go_on(guest, *(ends if user == "lower" else ends[::-1]))


@pytest.mark.pairs("rust-c", "c-rust")
def test_other_users_continue_with_c(pair, guest):
    ends = list(zip(pair, (A, B)))
    go_on(guest, *(ends if pair[0].impl == "rust" else ends[::-1]))


@pytest.mark.pairs("rust-rust")
def test_queued_operations(pair, guest):
    """Operations that were queued before the first refusals end without a use of the connection."""
    out, rose, _ = use_beside_pings(guest, *zip(pair, (A, B)), "queued", PROGRAMS)
    assert int(out) >= MANY, out
    assert 0 < rose["conn_op_refused"] <= MOST_REFUSED, f"{out} operations: {rose}"
