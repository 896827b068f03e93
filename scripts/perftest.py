# SPDX-License-Identifier: GPL-2.0
"""The cost of operations with user verbs: perftest's programs between a machine's two devices."""

from dataclasses import dataclass

from rdsvm import cluster
from rdsvm.node import NodeError

# Work of the devices is more urgent and goes first, so polling for completions uses only idle time.
IDLE = ["chrt", "--idle", "0"]
SECONDS = 300
MIB = 1 << 20
# The programs refuse a smaller number of iterations.
LEAST = 5


@dataclass
class Operation:
    """The work of a program: `count` operations, one at a time. size: bytes of each."""

    program: str
    size: int
    count: int


def gid_index(machine, device, address):
    """Returns the index of the device's RoCE v2 GID for an IPv4 address."""
    a, b, c, d = map(int, address.split("."))
    gid = f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"
    port = f"/sys/class/infiniband/{device}/ports/1"
    found = machine.run(f"cd {port}/gids && grep -l {gid} *").out.split()
    for index in found:
        if "v2" in machine.run(["cat", f"{port}/gid_attrs/types/{index}"]).out:
            return index
    raise NodeError(f"{device} has no GID of {address}")


def measure(machine, row, operation, quick):
    """Returns one line of output, like those of rds-bench: the mean of all operations."""
    count = LEAST if quick else operation.count
    options = [operation.program, "--tx-depth=1", f"--size={operation.size}", f"--iters={count}", "--noPeak"]
    # Reads and atomics in flight.
    if operation.program != "ib_write_bw":
        options.append("--outs=1")
    sides = [(f"--ib-dev=rdsx{i}", f"--gid-index={gid_index(machine, f'rdsx{i}', cluster.PAIR[i])}") for i in (0, 1)]
    server = machine.start(["stdbuf", "-o0", *IDLE, *options, *sides[1]], name=f"{operation.program}, server")
    server.expect("Waiting for client", SECONDS)
    client = machine.run([*IDLE, *options, "--output=bandwidth", *sides[0], "127.0.0.1"], timeout=SECONDS)
    cluster.must(server.wait(SECONDS))
    each = 1e9 * operation.size / (MIB * float(client.out.split()[-1]))
    return {"row": row, "unit": "instructions", "samples": count, "p50": each, "mean": each, "min": each, "max": each,
            "marked": 0}
