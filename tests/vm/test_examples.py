# SPDX-License-Identifier: GPL-2.0
"""The programs of examples/, and the examples of tools/rds-socket, run as users run them, with this
module and with C RDS."""

import re
import signal

import pytest
from rdsvm.cluster import PAIR, PAIR6, TOP, wire_address
from traffic import counters, ports

pytestmark = [pytest.mark.flavors("release"), pytest.mark.kinds("rxe")]

BUILT, PYTHON = TOP / "build/examples", TOP / "examples/rds.py"
LOOP = ("127.0.0.1", "127.0.0.1")
WIRE = (wire_address(0, 1), wire_address(0, 2))
LANGUAGES = ("c", "python", "rust")


def ping(node, program, local, peer):
    result = node.run([program, local, peer])
    assert len(re.findall(r"^\d: ", result.out, re.M)) == 3, str(result)


def server(language, tools, local):
    return {"c": [BUILT / "rdma-write", local], "python": ["python3", PYTHON, "serve", local],
            "rust": [tools / "examples/memory", "serve", f"{local}:4700"]}[language]


def client(language, tools, local, peer):
    return {"c": [BUILT / "rdma-write", local, peer], "python": ["python3", PYTHON, "ask", local, peer],
            "rust": [tools / "examples/memory", "ask", f"{local}:0", f"{peer}:4700"]}[language]


def write(tools, languages, ours, theirs):
    """Makes a client ask a server twice, since the server continues after a request. Each end is
    (node, address)."""
    serves = theirs[0].start(server(languages[1], tools, theirs[1]))
    # A server must be bound before it is asked; an earlier request would be lost.
    theirs[0].run(f"until {tools}/rds-info -k | grep -q '{theirs[1].replace('.', '[.]')} *4700 '; do sleep 0.1; done")
    for i in (1, 2):
        result = ours[0].run(client(languages[0], tools, ours[1], theirs[1]))
        assert result.out == "written by the peer\n", str(result)
        serves.expect(rf"\A(?:(?:status 0|write 7: RDS_RDMA_SUCCESS.*)\n){{{i}}}\Z")
    serves.stop()


@pytest.mark.on_c
@pytest.mark.parametrize("ends", (LOOP, PAIR, PAIR6), ids=("loop", "rxe", "ipv6"))
@pytest.mark.parametrize("language", ("c", "rust"))
def test_ping(language, ends, node, tools):
    ping(node, {"c": BUILT / "ping", "rust": tools / "examples/ping"}[language], *ends)


@pytest.mark.impls("rust")
def test_tour(node, tools):
    """The tour example runs twice. C RDS cannot run it: on soft-RoCE it registers no memory by a
    call, and none for atomic operations."""
    for _ in range(2):
        assert node.run([tools / "examples/tour", *PAIR]).out.endswith("all is well\n")


@pytest.mark.on_c
@pytest.mark.parametrize("ends", (LOOP, PAIR), ids=("loop", "rxe"))
def test_messages(ends, node):
    """A sender exceeds the receiver's buffer, waits and continues. On loopback no port becomes
    congested."""
    port, count = ports(), 200
    receiver = node.start(["python3", PYTHON, "receive", ends[1], port, count])
    receiver.expect("^ready$")
    receiver.send_signal(signal.SIGSTOP)
    sender = node.start(["python3", PYTHON, "send", ends[0], port + 1, ends[1], port, count])
    if ends != LOOP:
        sender.expect("^congested$")
    receiver.send_signal(signal.SIGCONT)
    sender.expect(f"^sent {count}$")
    receiver.expect(f"^received {count}$")
    for process in (sender, receiver):
        process.wait(check=True)


@pytest.mark.parametrize("languages", [(x, y) for x in LANGUAGES for y in LANGUAGES], ids="-".join)
def test_rdma_write(languages, node, tools):
    write(tools, languages, (node, PAIR[0]), (node, PAIR[1]))


@pytest.mark.on_c
@pytest.mark.parametrize("languages", [(x, x) for x in LANGUAGES], ids="-".join)
def test_rdma_write_between_nodes(languages, pair, tools):
    """C RDS also works as either end."""
    a, b = zip(pair, WIRE)
    write(tools, languages, a, b)
    write(tools, languages, b, a)


def test_ping_between_nodes(pair, tools):
    ping(pair[0], BUILT / "ping", *WIRE)
