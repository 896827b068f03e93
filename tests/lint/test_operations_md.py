# SPDX-License-Identifier: GPL-2.0
"""Names in the documents for users exist.

These are README.md, and in Documentation operations.md, programming.md and security.md."""

import re
from pathlib import Path

import collect
import pytest

TOP = Path(__file__).resolve().parents[2]
PAGES = {x: (TOP / x).read_text() for x in (
    "README.md", *(f"Documentation/{x}.md" for x in ("operations", "programming", "security")))}
ABI = (TOP / "Documentation/abi.md").read_text()
SOURCES = "".join(x.read_text() for folder in ("stats", "recv_pool", "ib_transport", "tcp_transport") for x in (TOP / folder).rglob("*.rs"))
ARGUMENTS = (TOP / "tools/rds-info/src/args.rs").read_text()
# The rows of two tables: kinds of hogs, and the tests of their limits.
HOGS = re.findall(r"^\| `(\w+)` \|.*\|.*\|.*\|$", PAGES["Documentation/security.md"], re.M)
LIMITS = dict(re.findall(r"^\| `(\w+)` \|([^|]*)\|$", PAGES["Documentation/security.md"], re.M))
NAME = r"`((?:conn|recv|send|cong|copy|ib|tcp)_[a-z0-9_]+)`"


def collected():
    """Returns all tests in virtual machines."""
    return [x for flavor in ("release", "debug") for x in collect.items(f"--flavor={flavor}")]


def test_counters():
    """Each name of a counter is a string of the module."""
    named = [x for page in PAGES.values() for x in re.findall(NAME, page)]
    assert len(named) > 30
    assert [x for x in named if f'"{x}"' not in SOURCES and x not in HOGS] == []


def test_settings():
    """Each setting has a row of abi.md."""
    named = {x for page in PAGES.values() for x in re.findall(r"net\.rds\.([a-z_.]*[a-z])", page)}
    assert named
    assert [x for x in named if f"`{x}`" not in ABI and f", `{x}`" not in ABI] == []


def test_parameters():
    """Each module parameter has a row of abi.md."""
    named = {x for page in PAGES.values() for x in re.findall(r"`(max_\w+|pool_\w+_mib|idle_\w+)(?:=\d+)?`", page)}
    assert {"max_conns", "pool_limit_mib", "max_frag"} <= named
    assert [x for x in named if f"`{x}`" not in ABI] == []


def test_options_of_rds_info():
    letters, words = set(), set()
    for page in PAGES.values():
        for options in re.findall(r"rds-info ((?:-[-\w]+ ?)+)", page):
            letters.update(*(x[1:] for x in options.split() if not x.startswith("--")))
            words.update(x[2:] for x in options.split() if x.startswith("--"))
    assert letters and words >= {"version", "holders", "report", "json"}
    assert [x for x in letters if f"short = '{x}'" not in ARGUMENTS] == []
    assert [x for x in words if f"pub(crate) {x}:" not in ARGUMENTS] == []


@pytest.mark.parametrize("page", PAGES)
def test_links(page):
    """Each link leads to an existing file, and to a heading of it."""
    links = [x for x in re.findall(r"\]\(([^)\s]+)\)", PAGES[page]) if "://" not in x]
    assert links
    for link in links:
        name, _, heading = link.partition("#")
        target = (TOP / page).parent / name if name else TOP / page
        assert target.exists(), link
        if heading:
            found = re.findall(r"^#+ (.*)$", target.read_text(), re.M)
            assert heading in [re.sub(r"[^\w -]", "", x.lower()).replace(" ", "-") for x in found], link


def test_hogs():
    """Each kind of hog has a row in security.md, and each row a kind."""
    kinds = re.search(r"^KINDS = \(([^)]*)\)", (TOP / "tests/vm/test_hogs.py").read_text(), re.M)[1]
    assert HOGS == re.findall(r'"(\w+)"', kinds)
    assert list(LIMITS) == HOGS


@pytest.mark.parametrize("kind", LIMITS)
def test_limits_of_hogs(kind):
    """Each row of security.md names tests of its limit, which exist."""
    named = re.findall(r"`([^`]+)`", LIMITS[kind])
    assert named
    for where in named:
        file, _, case = where.partition("::")
        if file.endswith(".py"):
            assert any(x.matches(where) for x in collected()), where
        else:
            sources = [x.read_text() for x in (TOP / "tests").rglob(file)]
            assert any(f"fn {case}(" in x for x in sources), where


def test_tests_that_security_md_names():
    named = re.findall(r"`(test_\w+)(\.py)?(?:::\w+)?(?:\[\w+\])?`", PAGES["Documentation/security.md"])
    sources = {x.stem: x.read_text() for x in (TOP / "tests").glob("vm/test_*.py")}
    assert named
    assert [x for x, is_file in named if x not in sources
            and (is_file or not any(f"def {x}(" in y for y in sources.values()))] == []
