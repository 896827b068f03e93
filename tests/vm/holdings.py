# SPDX-License-Identifier: GPL-2.0
"""Resources that a node holds for its peers: RDMA objects, connections, buffers and memory."""

import json
import re
import time

DEBUGFS = "/sys/kernel/debug/rds"
# Maximum time for a connection to go, in seconds. Some attempts end only when the CM stops sending.
PATIENCE = 180


def allowed(node):
    """Returns by how much some values may exceed those before the attack. No other value may
    grow."""
    # Minimum number of receives that each end of the honest connection keeps posted. On iWARP the
    # whole receive ring is posted.
    ring = 382 if node.kind == "siw" else 14
    # A receive ring is refilled when a quarter is missing. A connection that was not released would
    # hold more.
    return {
        "receive buffers": 2 * (ring // 4),
        # One send in 16 is signalled, and its completion covers those before it.
        "send buffers": 2 * 15,
        # Objects that each processor caches of each kind. The first attack adds 1.4 MiB, a later
        # one up to 0.6 MiB.
        "unreclaimable slab": 3 << 20,
    }


def held(node, devices, rogues):
    """Returns the amount of each resource by name.

    The node may remember one connection of each address and type of service of the peers `rogues`.
    These do not count when they are down.
    """
    found = {}
    for each in json.loads(node.run(["rdma", "-j", "resource"]).out):
        if each["ifname"] in devices:
            found |= {f"{kind} of {each['ifname']}": count for kind, count in each.items()
                      if kind not in ("ifindex", "ifname")}
    pools = re.findall(rf"^(?:{'|'.join(devices)}) (\w+)-.* arenas=(\d+) in_use=(\d+) .* empty_shards=(\d+)",
                       node.read_file(f"{DEBUGFS}/pools"), re.M)
    for name, kind in (("receive buffers", "recv"), ("send buffers", "send")):
        found[name] = sum(int(used) for x, _, used, _ in pools if x == kind)
    # The shards of buffers in use stay, and each arena keeps an empty one.
    found["shards without need"] = sum(max(int(empty) - int(arenas), 0) for _, arenas, _, empty in pools)
    rows = re.findall(r"^\S+ -> (\S+?)(?: tos \d+)?: .*state=(\w+)", node.read_file(f"{DEBUGFS}/connections"), re.M)
    found["connections"] = sum(peer not in rogues or state != "down" for peer, state in rows)
    if not node.debug:
        # The debug kernel quarantines freed memory, and kmemleak finds memory that was not freed.
        [size] = re.findall(r"^SUnreclaim: +(\d+) kB", node.read_file("/proc/meminfo"), re.M)
        found["unreclaimable slab"] = int(size) << 10
    return found


def wait_until_back(node, before, *what):
    """Waits until a node holds no more than before. It polls, because there is no event to wait
    for."""
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
