# SPDX-License-Identifier: GPL-2.0
"""What a node holds for its peers: objects of its RDMA devices, connections, buffers, memory."""

import json
import re
import time

DEBUGFS = "/sys/kernel/debug/rds"
# How long a connection may take to go, in seconds: some attempts end when the CM gives up to send.
PATIENCE = 180
# Of a receive buffer for fragments of 8 KiB.
RECEIVE_BYTES = 9344


def allowed(node):
    """What may be more than before, and by how much. All else may not."""
    # What each end of the honest connection keeps posted at the least. iWARP has the whole ring.
    ring = 382 if node.kind == "siw" else 14
    # A ring is filled when a quarter is gone. A connection that is not let go would keep more.
    receives = 2 * (ring // 4)
    return {
        "receive buffers": receives,
        # Every 16th frame tells that those before it are out.
        "send buffers": 2 * 15,
        # With those; and a pool keeps what it needed once, for the next one.
        "pool bytes": receives * RECEIVE_BYTES + (1 << 20),
        # What each processor keeps of each kind of object: 1.4 MiB with the first attack, and up to 0.6 MiB with another.
        "unreclaimable slab": 3 << 20,
    }


def held(node, devices, rogues):
    """How much there is of each, by name. Whatever the node remembers of the peers `rogues`, one connection for each
    address and type of service, is no matter when it is down."""
    found = {}
    for each in json.loads(node.run(["rdma", "-j", "resource"]).out):
        if each["ifname"] in devices:
            found |= {f"{kind} of {each['ifname']}": count for kind, count in each.items()
                      if kind not in ("ifindex", "ifname")}
    pools = re.findall(rf"^(?:{'|'.join(devices)}) (\w+)-.* in_use=(\d+) .* bytes=(\d+)",
                       node.read_file(f"{DEBUGFS}/pools"), re.M)
    for name, kind in (("receive buffers", "recv"), ("send buffers", "send")):
        found[name] = sum(int(used) for x, used, _ in pools if x == kind)
    found["pool bytes"] = sum(int(size) for *_, size in pools)
    rows = re.findall(r"^\S+ -> (\S+?)(?: tos \d+)?: .*state=(\w+)", node.read_file(f"{DEBUGFS}/connections"), re.M)
    found["connections"] = sum(peer not in rogues or state != "down" for peer, state in rows)
    if not node.debug:
        # The debug kernel keeps what was freed, and finds what was not: kmemleak.
        [size] = re.findall(r"^SUnreclaim: +(\d+) kB", node.read_file("/proc/meminfo"), re.M)
        found["unreclaimable slab"] = int(size) << 10
    return found


def wait_until_back(node, before, *what):
    """Waits until a node holds no more than it did; there is no event to wait for."""
    deadline, margin = time.monotonic() + PATIENCE, allowed(node)
    while True:
        now = held(node, *what)
        grown = {name: f"{before.get(name, 0)} -> {count}" for name, count in now.items()
                 if count > before.get(name, 0) + margin.get(name, 0)}
        if not grown:
            return
        if time.monotonic() > deadline:
            pools = [x for x in node.read_file(f"{DEBUGFS}/pools").splitlines() if " bytes=0 " not in x]
            shown = "\n".join([node.read_file(f"{DEBUGFS}/connections"), *pools])
            raise AssertionError(f"the node has grown: {grown}\n{shown}")
        time.sleep(0.1)
