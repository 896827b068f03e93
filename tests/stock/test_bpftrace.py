# SPDX-License-Identifier: GPL-2.0
"""The scripts of tools/bpftrace on Debian's own kernels, with traffic."""

import re

import pytest

from rdsvm.cluster import must, wire_address

A, B = (wire_address(0, x) for x in (1, 2))
NEAR, FAR = (f"::ffff:{x}" for x in (A, B))
ENDS = rf"{NEAR}, {FAR}, 0"
PINGS = f"rds-ping -c 20 -i 0.05 -I {A} {B}"
OPERATIONS = f"rds-stress -r {A} -s {B} -t 1 -d 1 -T 3 -q 256 -D 16K -I 1"
# One socket sends to another of its node until that has no room. Then that one reads. Before that a
# message finds no socket.
SLOW_READER = """
import socket
reader, sender = (socket.socket(21, socket.SOCK_SEQPACKET) for _ in range(2))
reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
reader.bind(("127.0.0.1", 4000))
sender.bind(("127.0.0.1", 4001))
sender.sendto(b"", ("127.0.0.1", 4002))
count = 0
try:
    while True:
        sender.sendto(bytes(8192), socket.MSG_DONTWAIT, ("127.0.0.1", 4000))
        count += 1
except OSError:
    pass
for _ in range(count):
    reader.recv(8192)
"""
# Traffic, and lines that the script prints about it.
CASES = {
    "rds-cpus.bt": (PINGS, (rf"@received\[{ENDS}, \d+\]: \d+", rf"@sent\[{ENDS}, \d+\]: \d+")),
    # Each answer takes at least that long on an emulated machine.
    "rds-stalls.bt 1": (PINGS, (rf"\S+ {NEAR} -> {FAR}, 0: message \d+ from port \d+ to 0 took \d+ ms", "at the end")),
    "rds-sizes.bt": (OPERATIONS, (r"@message_bytes\[0\]: \d+", r"@operation_bytes\[[01]\]: \d+", r"@operation_size\[[01]\]: ?")),
    "rds-throughput.bt": ("sh /root/both.sh", (
        rf"@sent_messages\[{ENDS}\]: \d+", rf"@received_messages\[{ENDS}\]: \d+",
        *(rf"@{way}_bytes\[::ffff:127.0.0.1, ::ffff:127.0.0.1, 0\]: [1-9]\d*" for way in ("sent", "received")))),
    "rds-rdma-latency.bt": (OPERATIONS, (r"@us\[[01]\]: ?", r"\[\S+(?: \S+)? +[1-9]\d* \|@+ *\|")),
    "rds-rdma-rate.bt": (OPERATIONS, (rf"@bytes\[{ENDS}, [01]\]: \d+", rf"@operations\[{ENDS}, [01]\]: \d+", r"@registered: [1-9]\d*")),
    # The kernel runs no script on a CPU whose task is in bpf(), so some events may be missing.
    "rds-steps.bt": (PINGS, (r"@steps\[tracepoint:rds:rds_msg_queued, rds-ping\]: (1[5-9]|20)",
                             r"@steps\[tracepoint:rds:rds_msg_read, rds-ping\]: (1[5-9]|20)")),
    "rds-latency.bt": (PINGS, (rf"@to_ack_us\[{ENDS}\]: ?", rf"@to_post_us\[{ENDS}\]: ?", rf"@to_read_us\[{ENDS}\]: ?")),
    "rds-congestion.bt": ("python3 /root/slow_reader.py", (
        r"\S+ ::ffff:127.0.0.1 port 4000 is congested", r"\S+ ::ffff:127.0.0.1 port 4000 has room after \d+ ms")),
    "rds-drops.bt": ("python3 /root/slow_reader.py", (r"\S+ reason \d+ of \S+, \S+, 0: 1 \(python3, \d+\)", r"@drops\[\d+, \d+, python3\]: 1")),
}


@pytest.mark.parametrize("script", CASES, ids=lambda it: it.partition(".")[0])
def test_script(script, nodes):
    """bpftrace runs the program once all probes are attached, and ends with it."""
    a, b = nodes
    for node in nodes:
        must(node.load())
    a.run("mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing")
    a.write_file("/root/slow_reader.py", SLOW_READER)
    a.write_file("/root/both.sh", f"{PINGS}\npython3 /root/slow_reader.py\n")
    traffic, wanted = CASES[script]
    if "rds-stress" in traffic:
        passive = b.start(["rds-stress", "-r", B])
        passive.expect("waiting for incoming connection")
    out = a.run(f"bpftrace -c '{traffic}' /usr/share/rds-rust/{script}", timeout=600).out
    lines = [x.strip() for x in out.splitlines()]
    for pattern in wanted:
        assert any(re.fullmatch(pattern, x) for x in lines), f"{pattern} is not in:\n{out}"
    for node in nodes:
        node.stop_all()
        must(node.unload())
