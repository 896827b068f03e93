# SPDX-License-Identifier: GPL-2.0
"""The outcome of operations on memory of peers, by the way it was registered, for C RDS and
rds_rust.

guest/abi_rdma.py runs the cases between two RDMA devices, for each implementation and each call
that registers memory. This file has the expected answers. For a difference, a Differ holds both
answers and the reason.
"""

import json

import pytest
from differ import Differ
from rdsvm.cluster import peer_address
from traffic import setting

# Outcomes of an operation, as guest/abi_rdma.py prints them.
DONE, SILENT, UNTOLD = "moved, SUCCESS, arrived", "moved, SUCCESS, silent", "moved, untold, arrived"
REFUSED, LOST = "unmoved, REMOTE_ERROR, lost, reset", "unmoved, untold, lost, reset"
STUCK = "unmoved, untold, lost, stuck"
# Life of a key: used, used again, freed, freed again, and the release of its memory. A key for a
# single use needs no call to free it. Some keys are used once more after that.
READ, READ_ONCE = [DONE, DONE, "ok", "EINVAL", "ok"], [DONE, "EINVAL", "ok"]
WRITTEN, WRITTEN_ONCE = [*READ, REFUSED], [*READ_ONCE, REFUSED]


def alike(answer, *names):
    return dict.fromkeys(names, answer)


def both(*names):
    return [f"{operation} {name}" for operation in ("write", "read") for name in names]


def untold(c, rust=REFUSED):
    return Differ(c=c, rust=rust, reason="nothing is lost in silence")


def to_the_page(c, rust=REFUSED):
    return Differ(c=c, rust=rust, reason="C registers whole pages, so peers can access neighbouring memory")


def atomic(rust):
    return Differ(c=STUCK, rust=rust, reason="C asks for masked operations only, which soft-RoCE does not have, and "
                                             "forgets the message when it refuses them")


EXPECTED = {
    "lives": {
        **alike(WRITTEN, "write none", "write READWRITE"),
        **alike(WRITTEN_ONCE, "write USE_ONCE", "write READWRITE USE_ONCE"),
        **alike(READ, *both("INVALIDATE", "READWRITE INVALIDATE"), "read none", "read READWRITE"),
        **alike(READ_ONCE, *both("USE_ONCE INVALIDATE", "READWRITE USE_ONCE INVALIDATE"),
                "read USE_ONCE", "read READWRITE USE_ONCE")},
    "lives_the_other_way": {"write none": WRITTEN, "read none": READ},
    "freed_with_invalidate": alike(["ok", REFUSED], "the call's", "the region's"),
    "flags_of_operations": {
        **alike(DONE, *both(*(f"{x}{y}" for y in ("", ", empty") for x in (
            "NOTIFY_ME", "FENCE NOTIFY_ME", "USE_ONCE", "INVALIDATE", "DONTWAIT", "REMOTE_COMPLETE", "unknown")))),
        **alike(DONE, *both("NOTIFY_ME SILENT", "FENCE NOTIFY_ME SILENT")),
        **alike(SILENT, *both("NOTIFY_ME SILENT, empty", "FENCE NOTIFY_ME SILENT, empty")),
        **alike(UNTOLD, *both("FENCE", "FENCE SILENT", "FENCE, empty"), "write none", "write SILENT",
                "write none, empty"),
        **alike("moved, untold, silent", *both("FENCE SILENT, empty"), "write SILENT, empty")},
    "flags_of_refused_operations": {
        **alike(REFUSED, "write NOTIFY_ME", "write NOTIFY_ME SILENT", "read NOTIFY_ME"),
        "write NOTIFY_ME SILENT, empty": "unmoved, REMOTE_ERROR, silent, reset",
        **alike(untold(LOST), "write none", "write SILENT", "read none"),
        "write SILENT, empty": untold("unmoved, untold, silent, reset", "unmoved, REMOTE_ERROR, silent, reset"),
        "write none, no RECVERR": LOST, "write none, RECVERR": "unmoved, DROPPED, lost, reset"},
    "calls_without_room": {
        **alike("message", "recv", "recvfrom", "read", "recvmsg", "recv, no RECVERR"),
        **alike("message, nothing", "recv, RECVERR", "recv, NOTIFY_ME")},
    "bounds": {
        **alike(DONE, *both("whole", "part", "first byte", "last byte", "40 pieces", "one byte each",
                            "less than it says", "less than it says, beyond the end", "1 MiB", "1 MiB, odd"),
                "write the same piece twice"),
        **alike(to_the_page(DONE), *both("byte behind", "over its end")),
        **alike(to_the_page(DONE, "EINVAL"), *both("byte before")),
        **alike(REFUSED, *both("over the end of its pages")),
        **alike(Differ(c=REFUSED, rust="EINVAL", reason="an address that wraps around would end the connection"),
                *both("byte before its pages")),
        **alike("EINVAL", *both("nothing", "a byte and nothing", "no pieces", "more than it says", "none, it says")),
        **alike("EMSGSIZE", *both("1025 pieces", "1 MiB and one, it says"))},
    "atomics": {
        **alike(atomic(f"{DONE}, fetched"), "add", "swap", "masked add, no mask", "masked swap, all bits", "add FENCE",
                "add without READWRITE"),
        **alike(atomic("EOPNOTSUPP"), "masked add", "masked swap"),
        **alike(atomic(REFUSED), "add behind the end", "add, bad key"),
        "swap another": atomic("unmoved, SUCCESS, arrived, fetched"),
        "add SILENT": Differ(c="unmoved, untold, silent, stuck", rust=f"{SILENT}, fetched", reason=atomic("").reason),
        "add untold": atomic(f"{UNTOLD}, fetched"),
        "add at 4": atomic("EINVAL"),
        **alike("EFAULT", "add to 4", "add to nowhere")},
    "registrations": {
        **alike("registered", "none", "READWRITE", "USE_ONCE", "INVALIDATE", "READWRITE USE_ONCE",
                "READWRITE INVALIDATE", "USE_ONCE INVALIDATE", "READWRITE USE_ONCE INVALIDATE", "FENCE", "unknown",
                "all", "a byte", "1 MiB", "1 MiB, odd", "257 pages", "not to be told"),
        **alike("EPERM", *(f"{x}, nothing may be locked" for x in ("a page", "no bytes", "too many bytes", "4 GiB"))),
        **alike("EINVAL", "no bytes", "wraps", "wraps, nothing may be locked", "4 GiB", "short", "free nobody's",
                "free nobody's, unbound", "free all, unbound", "free, short"),
        **alike("EFAULT", "not there", "in the kernel", "no access", "read-only, READWRITE", "half there",
                "nowhere to tell"),
        "two pages, one may be locked": Differ(c="registered", rust="ENOMEM", reason="nothing else bounds pinned memory"),
        "257 pages and a byte": "EMSGSIZE", "unbound": "ENOTCONN", "loopback": "EOPNOTSUPP", "free all": "ok",
        "free all, transport chosen": "ok",
        "read-only": Differ(c="EFAULT", rust="registered", reason="a peer may read memory that programs cannot write"),
        "without a connection": Differ(
            c="EAGAIN", rust="registered", reason="registration does not need a connection")},
    "arguments": {
        **alike("EFAULT", *both("nowhere", "no access", "in the kernel", "second nowhere", "pieces nowhere"),
                "read to read-only"),
        **alike("EINVAL", *both("wraps", "4 GiB"), "short", "two operations", "two atomics", "two cookies",
                "another's cookie", "short, long message"),
        **alike("EMSGSIZE", *both("2^60 pieces"), "short cookie, long message", "unknown, long message",
                "no pieces, 1 MiB and one", "1025 pieces, 1 MiB and one"),
        "unbound": "ENOTCONN", "loopback": "EOPNOTSUPP",
        "loopback, pieces nowhere": Differ(
            c="EFAULT", rust="EOPNOTSUPP",
            reason="an operation on the loopback address is refused before its arguments are read"),
        "an operation and a cookie": Differ(
            c="EINVAL", rust=3, reason="an answer can carry the cookie for the next operation"),
        "an operation and an atomic": Differ(c=3, rust="EINVAL", reason="no known program combines both")},
}
# The device decides the effect of an operation, whichever call has registered the memory.
BY_OPTION = {"lives": {name: x for name, x in EXPECTED["lives"].items() if "INVALIDATE" not in name},
             **{x: EXPECTED[x] for x in ("freed_with_invalidate", "registrations")}}
OF_CALLS = {"map": EXPECTED, "get": BY_OPTION, "dest": BY_OPTION}
# C RDS registers memory with the queue pair of a connection, and setsockopt() gives it none. These
# calls therefore register nothing there, and only the errors that C RDS reports earlier can be
# compared. This module has to behave as C RDS does with memory that a message has registered.
NONE, NO_QUEUE_PAIR = "EOPNOTSUPP", ("registered", "EAGAIN")
# The networks of add_peers(). The connections of C RDS do not survive these tests, and other tests
# use the first networks.
NETWORKS = {"map": 201, "get": 202, "dest": 203}


def expected(call, case, impl):
    answers = {name: getattr(x, impl) if isinstance(x, Differ) else x for name, x in OF_CALLS[call][case].items()}
    if impl == "c" and call != "map":
        if case != "registrations":
            return dict.fromkeys(answers, f"failed: {NONE}")
        answers = {name: NONE if x in NO_QUEUE_PAIR else x for name, x in answers.items()} | {"nowhere to tell": NONE}
    return answers


@pytest.fixture(scope="session")
def answers():
    """Answers of each implementation by the name of the call. The first test that asks fills
    them."""
    return {}


def ask(node, call, guest):
    """Returns the answers of all cases of a call."""
    network = NETWORKS[call]
    node.add_peers(1, network)
    ends = [peer_address(network, i) for i in (0, 1)]
    for host in ends:
        # The RDMA core notices the address after a short delay.
        node.run(["python3", guest / "laddr.py", "bound", host])
    result = node.run(["python3", guest / "abi_rdma.py", call, *ends, *OF_CALLS[call]], check=False, timeout=600)
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert [x["case"] for x in lines] == list(OF_CALLS[call]), f"not all cases ran: {result}"
    return {x["case"]: x["value"] for x in lines}


# C RDS does not support iWARP. Operations on soft-iWARP and on the debug kernel are those of
# test_operations.py. The debug kernel takes minutes for these connections.
@pytest.mark.on_c
@pytest.mark.kinds("rxe")
@pytest.mark.flavors("release")
@pytest.mark.parametrize("call,case", [(call, case) for call, cases in OF_CALLS.items() for case in cases])
def test_abi_rdma(node, answers, guest, call, case):
    key = node.impl, call
    if key not in answers:
        if node.impl == "c":
            # The many connections of C RDS would use all memory for receives.
            with setting("ib/max_recv_wr", 32, node):
                answers[key] = ask(node, call, guest)
        else:
            answers[key] = ask(node, call, guest)
    assert answers[key][case] == expected(call, case, node.impl)
