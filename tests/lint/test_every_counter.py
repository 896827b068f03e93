# SPDX-License-Identifier: GPL-2.0
"""Each counter counts in a test of `make test` that checks it, or stays 0 by
Documentation/abi.md."""

import re
import sys
from functools import cache
from pathlib import Path

import asserted
import collect

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "scripts"), str(TOP / "tests/vm")]

import checks  # noqa: E402
import traffic  # noqa: E402

# Counters that no case of make test raises, with the reason.
BEYOND = {"ib_pool_foreign_shards": "soft RDMA devices are next to no NUMA node",
          # Without memory for it, the kernel's check of DMA mappings ends for good.
          "tcp_grow_failed": "only in make test-long", "tcp_tx_alloc_wait": "only in make test-long"}
FOLDERS = [x for x in checks.LEVEL if x not in ("bindings", "kapi", "proto") and (TOP / x).is_dir()]

STATS = (TOP / "stats/mod.rs").read_text()
# {name: variant of Counter}.
COUNTERS = {name: variant for variant, name in re.findall(r"^    (\w+) => \"(\w+)\",$", STATS, re.M)}
POOLS = set(re.findall(r'"(ib_pool_\w+)"', (TOP / "recv_pool/counters.rs").read_text()))
TCP = set(re.findall(r'=> "(tcp_\w+)"', (TOP / "tcp_transport/counters.rs").read_text()))
DEVICES = set(re.findall(r'each\("(\w+)"', (TOP / "ib_transport/transport.rs").read_text()))


@cache
def counting():
    """Returns the strings that tests of `make test` in machines and KUnit suites check."""
    items = {x for suite in collect.suites() for x in collect.of_suite(suite)}
    kunit = "".join(x.read_text() for x in (TOP / "tests/kunit").rglob("*.rs"))
    variants = set(re.findall(r"\b(?:await_)?counted\(Counter::(\w+)\b", kunit))
    return set().union(*map(asserted.of_item, items), re.findall(r'\bcounted\((?:&tcp, )?"(\w+)"\)', kunit),
                       (name for name, variant in COUNTERS.items() if variant in variants))


def test_found():
    assert len(COUNTERS) == len(re.findall(r" => \"", STATS)) > 100
    assert len(POOLS) == 7 and len(TCP) == 17 and len(DEVICES) == 1


def test_each_counts_in_a_test():
    silent = set(traffic.stay_zero(COUNTERS))
    assert sorted((set(COUNTERS) | POOLS | TCP | DEVICES) - silent - counting()) == sorted(BEYOND)


def test_counters_that_stay_zero_are_not_used():
    code = "".join(x.read_text() for folder in FOLDERS for x in sorted((TOP / folder).rglob("*.rs")))
    unused = {name for name, variant in COUNTERS.items() if not re.search(rf"\bCounter::{variant}\b", code)}
    assert unused == set(traffic.stay_zero(COUNTERS))


def test_those_beyond_are_documented():
    assert not [x for x in BEYOND if f"`{x}`" not in traffic.ABI_PAGE.read_text()]


SAMPLE = """
NAMES = ("constant", "other")
EXPECTED = {"a": {"of_a": 1}, "b": {"of_b": 1}}

def helper(seen, name):
    assert seen[name] > 0

def test(node, case):
    before = look()
    unchanged(before, look(), "spared")
    assert before["zero"] == 0
    was = before["same"]
    assert look()["same"] == was
    assert look()["risen"] == before["risen"] + 1
    helper(before, "parameter")
    for name in NAMES:
        assert before[name]
    wait_for(node, lambda now: now["waited"] > 1)
    assert before == EXPECTED[case]
    print("printed", before["only looked at"])
"""
GUEST = """
@case
def first():
    return counts("in_case")

@case
def second():
    return counts("in_other")

def attack(home):
    need(home["in_table"], "what is wrong")

def idle(home):
    need(home["not_called"], "")

TABLE = {"attack": attack, "idle": idle}
main(TABLE)
"""


def test_counters_that_a_test_checks(tmp_path):
    (tmp_path / "sample.py").write_text(SAMPLE)
    where = asserted.module(tmp_path / "sample.py")
    reach = asserted.Reach(params=[("case", "a")]).add(where, where.names["test"])
    counted = {"constant", "other", "of_a", "risen", "parameter", "waited"}
    assert asserted.Checked(reach).strings == counted


def test_counters_that_a_program_checks(tmp_path):
    (tmp_path / "guest.py").write_text(GUEST)
    reach = asserted.Reach(keys=["first", "attack"]).program(tmp_path / "guest.py")
    assert asserted.Checked(reach).strings == {"in_case", "in_table", "what is wrong"}


def test_unchecked_counter_is_noticed():
    """A test that `make test` leaves out does not count."""
    assert "ib_tx_packed" in counting() and "recv_drop_overrun" in counting()
    theirs = ("test_flood", "test_unread_port", "test_unread_memory")
    items = [x for x in collect.of_suite("debug") if x.function not in theirs]
    assert "recv_drop_overrun" not in set().union(*map(asserted.of_item, items))
