# SPDX-License-Identifier: GPL-2.0
"""Each counter is made to count by a test, in tests/vm or tests/kunit, or Documentation/abi.md says that it stays 0."""

import ast
import re
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "scripts"), str(TOP / "tests/vm")]

import traffic  # noqa: E402

# What the machines of the tests cannot do.
BEYOND = {"ib_pool_foreign_shards": "soft RDMA devices are next to no NUMA node"}
FOLDERS = ("cm", "cong", "conn", "ib_transport", "loop_transport", "msg", "recv_pool", "sock")

STATS = (TOP / "conn/stats.rs").read_text()
# Name of each: that of its variant.
COUNTERS = {name: variant for variant, name in re.findall(r"^    (\w+) => \"(\w+)\",$", STATS, re.M)}
POOLS = set(re.findall(r'"(ib_pool_\w+)"', (TOP / "recv_pool/counters.rs").read_text()))
DEVICES = set(re.findall(r'each\("(\w+)"', (TOP / "ib_transport/device.rs").read_text()))


def named(text):
    """The strings of a program, but for names of counters that are not to count."""
    tree = ast.parse(text)
    calls = [x for x in ast.walk(tree) if isinstance(x, ast.Call) and getattr(x.func, "id", "") == "unchanged"]
    spared = {id(x) for call in calls for x in ast.walk(call)}
    return {x.value for x in ast.walk(tree)
            if isinstance(x, ast.Constant) and isinstance(x.value, str) and id(x) not in spared}


def test_found():
    assert len(COUNTERS) == len(re.findall(r" => \"", STATS)) > 100
    assert len(POOLS) == 7 and len(DEVICES) == 1


def test_each_counts_in_a_test():
    strings = set().union(*(named(x.read_text()) for x in sorted((TOP / "tests/vm").rglob("*.py"))),
                          *(re.findall(r'"(\w+)"', x.read_text()) for x in (TOP / "tests/kunit").glob("*.rs")))
    silent = set(traffic.stay_zero(COUNTERS))
    assert sorted((set(COUNTERS) | POOLS | DEVICES) - silent - strings) == sorted(BEYOND)


def test_what_stays_zero_is_not_used():
    code = "".join(x.read_text() for folder in FOLDERS for x in sorted((TOP / folder).rglob("*.rs")))
    unused = {name for name, variant in COUNTERS.items() if not re.search(rf"\bCounter::{variant}\b", code)}
    assert unused == set(traffic.stay_zero(COUNTERS))


def test_those_beyond_are_documented():
    assert not [x for x in BEYOND if f"`{x}`" not in traffic.ABI_PAGE.read_text()]


def test_names_that_are_not_to_count():
    assert named('unchanged(a, b, "x")\nf("y", f"{z}")') == {"y"}
