# SPDX-License-Identifier: GPL-2.0
"""Random calls on sockets, with all checks of the kernel. make fuzz does the same for longer."""

import json
import random
from contextlib import nullcontext

import pytest
from faults import faults
from rdsvm import cluster, coverage
from rdsvm.cluster import PAIR, PAIR6
from traffic import ping

pytestmark = pytest.mark.impls("rust")

SECONDS = {"release": 10, "debug": 15}
# Mostly the addresses of the pair and loopback. The others have no host, or are invalid.
HOSTS = (*(*PAIR, *PAIR6, "127.0.0.1", "::1") * 3, "10.9.0.77", "0.0.0.0", "224.0.0.1", "fe80::1")
FAULTS = ("failslab", "fail_page_alloc", "fail_usercopy")
# Each of these calls has to succeed at least once.
CALLS = ("socket", "bind", "connect", "sendmsg", "recvmsg", "setsockopt", "getsockopt", "ioctl", "getname")


@pytest.mark.race
@pytest.mark.on_siw("release")
def test_fuzz(node, tools, flavor, request):
    option = request.config.getoption
    seed = random.randrange(2**32) if option("fuzz_seed") is None else option("fuzz_seed")
    seconds = option("fuzz_seconds") or SECONDS[flavor]
    print(f"seed {seed}")
    kcov = option("fuzz_coverage")
    command = [tools / "rds-fuzz", *["--coverage"] * kcov, "--seed", seed, "--seconds", seconds, *HOSTS]
    # Allocations fail in some of the calls, and on the connections that these need.
    with faults(node, *FAULTS, probability=2) if node.debug else nullcontext():
        result = node.run(command, timeout=seconds + 300)
    told = json.loads(result.out)
    if kcov:
        found = coverage.lines(node.module, coverage.starts(node, "rds_rust"), set(told["reached"]))
        print("Lines that were reached, and those that were not:",
              *coverage.table(found, cluster.TOP / "af_rds"), sep="\n")
    calls = told["calls"]
    for name, outcomes in calls.items():
        print(f"{name:12}", ", ".join(f"{text}: {count}" for text, count in outcomes.items()))
    assert all(calls[name].get("ok") for name in CALLS), f"seed {seed}: one of them never went well"
    ping(tools, node, PAIR[1], PAIR[0])
