# SPDX-License-Identifier: GPL-2.0
"""The scripts of tools/bpftrace, and their questions, answered from the trace.

The test kernels have no BPF, so bpftrace only compiles the scripts here, with the formats of the
events. make test-stock runs them on Debian's kernels.
"""

import re
from collections import Counter, defaultdict, namedtuple
from pathlib import Path

import pytest
from rdsvm.cluster import PAIR
from tracing import EVENTS, REQUEST, TRACING, sizes_of, traced, ways
from traffic import new_type, ping

pytestmark = [pytest.mark.impls("rust"), pytest.mark.kinds("rxe"), pytest.mark.flavors("release")]

SCRIPTS = sorted((Path(__file__).resolve().parents[2] / "tools/bpftrace").iterdir())
RECORD = re.compile(r" *(?P<task>.+)-\d+ +\[(?P<cpu>\d+)\] \S+ +(?P<time>[\d.]+): rds_(?P<event>\w+): (?P<text>.*)")
Record = namedtuple("Record", "task cpu time event text")


ON_LOOPBACK = """
import socket
sock = socket.socket(21, socket.SOCK_SEQPACKET)
sock.bind(("127.0.0.1", 4000))
sock.sendto(bytes(300), ("127.0.0.1", 4000))
sock.recv(300)
"""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda it: it.stem)
def test_scripts_compile(script, node):
    """-d ends before anything is loaded into the kernel. The names of types are those of BTF."""
    types = ("#include <stdbool.h>\n#include <stdint.h>\n"
             + "".join(f"typedef uint{bits}_t u{bits};\n" for bits in (8, 16, 32, 64)))
    node.run(f"echo '{types}' >/tmp/types.h")
    done = node.run(["bpftrace", "-d", "--include", "/tmp/types.h", script], check=False, timeout=300)
    assert done.status == 0, str(done)
    # Without BTF, and without a list of functions.
    ours = [x for x in done.err.splitlines() if f"{script.name}:" in x]
    assert not ours, ours


def test_questions(node, tools, guest):
    """The events of pings and of operations answer the questions of the scripts."""
    node.forget()
    tos, count = new_type(), 10
    events = [x for x in node.run(["ls", EVENTS]).out.split() if x.startswith("rds_")]
    with traced(node, *events) as read:
        ping(tools, node, PAIR[1], PAIR[0], count=count, tos=tos)
        node.run(["python3", guest / "operate.py", 1, "cookies"], timeout=300)
        node.run(["python3", "-c", ON_LOOPBACK])
        lines = read()
        trace = node.run(["cat", f"{TRACING}/trace"]).out.splitlines()
    records = [Record(**match.groupdict()) for x in trace if (match := RECORD.fullmatch(x))]
    assert len(records) >= len(lines) > 0
    messages, texts = ways(lines), defaultdict(list)
    for record in records:
        texts[record.event].append(record)
    near, far = (f"::ffff:{x}" for x in PAIR)

    # rds-cpus.bt: the CPUs of both ends of a connection.
    cpus = {tuple(x.text.split(">")[0][1:].split(",")): x.cpu for x in texts["recv_completed"]}
    assert {(near, far, str(tos)), (far, near, str(tos))} <= set(cpus), cpus

    # rds-stalls.bt: the last messages may wait. They are those between the last acknowledged one
    # and the newest.
    waiting, numbers = Counter(), {"queued": {}, "acked": {}}
    for message, steps in messages.items():
        ends = message.source, message.destination, message.tos
        waiting[ends] += "queued" in steps and "acked" not in steps
        for step in numbers.keys() & set(steps):
            numbers[step][ends] = max(message.sequence, numbers[step].get(ends, 0))
    for ends in ((near, far, tos), (far, near, tos)):
        assert waiting[ends] == numbers["queued"][ends] - numbers["acked"][ends] < count, (ends, waiting, numbers)

    # rds-throughput.bt: what was sent has arrived. On loopback, it is queued and delivered.
    sent, received = Counter(), Counter()
    for message, steps in messages.items():
        ends = message.source, message.destination, message.tos
        on_loopback = message.transport == "loopback"
        sent[ends] += message.bytes * steps.count("queued" if on_loopback else "posted")
        received[ends] += message.bytes * steps.count("delivered" if on_loopback else "received")
    assert sent == received and sum(sent.values()) > 0, (sent, received)
    assert sent["::ffff:127.0.0.1", "::ffff:127.0.0.1", 0] == 300, sent

    # rds-sizes.bt: operations move more than messages here.
    request = re.compile(rf"<\S+> {REQUEST}(?: status SUCCESS)?")
    operations = {event: sizes_of(request.fullmatch(x.text).groups() for x in texts[event])
                  for event in ("op_posted", "op_completed")}
    assert ("write", 5000) in operations["op_posted"], operations
    assert sum(size for _, size in operations["op_posted"]) > sum(sent.values()), (operations, sent)

    # rds-rdma-rate.bt: all that was posted has completed.
    assert sorted(operations["op_posted"]) == sorted(operations["op_completed"]), operations
    assert any(x.text.endswith("for peers") for x in texts["mr_registered"]), texts["mr_registered"]

    # rds-rdma-latency.bt: an operation has a beginning before its end.
    begun = {}
    for record in sorted(texts["op_posted"] + texts["op_completed"], key=lambda x: (float(x.time), x.event == "op_completed")):
        number = request.fullmatch(record.text)[4]
        if record.event == "op_posted":
            begun[number] = float(record.time)
        else:
            assert 0 <= float(record.time) - begun[number] < 60, record

    # rds-steps.bt: programs queue and read, whatever runs the rest. Another context may queue for a
    # program.
    tasks = {event: Counter(x.task for x in found) for event, found in texts.items()}
    assert tasks["msg_queued"]["rds-ping"] > 0 and tasks["msg_read"]["rds-ping"] == count, tasks
