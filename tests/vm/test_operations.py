# SPDX-License-Identifier: GPL-2.0
"""RDMA reads, RDMA writes and atomic operations on memory of peers."""

import errno
import re

import pytest
from faults import EVERYWHERE, KNOBS, faults, faults_within, place, place_of_rust
from probes import Probes
from rdsvm.cluster import must, wire_address
from tracing import traced
from traffic import (PATIENT, counters, let_packets_pass, losing, messages, new_devices, new_type,
                     silence_limit, unchanged, wait_for)

# Peers never access a bounce buffer.
pytestmark = [pytest.mark.impls("rust"), pytest.mark.dma("translated", "strict")]
# The debug kernel takes too long for this number of connections on few CPUs.
CASES = (pytest.param("first_of_all", marks=pytest.mark.flavors("release")), "transfers", "silent", "cookies", "for_dest",
         "over_ipv6", "read_only", "atomics", "closed", "killed",
         pytest.param("unfenced", marks=pytest.mark.long), "unread",
         "looked", "told_nowhere", "forgotten", "waiting", "limits", "copied", "moved", "removed")


def operate(node, guest, case, **kwargs):
    """Runs a case of operate.py."""
    node.run(["python3", guest / "operate.py", int(node.kind == "rxe"), case], **kwargs)


@pytest.mark.kept
@pytest.mark.on_siw("release")
@pytest.mark.parametrize("case", CASES)
def test_operations(case, node, guest):
    operate(node, guest, case, timeout=600)


# 16,384 operations take minutes on the debug kernel, and nothing in the limit depends on it.
@pytest.mark.flavors("release")
def test_unread_statuses(node, guest):
    """ENOBUFS instead of more kernel memory for notifications that a program has requested and does
    not read."""
    node.run(["python3", guest / "unread_statuses.py"], timeout=300)


@pytest.mark.on_siw("release")
@pytest.mark.parametrize("case", ("bad_arguments", "shorter", "bad_keys", "silent_bad_keys", "untold"))
def test_refused(case, node, guest):
    # A user with refusals has to wait before further operations. They are forgotten with the
    # module.
    node.forget()
    node.run(["python3", guest / "refused.py", int(node.kind == "rxe"), case], timeout=600)


@pytest.mark.race
@pytest.mark.parametrize("case", ("fenced", "canceled"))
def test_statuses(case, node, guest):
    node.run(["python3", guest / "statuses.py", case], timeout=300)


@pytest.mark.on_siw("release")
@pytest.mark.long
def test_statuses_in_turn(node, guest):
    node.run(["python3", guest / "statuses.py", "in_turn"], timeout=300)


# Soft-iWARP does not report that a write was refused. TCP gives up nothing before its connection.
# Messages behind a read wait for its end. There are no atomic operations.
@pytest.mark.race
@pytest.mark.kinds("rxe")
@pytest.mark.parametrize("case", (pytest.param("refused", marks=pytest.mark.long), "dropped", "unanswered", "fenced_atomics"))
def test_statuses_of_roce(case, node, guest, load):
    if case == "refused":
        load()  # As in test_refused.
    elif case == "dropped":
        # The program ends the connection before the device does, even on a loaded machine.
        load(PATIENT)
    node.run(["python3", guest / "statuses.py", case], timeout=300)


# The CM's reason for a rejection.
STALE_CONNECTION = 10
# Faults by name, with their probability in percent.
FAULTS = {"memory": (("failslab", "fail_page_alloc"), 1), "device": (
    ("rds_faults/fail_map", "rds_faults/fail_alloc_mr", "rds_faults/fail_post"), 5)}


@pytest.mark.flavors("debug")
@pytest.mark.parametrize("what", FAULTS)
def test_faults(what, node, guest):
    """Steps of a registration and of an operation fail at random: pages, mappings, regions, work
    requests."""
    names, probability = FAULTS[what]
    with faults(node, *names, probability=probability, min_order=0):
        operate(node, guest, "short_of_memory", timeout=600)
    operate(node, guest, "cookies")


@pytest.mark.flavors("debug")
@pytest.mark.parametrize("whose", ("own", "device"))
def test_each_step(whose, node, guest):
    """Each step fails once without a lasting effect: nothing stays pinned or charged, and the next
    operation succeeds."""
    node.forget()
    with faults_within(node, (1, 2), "rds_faults/lose_registration", probability=0), \
            faults(node, "failslab", "fail_page_alloc", "fail_usercopy", *FAULTS["device"][0], probability=0, min_order=0):
        node.run(["python3", guest / "each_step.py", whose, int(node.kind == "rxe")], timeout=600)
    operate(node, guest, "cookies")


# Functions that create a device's own queue pair. They run in the caller that registers memory, in
# the worker that connects the two ends, and in the listener that gets the request.
MAKERS = {"caller": r"2mr4pool.*6MrPool6region$", "worker": r"6reg_qp.*6Making.*8WorkItem3run$",
          "listener": r"8Listener.*6reg_qp8ExpectedE8on_event"}


@pytest.mark.on_siw
@pytest.mark.flavors("debug")
@pytest.mark.parametrize("maker", (
    pytest.param(x, marks=pytest.mark.long) if x == "worker" else x for x in MAKERS))
def test_each_step_of_the_first_registration(maker, node, guest):
    """The first registration is refused or succeeds, and the next one succeeds."""
    node.forget()
    with faults_within(node, EVERYWHERE, "rds_faults/fail_post", probability=0), \
            faults_within(node, place_of_rust(node, MAKERS[maker]), "failslab", "fail_page_alloc", "fail_usercopy",
                          probability=0, spared=place(node, "rdma_rxe"), min_order=0):
        who = {"caller": "first_own", "listener": "first_refused"}.get(maker, "first")
        node.run(["python3", guest / "each_step.py", who, int(node.kind == "rxe")], timeout=600)
    operate(node, guest, "cookies")


@pytest.mark.flavors("debug")
def test_no_region_left(node, guest):
    # This frees the regions that are kept for later use.
    node.forget()
    with faults(node, "rds_faults/fail_alloc_mr", probability=100):
        operate(node, guest, "exhausted")
    operate(node, guest, "cookies")


@pytest.mark.flavors("debug")
@pytest.mark.parametrize("case,times,space", (
    # A new queue pair registers the memory.
    ("registered", 1, 0),
    pytest.param("unregistered", 2, 0, marks=pytest.mark.long),
    # The second work request is lost.
    ("not_ended", 1, 2)))
def test_lost_registration(case, times, space, node, guest):
    """A device never reports that it has registered memory, or invalidated it. The wait has a
    limit, and a new queue pair then works."""
    operate(node, guest, "cookies")
    with traced(node, "rds_error") as trace, \
            faults(node, "rds_faults/lose_registration", probability=100, times=times, space=space):
        operate(node, guest, case)
        assert node.run(f"cat {KNOBS}/lose_registration/times").out.strip() == "0"
        # Of the work requests that register memory, not of those that invalidate it.
        failed = [x for x in trace() if re.fullmatch(rf"error: <.*,::,0> registration: -{errno.ETIMEDOUT}", x)]
        assert len(failed) == (0 if space else times), trace()
    # The device may be in a back-off period.
    node.run(["python3", guest / "unanswered.py", "later"], timeout=300)
    operate(node, guest, "cookies")


# Soft-iWARP connects to itself over the network.
@pytest.mark.on_siw
@pytest.mark.kinds("siw")
def test_device_that_does_not_answer_itself(node, guest):
    """One of the programs that register memory waits for the device. After that the others fail
    without a wait."""
    # An earlier registration would have left a queue pair for the test.
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
    """A device that was removed and added again numbers its queue pairs from the start. The CM
    takes one of them for that of an earlier connection, so another number is used."""
    node.forget()
    new_devices(node, guest)
    mark = node.mark("a number is known")
    node.run(["python3", guest / "known_numbers.py", whose])
    node.wait_log(f"cannot connect the queue pairs that register memory: rejected .{STALE_CONNECTION}.", mark)
    operate(node, guest, "cookies")


MASKS = {"registration": 1, "atomics": 2, "initiator-depth": 4, "responder-resources": 8, "sges": 16,
         "region-pages": 32}


def less_able(node, guest, lacking, bit):
    """Runs a case of less_able.py with a bit of the mask set."""
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
    """Operations that the device does not support are refused, and all others work."""
    less_able(node, guest, lacking, MASKS[lacking])


# Soft-iWARP has no atomic operations, and is not asked for any.
@pytest.mark.flavors("debug")
@pytest.mark.kinds("rxe")
def test_device_that_refuses_masks(node, guest):
    """The device claims masked atomic operations, and refuses them."""
    less_able(node, guest, "masked-atomics", 64)


@pytest.mark.flavors("debug")
@pytest.mark.kinds("rxe")
def test_device_with_masks(node, guest):
    """The device accepts masked atomic operations, which serve as plain ones."""
    less_able(node, guest, "masks", 256)


@pytest.mark.flavors("debug")
@pytest.mark.kinds("rxe")
def test_device_that_refuses_atomics(node, guest):
    """Some mlx5 devices refuse atomic operations when they are posted, with EOPNOTSUPP."""
    less_able(node, guest, "refused-atomics", 128)


def between(owner, user, guest, rounds, *how):
    """Runs operations of a program on one node on memory of a program on the other. rdma_end.py
    describes the modes."""
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
        between(*way, guest, 1)
    # The maximum of bytes and pieces takes as many packets on each kind of device.
    if pair[0].kind == "rxe":
        between(*ends, guest, 1, "most")


@pytest.mark.race
@pytest.mark.kinds("rxe")
@pytest.mark.pairs("rust-rust")
def test_atomics_of_two_nodes(pair, guest):
    """Programs on one node change numbers of a program on the other at the same time."""
    program, count, users = guest / "atomics_end.py", 50, 2
    owner = pair[0].start(["python3", program, "owner", A, count, users])
    owner.expect("ready")
    for user in [pair[1].start(["python3", program, "user", B, A, 4021 + i, count]) for i in range(users)]:
        user.wait(120, check=True)
    owner.wait(60, check=True)


# Answers go before operations that wait to be posted. They go behind those that the device already
# has: 126 MiB of the long ones.
@pytest.mark.pairs("rust-rust")
@pytest.mark.parametrize("what, size", (
    pytest.param("write", 64 << 10, id="write-short"),
    pytest.param("read", 64 << 10, id="read-short", marks=pytest.mark.long("release", "debug")),
    # This amount takes minutes on the debug kernel.
    pytest.param("read", 1 << 20, id="read-long", marks=pytest.mark.flavors("release")),
    pytest.param("write", 1 << 20, id="write-long",
                 marks=[pytest.mark.flavors("release"), pytest.mark.long("release")])))
def test_operations_without_end(patient, guest, what, size):
    """A node that only operates on memory of its peer still answers the peer, and is not given
    up."""
    pair = a, b = patient
    program = ["python3", guest / "one_sided.py"]
    # An answer waits for what the device has. A driver that checks each access takes longer for it.
    limit = 20 if a.dma else 4
    with silence_limit(limit, *pair):
        user = a.start([*program, "user", A, B, what, size])
        user.expect("^ready$")
        before = counters(b, guest)
        # The 32nd message asks for an acknowledgement, with which b would not be silent.
        target = b.start([*program, "target", B, A, limit / 16])
        # The second keepalive is sent after an answer to the first.
        seen = wait_for(b, guest, lambda now: now["conn_keepalive_sent"] > before["conn_keepalive_sent"] + 1)
        for process in (user, target):
            process.finish(timeout=300)
    unchanged(before, seen, "conn_keepalive_timeout", "conn_reset")


def under_way(pair, guest, rounds):
    """Starts operations of a program on b on memory of a program on a. It repeats those that end
    with a connection."""
    first = pair[0].start(["python3", guest / "rdma_end.py", "owner", A, B, rounds])
    first.expect("ready")
    return first, pair[1].start(["python3", guest / "rdma_end.py", "user", B, A, rounds, "insist"])


def done(first, second):
    second.wait(300, check=True)
    first.wait(60, check=True)


# test_packets_lost_of_operations_with_messages reaches the same blocks.
@pytest.mark.long("release", "debug")
@pytest.mark.pairs("rust-rust")
def test_packets_lost(pair, guest):
    """One packet of a hundred is lost. Operations that soft-RoCE does not repair in time end, and
    can be repeated."""
    with losing(pair, 1):
        done(*under_way(pair, guest, 20))


@pytest.mark.long
@pytest.mark.pairs("rust-rust")
def test_packets_lost_of_operations_with_messages(pair, guest):
    """Each operation is reported once. Its message arrives once, or never if the operation ended
    with a connection."""
    program, (a, b) = ["python3", guest / "together.py"], pair
    with losing(pair, 3):
        owner = a.start([*program, "owner", A, B, 300])
        owner.expect("ready")
        user = b.start([*program, "user", B, A, 300])
        done(owner, user)


# On iWARP a cut wire ends no connection. Each block is also reached by test_wire_cut of
# test_pair.py and by test_packets_lost_of_operations_with_messages.
@pytest.mark.long("release", "debug")
@pytest.mark.kinds("rxe")
@pytest.mark.pairs("rust-rust")
def test_wire_cut(pair, guest, flavor):
    """Operations in progress end with the connection, and the memory can be used on the next
    one."""
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
    between(*ends, guest, 2)
    # test_two_nodes covers the maximum that this module uses.
    if owner == "rust":
        between(*ends, guest, 1, "most")


# Ways to register memory, on a connection or as the first call of all, and the answers of C RDS.
# ENODEV means that the local address has never had a connection.
REGISTRATIONS = {"get": ["EOPNOTSUPP"], "dest": ["EOPNOTSUPP"], "map": ["registered"], "unflagged": ["registered"],
                 **dict.fromkeys(("get-first", "dest-first"), ["EOPNOTSUPP", "ENODEV"]), "map-first": ["EAGAIN"]}
# Outcome of a peer's operation on the memory, and the final numbers of the owner (5 at first) and
# of the user (9).
OPERATIONS = {"read": ("SUCCESS", 5, 5), "write": ("SUCCESS", 9, 9), "add": ("REMOTE_ERROR", 5, 9),
              "swap": ("REMOTE_ERROR", 5, 9)}
# C RDS asks soft-RoCE for masked operations only, and forgets the message if the device has none.
REFUSED = "RDS/IB: atomic ib_post_send to .* returned -22"
# C RDS knows no connection in setsockopt().
NO_CONNECTION = r"RDS/IB: rds_ib_get_mr failed \(errno=-95\)"


def start_with_c(ends, guest, registration, operation):
    """Starts an owner and a user of memory (see with_c.py) on a connection that was not used
    before."""
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
    """Memory for a single use is released when the message with its use arrives."""
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
    """The table is in Documentation/rdma.md."""
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
        # A peer whose device has refused a key disconnects. The disconnect may be noticed before
        # the refusal.
        told = [wanted[0], "DROPPED"] if wanted[0] == "REMOTE_ERROR" else [wanted[0]]
        assert second_told in ("", *(f"{x} {wanted[2]}" for x in told)), operation
