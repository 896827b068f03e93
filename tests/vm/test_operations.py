# SPDX-License-Identifier: GPL-2.0
"""Operations on memory of peers: RDMA reads and writes, and atomics."""

import pytest
from faults import EVERYWHERE, KNOBS, faults, faults_within, place, place_of_rust
from probes import Probes
from rdsvm.cluster import must, wire_address
from traffic import (counters, let_packets_pass, losing, messages, new_devices, new_type,
                     silence_limit, unchanged, wait_for)

pytestmark = pytest.mark.impls("rust")
# The debug kernel takes too long for so many connections with so few CPUs.
CASES = (pytest.param("first_of_all", marks=pytest.mark.flavors("release")), "transfers", "silent", "cookies", "for_dest",
         "over_ipv6", "read_only", "atomics", "closed", "killed",
         pytest.param("unfenced", marks=pytest.mark.long), "unread",
         "looked", "told_nowhere", "forgotten", "waiting", "limits", "copied", "moved", "removed")


def operate(node, guest, case, **kwargs):
    """A case of operate.py."""
    node.run(["python3", guest / "operate.py", int(node.kind == "rxe"), case], **kwargs)


@pytest.mark.kept
@pytest.mark.on_siw("release")
@pytest.mark.parametrize("case", CASES)
def test_operations(case, node, guest):
    operate(node, guest, case, timeout=600)


@pytest.mark.on_siw("release")
@pytest.mark.parametrize("case", ("bad_arguments", "shorter", "bad_keys", "silent_bad_keys", "untold"))
def test_refused(case, node, guest):
    node.run(["python3", guest / "refused.py", int(node.kind == "rxe"), case], timeout=600)


@pytest.mark.race
@pytest.mark.parametrize("case", ("fenced", "canceled"))
def test_statuses(case, node, guest):
    node.run(["python3", guest / "statuses.py", case], timeout=300)


@pytest.mark.on_siw("release")
@pytest.mark.long
def test_statuses_in_turn(node, guest):
    node.run(["python3", guest / "statuses.py", "in_turn"], timeout=300)


# Soft-iWARP does not tell of a write that it was refused, TCP gives nothing up before its connection, what comes behind a
# read waits for its end, and there are no atomic operations.
@pytest.mark.race
@pytest.mark.kinds("rxe")
@pytest.mark.parametrize("case", (pytest.param("refused", marks=pytest.mark.long), "dropped", "unanswered", "fenced_atomics"))
def test_statuses_of_roce(case, node, guest):
    node.run(["python3", guest / "statuses.py", case], timeout=300)


# As the CM says it.
STALE_CONNECTION = 10
# What does not go, and of how many percent.
FAULTS = {"memory": (("failslab", "fail_page_alloc"), 1), "device": (
    ("rds_faults/fail_map", "rds_faults/fail_alloc_mr", "rds_faults/fail_post"), 5)}


@pytest.mark.flavors("debug")
@pytest.mark.parametrize("what", FAULTS)
def test_faults(what, node, guest):
    """Each step of a registration and of an operation fails now and then: pages, mappings, regions, work requests."""
    names, probability = FAULTS[what]
    with faults(node, *names, probability=probability, min_order=0):
        operate(node, guest, "short_of_memory", timeout=600)
    operate(node, guest, "cookies")


@pytest.mark.flavors("debug")
@pytest.mark.parametrize("whose", ("own", "device"))
def test_each_step(whose, node, guest):
    """Each of them fails once, and then all is well: nothing is pinned or charged, and the next one goes."""
    node.forget()
    with faults_within(node, (1, 2), "rds_faults/lose_registration", probability=0), \
            faults(node, "failslab", "fail_page_alloc", "fail_usercopy", *FAULTS["device"][0], probability=0, min_order=0):
        node.run(["python3", guest / "each_step.py", whose, int(node.kind == "rxe")], timeout=600)
    operate(node, guest, "cookies")


# By whom a device's own queue pair is made: who registers memory, the worker that connects the two ends, and who hears at one end
# what the other asks for.
MAKERS = {"caller": r"7mr_pool.*6MrPool6region$", "worker": r"6reg_qp.*6Making.*8WorkItem3run$",
          "listener": r"8Listener.*6reg_qp8ExpectedE8on_event"}


@pytest.mark.on_siw
@pytest.mark.flavors("debug")
@pytest.mark.parametrize("maker", (
    pytest.param(x, marks=pytest.mark.long) if x == "worker" else x for x in MAKERS))
def test_each_step_of_the_first_registration(maker, node, guest):
    """It is refused, or done all the same, and the next one is done."""
    node.forget()
    with faults_within(node, EVERYWHERE, "rds_faults/fail_post", probability=0), \
            faults_within(node, place_of_rust(node, MAKERS[maker]), "failslab", "fail_page_alloc", "fail_usercopy",
                          probability=0, spared=place(node, "rdma_rxe"), min_order=0):
        who = {"caller": "first_own", "listener": "first_refused"}.get(maker, "first")
        node.run(["python3", guest / "each_step.py", who, int(node.kind == "rxe")], timeout=600)
    operate(node, guest, "cookies")


@pytest.mark.flavors("debug")
def test_no_region_left(node, guest):
    # Those that are kept for later go.
    node.forget()
    with faults(node, "rds_faults/fail_alloc_mr", probability=100):
        operate(node, guest, "exhausted")
    operate(node, guest, "cookies")


@pytest.mark.flavors("debug")
@pytest.mark.parametrize("case,times,space", (
    # A new queue pair does it.
    ("registered", 1, 0),
    pytest.param("unregistered", 2, 0, marks=pytest.mark.long),
    # The second work request.
    ("not_ended", 1, 2)))
def test_lost_registration(case, times, space, node, guest):
    """A device that never says that it has registered memory, or ended that, is not waited for without end, and
    does so again with a queue pair that is made for it."""
    operate(node, guest, "cookies")
    with faults(node, "rds_faults/lose_registration", probability=100, times=times, space=space):
        operate(node, guest, case)
        assert node.run(f"cat {KNOBS}/lose_registration/times").out.strip() == "0"
    # It may have been given up for a while.
    node.run(["python3", guest / "unanswered.py", "later"], timeout=300)
    operate(node, guest, "cookies")


# Soft-iWARP speaks to itself over the network.
@pytest.mark.on_siw
@pytest.mark.kinds("siw")
def test_device_that_does_not_answer_itself(node, guest):
    """One of those who want to register memory waits for it, and the others do not wait after that."""
    # There is a queue pair for it as soon as there was one registration.
    node.forget()
    with Probes(node, "siw_connect") as probes:
        node.run("for d in lo rdsv0 rdsv1; do tc qdisc add dev $d root netem loss 100%; done")
        try:
            node.run(["python3", guest / "unanswered.py", "now"], timeout=300)
        finally:
            node.run("for d in lo rdsv0 rdsv1; do tc qdisc del dev $d root; done")
        assert probes.hits() == [1]
    node.run(["python3", guest / "unanswered.py", "later"], timeout=300)


# The CM of iWARP knows no queue pairs.
@pytest.mark.kinds("rxe")
@pytest.mark.parametrize("whose", ("asking", "answering"))
def test_number_that_is_still_known(whose, node, guest):
    """A device that has gone and comes again numbers its queue pairs as before, and the CM takes one of them for that of an
    earlier connection: another number is taken."""
    node.forget()
    new_devices(node, guest)
    mark = node.mark("a number is known")
    node.run(["python3", guest / "known_numbers.py", whose])
    node.wait_log(f"connecting a device with itself .*: rejected .{STALE_CONNECTION}.", mark)
    operate(node, guest, "cookies")


MASKS = {"registration": 1, "atomics": 2, "initiator-depth": 4, "responder-resources": 8, "sges": 16,
         "region-pages": 32}


def less_able(node, guest, lacking, bit):
    """A case of less_able.py, with a bit of the mask."""
    mask = f"{KNOBS}/mask_caps"
    node.run(f"echo {bit} >{mask}")
    try:
        new_devices(node, guest)
        node.run(["python3", guest / "less_able.py", int(node.kind == "rxe"), lacking])
    finally:
        node.run(f"echo 0 >{mask}")
        new_devices(node, guest)
    operate(node, guest, "cookies")


@pytest.mark.flavors("debug")
@pytest.mark.parametrize("lacking", (
    x if x in ("registration", "sges", "region-pages") else pytest.param(x, marks=pytest.mark.long) for x in MASKS))
def test_less_able_device(lacking, node, guest):
    """What a device cannot do is refused, and all else works."""
    less_able(node, guest, lacking, MASKS[lacking])


# Soft-iWARP has no atomic operations, and is not asked.
@pytest.mark.flavors("debug")
@pytest.mark.kinds("rxe")
def test_device_that_refuses_masks(node, guest):
    """It says that it has masked atomic operations, and takes none."""
    less_able(node, guest, "masked-atomics", 64)


@pytest.mark.flavors("debug")
@pytest.mark.kinds("rxe")
def test_device_with_masks(node, guest):
    """It takes masked atomic operations, as plain ones."""
    less_able(node, guest, "masks", 256)


@pytest.mark.flavors("debug")
@pytest.mark.kinds("rxe")
def test_device_that_refuses_atomics(node, guest):
    """As some of mlx5 do: with EOPNOTSUPP, when they are posted."""
    less_able(node, guest, "refused-atomics", 128)


def between(owner, user, guest, rounds, *how):
    """Operations of a program on one node, on memory of one on the other. rdma_end.py says how."""
    (n, here), (m, there) = owner, user
    first = n.start(["python3", guest / "rdma_end.py", "owner", here, there, rounds, *how])
    first.expect("ready")
    second = m.start(["python3", guest / "rdma_end.py", "user", there, here, rounds, *how])
    must(second.wait(300))
    must(first.wait(60))


A, B = wire_address(0, 1), wire_address(0, 2)


@pytest.mark.on_siw
@pytest.mark.pairs("rust-rust")
def test_two_nodes(pair, guest):
    ends = [(pair[0], A), (pair[1], B)]
    for way in (ends, ends[::-1]):
        between(*way, guest, 2)
    # The most bytes and pieces that there may be: as many packets on each kind of devices.
    if pair[0].kind == "rxe":
        between(*ends, guest, 1, "most")


@pytest.mark.race
@pytest.mark.kinds("rxe")
@pytest.mark.pairs("rust-rust")
def test_atomics_of_two_nodes(pair, guest):
    """Programs on one node change numbers of one on the other at the same time."""
    program, count, users = guest / "atomics_end.py", 50, 2
    owner = pair[0].start(["python3", program, "owner", A, count, users])
    owner.expect("ready")
    for user in [pair[1].start(["python3", program, "user", B, A, 4021 + i, count]) for i in range(users)]:
        user.wait(120, check=True)
    owner.wait(60, check=True)


# Answers go before operations that wait to be posted, and behind those that the device has: 126 MiB of the long ones.
@pytest.mark.pairs("rust-rust")
@pytest.mark.parametrize("what, size", (
    pytest.param("write", 64 << 10, id="write-short"),
    pytest.param("read", 64 << 10, id="read-short", marks=pytest.mark.long("release", "debug")),
    # So much takes minutes on the debug kernel.
    pytest.param("read", 1 << 20, id="read-long", marks=pytest.mark.flavors("release")),
    pytest.param("write", 1 << 20, id="write-long",
                 marks=[pytest.mark.flavors("release"), pytest.mark.long("release")])))
def test_operations_without_end(patient, guest, what, size):
    """A node that does nothing but operate on memory of its peer answers the peer, and is not given up."""
    pair = a, b = patient
    program = ["python3", guest / "one_sided.py"]
    with silence_limit(4, *pair):
        user = a.start([*program, "user", A, B, what, size])
        user.expect("^ready$")
        before = counters(b, guest)
        target = b.start([*program, "target", B, A])
        # It asks for the second time when it was answered.
        seen = wait_for(b, guest, lambda now: now["conn_keepalive_sent"] > before["conn_keepalive_sent"] + 1)
        for process in (user, target):
            process.write("", close=True)
            process.wait(300, check=True)
    unchanged(before, seen, "conn_keepalive_timeout", "conn_reset")


def under_way(pair, guest, rounds):
    """Operations of a program on b that does again what ends with a connection, on memory of one on a."""
    first = pair[0].start(["python3", guest / "rdma_end.py", "owner", A, B, rounds])
    first.expect("ready")
    return first, pair[1].start(["python3", guest / "rdma_end.py", "user", B, A, rounds, "insist"])


def done(first, second):
    second.wait(300, check=True)
    first.wait(60, check=True)


@pytest.mark.pairs("rust-rust")
def test_packets_lost(pair, guest):
    """One packet of a hundred is lost: what soft-RoCE does not send again in time ends, and can be done again."""
    with losing(pair, 1):
        done(*under_way(pair, guest, 20))


@pytest.mark.long
@pytest.mark.pairs("rust-rust")
def test_packets_lost_of_operations_with_messages(pair, guest):
    """Each is told of once, and its message comes once, or not at all if the operation ended with a connection."""
    program, (a, b) = ["python3", guest / "together.py"], pair
    with losing(pair, 3):
        owner = a.start([*program, "owner", A, B, 300])
        owner.expect("ready")
        user = b.start([*program, "user", B, A, 300])
        done(owner, user)


# A cut wire ends no connection of iWARP.
@pytest.mark.kinds("rxe")
@pytest.mark.pairs("rust-rust")
def test_wire_cut(pair, guest, flavor):
    """Operations that are under way when a connection is lost end, and the memory can be used on the next."""
    _, b = pair
    ends = under_way(pair, guest, messages(flavor, 80))
    let_packets_pass(guest, b, b.netdevs[0], 100)
    assert ends[1].running(), "the wire was to be cut while operations are under way"
    mark = b.mark("the wire is cut")
    with losing(pair, 100):
        b.wait_log(": disconnected", mark, timeout=120)
    done(*ends)


@pytest.mark.pairs("rust-c")
@pytest.mark.parametrize("owner", ("rust", "c"))
def test_with_c(owner, pair, guest):
    ends = [(pair[0], A), (pair[1], B)]
    if owner == "c":
        ends.reverse()
    between(*ends, guest, 5)
    # test_two_nodes has the most that this module uses.
    if owner == "rust":
        between(*ends, guest, 1, "most")


# How memory is registered, with a connection and as what comes first, and what C says of it: ENODEV if the local address has
# had no connection at all.
REGISTRATIONS = {"get": ["EOPNOTSUPP"], "dest": ["EOPNOTSUPP"], "map": ["registered"], "unflagged": ["registered"],
                 **dict.fromkeys(("get-first", "dest-first"), ["EOPNOTSUPP", "ENODEV"]), "map-first": ["EAGAIN"]}
# What becomes of an operation of the peer's on it, and the two numbers, that of the owner, 5, and that of the user, 9.
OPERATIONS = {"read": ("SUCCESS", 5, 5), "write": ("SUCCESS", 9, 9), "add": ("REMOTE_ERROR", 5, 9),
              "swap": ("REMOTE_ERROR", 5, 9)}
# C asks soft-RoCE for masked operations only, and forgets the message if that has none.
REFUSED = "RDS/IB: atomic ib_post_send to .* returned -22"
# It knows no connection in setsockopt().
NO_CONNECTION = r"RDS/IB: rds_ib_get_mr failed \(errno=-95\)"


def start_with_c(ends, guest, registration, operation):
    """An owner and a user of memory, see with_c.py, on a connection that was not there before."""
    (m, here), (n, there) = ends
    tos = new_type()
    programs = [node.start(["python3", guest / "with_c.py", *rest, tos, registration, operation])
                for node, rest in ((m, ("owner", here, there)), (n, ("user", there, here)))]
    for program in programs:
        program.expect("^ready$")
    for program in programs:
        program.write("go\n")
    return programs


@pytest.mark.pairs("rust-c")
@pytest.mark.parametrize("operation", ("read", "write"))
@pytest.mark.parametrize("owner", ("rust", "c"))
def test_used_once_with_c(owner, operation, pair, guest):
    """Memory for one use is gone when the message of its use is there."""
    ends = [(pair[0], A), (pair[1], B)]
    if owner == "c":
        ends.reverse()
    first, second = start_with_c(ends, guest, "once", operation)
    told, theirs, ours = OPERATIONS[operation]
    second.expect(f"^{told} {ours}$")
    first.write("end\n")
    assert first.wait(60, check=True).out.split() == ["ready", "registered", "EINVAL", str(theirs)]
    second.wait(60, check=True)


@pytest.mark.pairs("rust-c")
@pytest.mark.parametrize("registration", REGISTRATIONS)
@pytest.mark.parametrize("owner", ("rust", "c"))
def test_each_with_c(owner, registration, pair, guest):
    """Documentation/rdma.md has the table."""
    ends = [(pair[0], A), (pair[1], B)]
    if owner == "c":
        ends.reverse()
    (m, _), (n, _) = ends
    for operation, wanted in OPERATIONS.items():
        what = f"{owner}, {registration}, {operation}"
        marks = m.mark(what), n.mark(what)
        first, second = start_with_c(ends, guest, registration, operation)
        told = first.expect("^ready\n(.*)\n")[1]
        assert told in (REGISTRATIONS[registration] if owner == "c" else ["registered"])
        if told == "EOPNOTSUPP":
            m.wait_log(NO_CONNECTION, marks[0])
        if told != "registered":
            second.stop()
            first.stop()
            break
        if owner == "rust" and wanted[0] != "SUCCESS":
            n.wait_log(REFUSED, marks[1])
            second.stop()
            second_told = ""
        else:
            second_told = second.expect("^ready\n(.*)\n")[1]
            second.wait(60, check=True)
            if second_told.startswith("REMOTE_ERROR"):
                n.wait_log("Send failed: remote access error", marks[1])
        first.write("end\n")
        number = first.wait(60, check=True).out.split()[-1]
        assert int(number) == wanted[1], (operation, number)
        # A peer whose device has refused a key disconnects: that may be seen before the refusal.
        told = [wanted[0], "DROPPED"] if wanted[0] == "REMOTE_ERROR" else [wanted[0]]
        assert second_told in ("", *(f"{x} {wanted[2]}" for x in told)), operation
