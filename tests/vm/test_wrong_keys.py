# SPDX-License-Identifier: GPL-2.0
"""A program that repeatedly uses wrong keys, and its effect on others."""

import pytest
from rdsvm import hardware
from rdsvm.cluster import wire_address
from traffic import counters, losing, ping

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
# The same with bounce buffers, of which the operations of a user get a share.
MANY_BOUNCED = 1000


def use_beside_pings(guest, user, other):
    """Uses wrong keys while messages of others are exchanged between the two nodes, in both
    directions. Returns the rise of counters, and the smaller number of answers. The second and
    third argument are (node, address)."""
    (node, here), (_, there) = user, other
    before = counters(node, guest)
    pings = [m.start(["python3", guest / "ping_on.py", mine, theirs])
             for (m, mine), (_, theirs) in ((user, other), (other, user))]
    for ping in pings:
        ping.expect("^ready$")
    node.run(["python3", guest / "wrong_key.py", here, there, "once", ROUNDS], timeout=300)
    for ping in pings:
        ping.write("", close=True)
    answers = [int(ping.wait(300, check=True).out.split()[1]) for ping in pings]
    now = counters(node, guest)
    rose = {x: now[x] - before[x] for x in ("conn_op_refused", "send_op_held", "conn_reset")}
    return rose, min(answers)


def go_on(guest, user, other):
    """Checks that messages of others between the two nodes continue. Each argument is (node,
    address)."""
    rose, answers = use_beside_pings(guest, user, other)
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
def test_queued_operations(pair, tools, guest):
    """Operations that were queued before the first refusals end without a use of the connection.

    The wire is cut until all are queued, so no refusal comes before."""
    node = pair[0]
    ping(tools, node, B, A)
    before = counters(node, guest)
    with losing(pair, 100):
        program = node.start(["python3", guest / "wrong_key.py", A, B, "queued", PROGRAMS])
        queued = int(program.expect(r"^(\d+)$", timeout=300)[1])
    program.wait(300, check=True)
    refused = counters(node, guest)["conn_op_refused"] - before["conn_op_refused"]
    assert queued >= (MANY_BOUNCED if node.dma == hardware.BOUNCED else MANY)
    assert 0 < refused <= MOST_REFUSED, f"{refused} of {queued} operations were refused"
