# SPDX-License-Identifier: GPL-2.0
"""The answers of each socket call, which are the same on C RDS and on rds_rust.

guest/abi.py runs the cases for each implementation: on the loopback address, between two RDMA
devices, and over TCP between two network namespaces. This file has the expected answers. For a
deliberate difference, the case holds a Differ with both answers and the reason.
"""

import json
from contextlib import contextmanager, nullcontext

import pytest
from differ import Differ
from rdsvm.cluster import PAIR, PAIR6
from traffic import ports, start_tcp


# Result of a receive by io_uring: number of bytes, payload, whether the source address is right,
# and length of that address. Flags and control messages (here a timestamp) follow.
FROM_THE_RING = [3, "abc", True, 16, 0, [[1, 29, 16]]]
# Mapped forms of IPv4 addresses that no socket can have.
BAD_MAPPED = ("mapped any", "mapped broadcast", "mapped multicast")


def tos_answers(after_a_message, low=4, high=255, again="EINVAL"):
    return {"unbound": [0, "ENOTTY"], "pinned": ["ok", low], "loopback": "ENOTTY",
            "bad memory": ["EFAULT", "EFAULT"], "set": ["ok", "ok", high],
            "set again": [again, again, high], "connected": ["ok", low],
            "after a message": after_a_message}


def tcp_tos_answers(after_a_message):
    return tos_answers([after_a_message, 0], low=0, high=0, again="ok")


def cancel_answers(wrong):
    return {"unbound": "ENOTCONN", "no bytes": "EINVAL", "short": "EINVAL", "short v6": wrong,
            "family": wrong, "bad memory": "EFAULT", "nothing there": "ok", "nothing there v6": "ok",
            "any": "ok", "storage": "ok", "storage v6": "ok"}


def stamp_answers(old_after_new, nanoseconds, new_nanoseconds):
    def told(*control):
        return ["abc", *control]

    old, new = [1, 29, True], [1, 63, True]
    return {"not asked": told(), "rds": told(old), "rds off": told(), "socket": told(old),
            "socket off": told(), "new": told(new), "old after new": told([1, old_after_new, True]),
            "nanoseconds": told(nanoseconds), "new nanoseconds": told(new_nanoseconds), "loopback": told(old)}


def zero_copy_answers(not_asked, asked="EOPNOTSUPP", no_cookie="EOPNOTSUPP"):
    return {"asked": asked, "asked, no cookie": no_cookie, "not asked": not_asked, "not asked, no cookie": not_asked}


def destination_answers(mapped, good):
    return {**{x: "EINVAL" for x in ("any", "multicast", *BAD_MAPPED, "link-local without scope", "short", "family")},
            "mapped": mapped, "good": good}


def bad_memory_answers(stamps, latency, both):
    return {name: ["EFAULT", then] for name, then in (("stamps", stamps), ("latency", latency), ("both", both))}


def compat_answers(tos):
    return {"get tos": tos, "set tos": tos, "timestamp": 0, "message": ["abc", 0],
            "control": [[1, 29, 8]]}


LOOP, LOOP6 = "127.0.0.1", "::1"
TOS_CAN_BE_SET = "connections are looked up for each message, so it can be set until it is"
HINTS = ("MSG_NOSIGNAL", "MSG_EOR", "MSG_MORE", "MSG_CONFIRM")
# Answers that do not depend on the addresses of the two ends.
ANYWHERE = {
    "socket_kinds": {"seqpacket": "ok", "dgram": "ESOCKTNOSUPPORT", "stream": "ESOCKTNOSUPPORT",
                     "protocol": "ESOCKTNOSUPPORT"},
    "unsupported_calls": {"listen": "EOPNOTSUPP", "accept": "EOPNOTSUPP",
                          "shutdown": "EOPNOTSUPP", "socketpair": "EOPNOTSUPP", "mmap": "ENODEV",
                          "ioctl": "ENOTTY"},
    "bind_errors": {
        "no bytes": "EINVAL", "one byte": "EINVAL", "short": "EINVAL", "short v6": "EINVAL",
        "family": "EINVAL", "any": "EINVAL", "broadcast": "EINVAL", "multicast": "EINVAL",
        "any v6": "EINVAL", "multicast v6": "EINVAL", "link-local without scope": "EINVAL",
        "mapped any": "EINVAL", "mapped multicast": "EINVAL", "mapped broadcast": "EINVAL",
        "port 1": "EINVAL", "port 1 v6": "EINVAL", "port 1, not ours": "EADDRNOTAVAIL",
        "not ours": "EADDRNOTAVAIL", "not ours v6": "EADDRNOTAVAIL", "good": "ok",
        "good v6": "ok", "mapped": "ok", "long": "ok"},
    "bind_twice": "EINVAL",
    "bind_port_of_another_address": "ok",
    "bind_again_after_close": "ok",
    "bind_port_zero": True,
    "connect_errors": {
        "short": "EINVAL", "short v6": "EINVAL", "any": "EDESTADDRREQ", "broadcast": "EINVAL",
        "multicast": "EINVAL", "link-local without scope": "EINVAL",
        **{x: "EPROTOTYPE" for x in ("any v6", "multicast v6", *BAD_MAPPED)}, "mapped": "ok",
        "unspec": "EAFNOSUPPORT", "family": "EAFNOSUPPORT", "good": "ok", "good v6": "ok", "nobody there": "ok"},
    "connect_then_send": [3, "abc"],
    "send_errors": {
        "no destination": "ENOTCONN", "any": "EINVAL", "broadcast": "EINVAL",
        "multicast": "EINVAL", "v6 from v4": "EOPNOTSUPP", "MSG_OOB": "EOPNOTSUPP",
        "MSG_DONTWAIT": 1, "empty": 0, "beyond 1 MiB": "EMSGSIZE",
        "beyond the send buffer": "EMSGSIZE"},
    "send_errors_v6": {"from v6": destination_answers(mapped="EOPNOTSUPP", good=1),
                       "from v4": destination_answers(mapped=1, good="EOPNOTSUPP")},
    "send_hints": Differ(
        c={x: "EOPNOTSUPP" for x in HINTS}, rust={x: 1 for x in HINTS},
        reason="the flags are hints without effect on datagrams, and programs for UDP pass them"),
    "send_unbound": "ENOTCONN",
    "send_to_v4_from_v6": "EOPNOTSUPP",
    "send_short_name": "EINVAL",
    "send_bad_memory": "EFAULT",
    "send_control": {"foreign level": 3, "unknown type": "EINVAL",
                     "zero-copy cookie alone": "EINVAL", "what is only received": "EINVAL",
                     **{f"short {x}": "EINVAL" for x in (
                         "arguments", "destination", "map", "fetch-and-add", "compare-and-swap",
                         "masked fetch-and-add", "masked compare-and-swap")}},
    "zero_copy": Differ(
        c=zero_copy_answers("EINVAL"), rust=zero_copy_answers("EOPNOTSUPP"),
        reason="nothing that a program could do would help"),
    "send_malformed_control": {
        "not even a header": 3, "shorter than a header": "EINVAL", "longer than the buffer": "EINVAL",
        "far longer": "EINVAL", "a second one": "EINVAL"},
    "send_with_two_errors": {f"{x}, {name}": told for x in ("beyond 1 MiB", "beyond the send buffer") for name, told in (
        ("malformed", "EINVAL"), ("unknown", "EMSGSIZE"), ("foreign", "EMSGSIZE"))},
    "recv_nothing": ["EAGAIN", "EAGAIN"],
    "recv_unbound": "EAGAIN",
    "recv_timeout": "ETIMEDOUT",
    "recv_interrupted": "interrupted",
    "recv_oob": 0,
    "recv_peek": ["abcdef", "abcdef", "EAGAIN"],
    "recv_short_buffer": ["abc", True, "EAGAIN"],
    "recv_msg_trunc": [6, "abc"],
    "recv_flags_of_a_whole_message": ["abcdef", 0, 0],
    "recv_bad_memory": "EFAULT",
    "order_is_kept": True,
    "sizes": {str(size): [True, True]
              for size in (0, 1, 4095, 4096, 4097, 8192, 65536, (1 << 20) - 1, 1 << 20)},
    "poll_states": ["OUT WRNORM", "IN OUT RDNORM WRNORM", "OUT WRNORM", "OUT WRNORM"],
    "epoll_wakes": [0, 1],
    "send_waits": ["ETIMEDOUT", "EINTR"],
    "short_messages_at_once": Differ(
        c={"to itself": "any number", "to nobody": [1664, "EAGAIN"]},
        rust={"to itself": [416, "EAGAIN"], "to nobody": [278, "EAGAIN"]},
        reason="buffers count memory, and on loopback a message counts until it is read"),
    "signals": Differ(c=[False] * 3, rust=[True] * 3, reason="sockets send signals to programs that ask for them"),
    "scopes_of_names": {"both of the link": ["link", "link"], "own of the link": ["link", "link"], "neither": [0, 0],
                        # It counts for addresses of links only.
                        "neither, with a scope": [0, 0]},
    "time_limits_below_zero": ["ETIMEDOUT", "ETIMEDOUT", "EAGAIN", "EAGAIN"],
    "send_to_a_full_receiver": Differ(
        c=["ENOBUFS", "ENOBUFS", "EINTR", "EINTR", 20000], rust=["ENOBUFS", "ENOBUFS", "ETIMEDOUT", "EINTR", 20000],
        reason="C ignores SO_SNDTIMEO while the receiver is full"),
    "recverr": [[0, 1, 1, 0], "EINVAL", "EINVAL", "EFAULT"],
    "type_of_service": Differ(
        c=tos_answers(after_a_message=["EINVAL", 0]), rust=tos_answers(after_a_message=["ok", 4]), reason=TOS_CAN_BE_SET),
    "options": {"foreign level": "ENOPROTOOPT", "unknown": "ENOPROTOOPT",
                "get unknown": "ENOPROTOOPT", "get foreign level": "ENOPROTOOPT"},
    "cancel_errors": Differ(
        c=cancel_answers("ok"), rust=cancel_answers("EINVAL"),
        reason="C ignores the family: it would cancel nothing, and return success"),
    "full_for_all_peers": ["EAGAIN", False, 1, True, 1],
    "cancel_leaves_other_sockets_alone": [True, False],
    "cancel_wakes_a_writer": [True, [3]],
    "cancel_with_a_longer_address": Differ(
        c=False, rust=True, reason="C takes each address of 28 bytes or more for IPv6"),
    "fork_shares_the_socket": "child",
    "monitor_errors": {"no bytes": "EINVAL", "short": "EINVAL", "bad memory": "EFAULT", "on": "ok", "off": "ok",
                       "long": "ok", "get": "ENOPROTOOPT"},
    "timestamp_errors": {**{f"{name} {option}": "ok" if name == "on" else "EFAULT" for option in (29, 63)
                            for name in ("short", "long", "bad memory", "on")}, "get": "ENOPROTOOPT"},
    "timestamps": Differ(
        c=stamp_answers(old_after_new=63, nanoseconds=[1, 29, True], new_nanoseconds=[1, 63, True]),
        rust=stamp_answers(old_after_new=29, nanoseconds=[1, 35, True], new_nanoseconds=[1, 64, True]),
        reason="C does not return to the older option number, and has no nanoseconds"),
    "latency_errors": {"short": "EFAULT", "long": "EFAULT", "bad memory": "EFAULT", "four": "EFAULT",
                       "beyond": "EFAULT", "off": "ok", "one": "ok", "all": "ok", "get": "ENOPROTOOPT",
                       "numbers": [0, 1, 2, 3], "positions": [0, 1, 2]},
    "latency": {
        **{x: [[276, 11, 3, [2, 1, 0], [True, True, True], []]] for x in ("three", "fragments")},
        **{x: [[276, 11, 1, [2, 0, 0], [True, True, True], [0, 0]]] for x in ("one", "after too many")},
        "after an error": []},
    "control_without_room": [["abc", 0, True], ["abc", 0, True], ["abc", 0, True], ["abc", 1, False]],
    "control_to_bad_memory": Differ(
        c=bad_memory_answers(*["EAGAIN"] * 3), rust=bad_memory_answers(["abc", 29], ["abc", 11], ["abc", 29, 11]),
        reason="C loses the message"),
    "recv_flags": {
        **{x: "abcdef" for x in ("MSG_WAITALL", "MSG_NOSIGNAL", "MSG_CMSG_CLOEXEC", "MSG_DONTROUTE")},
        "MSG_ERRQUEUE": "EAGAIN", "MSG_OOB": 0, "MSG_PEEK | MSG_TRUNC": 6, "then": "abcdef"},
    "write_and_read": Differ(
        c=["EOPNOTSUPP", ""], rust=[3, "abc"], reason="C refuses MSG_EOR, which write(2) sets"),
    "send_several": Differ(
        c=["EOPNOTSUPP", ["EAGAIN"] * 3], rust=[3, ["abc"] * 3],
        reason="C refuses MSG_BATCH, which sendmmsg(2) sets"),
    "uek_options": Differ(
        c={"reset nothing": "EINVAL", "reset bad memory": "EINVAL", "reset nothing v6": "ENOPROTOOPT",
           "reset short v6": "ENOPROTOOPT", "reset long v6": "ENOPROTOOPT",
           "transport": ["ENOPROTOOPT", "ENOPROTOOPT", -1]},
        rust={"reset nothing": "ok", "reset bad memory": "EFAULT", "reset nothing v6": "ok",
              "reset short v6": "EINVAL", "reset long v6": "EINVAL", "transport": ["ok", 0, 0]},
        reason="programs for Oracle's kernels use these numbers"),
    "uek_reset_needs_a_capability": Differ(
        c=["EINVAL", "ENOPROTOOPT"], rust=["EACCES", "EACCES"], reason="C has no such options"),
    "program_of_32_bits": Differ(
        c=compat_answers("ENOTTY"), rust=compat_answers(0),
        reason="C has no compat handler for its ioctls, though their arguments are the same"),
    "control_of_32_bits": {"foreign level": "abc", "unknown type": "EINVAL", "no such memory": "EINVAL",
                           "short": "EINVAL", "longer than the buffer": "EINVAL"},
    "told_to_32_bits": {"old": ["abc", False, 1, 29, True], "new": ["abc", False, 1, 63, True],
                        "latency": ["abc", False, 276, 11, 32, 2, [2, 0]], "no room": ["abc", True, [31]]},
    "options_of_32_bits": {"monitor": 0, "cancel": 0, "timeout": 0, "receive": "ETIMEDOUT", "transport": [0, 3],
                           "no room": "ENOSPC", "needed": True, "records": [40, "conn_reset"]},
    "io_uring": Differ(
        c=["EOPNOTSUPP", None, ""], rust=[3, 3, "abc"],
        reason="C refuses MSG_NOSIGNAL, which io_uring sets"),
    "io_uring_messages": Differ(
        c=["EOPNOTSUPP", "EOPNOTSUPP", FROM_THE_RING], rust=["EINVAL", 3, FROM_THE_RING],
        reason="C refuses MSG_NOSIGNAL, which io_uring sets"),
    "io_uring_cancelled": ["ECANCELED", 0, "", "abc"],
    "io_uring_without_copies": "EOPNOTSUPP",
    "without_rdma": {**{x: "EOPNOTSUPP" for x in ("register", "register for", "map", "write", "read", "add")},
                     "cookie": "EINVAL", "free nobody's": "EINVAL", "free all": "EINVAL"},
}


def names_of(near, far, near6, far6):
    """Returns the answers with the addresses of the sender and of the receiver."""
    return {
        "bind_in_use": ["EADDRINUSE", "ok", [near, 4002]],
        "names": ["unspec", 16, "ENOTCONN", [near, 4001], 16, [far, 4002]],
        "names_v6": [[near6, 4001], 28, [far6, 4002]],
        "names_of_a_socket_that_is_only_connected": [[["0.0.0.0", 0], 16, [far, 4002]], [["::", 0], 28, [far6, 4002]]],
        "mapped_is_v4": [[near, 4001], 16],
        "connect_again": [far, 4002],
        "recv_empty_message": [0, [near, 4002]],
        "messages_of_32_bits": {
            x: y for host in (near, near6)
            for x, y in ((host, [6, "abcdef", 0, [host, 4002]]), (f"{host} short", ["abc", True]))},
    }


def between(ends, ends6, transport, on_loopback):
    """Returns the answers with the addresses of a connection or with its transport.

    on_loopback: the outcome of a bind to a loopback address, with this transport selected."""
    return {
        "recv_sender": {LOOP: [LOOP, 4002], LOOP6: [LOOP6, 4002],
                        **{near: [far, 4002] for near, far in (ends, ends6)}},
        "transports": {LOOP: "loopback", LOOP6: "loopback", ends[0]: transport, ends6[0]: transport, "unbound": "none"},
        "cancel_frees_the_send_buffer": {x: [False, False, True] for x in (ends[0], ends6[0])},
        "transport_errors": {
            "short": "EINVAL", "long": "EINVAL", "negative": "EINVAL", "beyond": "EINVAL",
            "loopback": "EINVAL", transport: transport, "gap": "ENOPROTOOPT",
            "bound": "EOPNOTSUPP", "pinned twice": "EOPNOTSUPP", "pinned elsewhere": on_loopback,
            "pinned there": "ok",
            # bind() forgets the transport that it has chosen if the port is not available, and
            # keeps it if the address is not available.
            "port taken": ["EADDRINUSE", "none", "ok", transport, "ok"],
            "port taken, elsewhere": ["EADDRINUSE", "none", "ok", transport, on_loopback],
            "port 1": ["EINVAL", "none", "ok", transport, "ok"],
            "nowhere": ["ENOPROTOOPT", transport, "EOPNOTSUPP", transport, "ok"],
            "bad": ["EINVAL", transport, "EOPNOTSUPP", transport, "ok"],
            "forgotten": ["EADDRINUSE", "ok", "loopback"]}}


OVER_RDMA = {**ANYWHERE, **between(PAIR, PAIR6, "infiniband", "ENOPROTOOPT")}
# TCP takes each type of service for 0.
OVER_TCP = {
    "type_of_service": Differ(
        c=tcp_tos_answers(after_a_message="EINVAL"), rust=tcp_tos_answers(after_a_message="ok"), reason=TOS_CAN_BE_SET),
    "zero_copy": Differ(
        c=zero_copy_answers("EINVAL", asked=3, no_cookie="EINVAL"), rust=zero_copy_answers("EOPNOTSUPP"),
        reason="over TCP C has zero-copy sends, and this module does not have them yet")}
TCP_PAIR, TCP_PAIR6 = ("10.8.0.1", "10.8.0.2"), ("fd08::1", "fd08::2")
EXPECTED = {
    "loopback": {**OVER_RDMA, **names_of(LOOP, LOOP, LOOP6, LOOP6)},
    "device": {**OVER_RDMA, **names_of(*PAIR, *PAIR6)},
    "tcp": {**ANYWHERE, **between(TCP_PAIR, TCP_PAIR6, "tcp", "ok"), **names_of(*TCP_PAIR, *TCP_PAIR6), **OVER_TCP},
}
# Only the release kernel runs the cases between two ends, because they take long.
WHERE = ("loopback", *(pytest.param(x, marks=pytest.mark.flavors("release")) for x in ("device", "tcp")))


@contextmanager
def two_spaces(node):
    """Loads RDS with TCP, and makes a network namespace and a veth pair to it."""
    start_tcp(node)
    near, far = (f"addr add {x}/24 dev abi{i}\naddr add {x6}/64 dev abi{i} nodad\nlink set abi{i} up"
                 for i, (x, x6) in enumerate(zip(TCP_PAIR, TCP_PAIR6)))
    node.run("ip netns add abi && ip link add abi0 type veth peer name abi1 netns abi && "
             f"ip -b - <<END && ip -n abi -b - <<OTHER\n{near}\nEND\n{far}\nOTHER")
    yield
    # C RDS keeps the namespace, and loads again only with a new boot.
    if node.impl == "rust":
        node.run("ip netns del abi")
    node.forget()


@pytest.fixture(scope="session")
def answers():
    """Answers of each implementation at each place, by case. The first test that asks fills
    them."""
    return {}


def ask(node, where, guest):
    """Returns the answers of all cases at a place."""
    option = {"loopback": [], "device": ["--device"], "tcp": ["--tcp"]}[where]
    result = node.run(["python3", guest / "abi.py", *option], check=False, timeout=1200)
    found = {x["case"]: x["value"] for x in map(json.loads, result.out.splitlines())}
    assert set(found) == set(EXPECTED[where]), f"not all cases ran: {result}"
    return found


@pytest.mark.on_c
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("case", EXPECTED["loopback"])
def test_abi(node, answers, guest, case, where):
    key = node.impl, where
    if key not in answers:
        with two_spaces(node) if where == "tcp" else nullcontext():
            answers[key] = ask(node, where, guest)
    expected = EXPECTED[where][case]
    if isinstance(expected, Differ):
        expected = getattr(expected, node.impl)
    assert answers[key].get(case) == expected


@pytest.mark.impls("rust")
def test_control_messages_for_32_bits(node, guest):
    """Messages that carry only control data, and cookies. C RDS has no congestion notifications
    within a node."""
    result = node.run(["python3", guest / "compat_told.py", *PAIR, ports()], timeout=300)
    assert result.out == "all\n"
