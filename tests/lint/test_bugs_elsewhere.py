# SPDX-License-Identifier: GPL-2.0
"""The tests that stand for a defect by tests/vm/test_bugs.py are run, and no defect has two."""

import re
import sys
from pathlib import Path

import collect

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "scripts"), str(TOP / "tests/vm")]

import test_bugs  # noqa: E402

# The test of each row. Rows that are within others run with them.
PLACES = {**test_bugs.ELSEWHERE, **{x: f"test_bugs.py::test_bug[{x}]" for x in test_bugs.CASES}}


def not_run(places, suite):
    """Returns the rows without a test that is run."""
    found = collect.of_suite(suite)
    return {row for row, where in places.items() if not any(x.matches(where) for x in found)}


def test_each_runs_on_the_debug_kernel():
    """The debug kernel has detectors: most defects are leaks, or wrong use of memory or locks."""
    assert not_run(PLACES, "debug") == set(test_bugs.RELEASE_ONLY)


def test_the_others_run_on_the_release_kernel():
    others = {row: PLACES[row] for row in test_bugs.RELEASE_ONLY}
    assert not not_run(others, "release")


def test_missing_runs_are_noticed():
    places = {
        "there": "test_rogue.py::test_frames[frames]",
        "function": "test_rogue.py::test_nothing",
        "parameter": "test_rogue.py::test_frames[no_frames]",
        "long": "test_rogue.py::test_random",
    }
    assert not_run(places, "debug") == {"function", "parameter", "long"}
    assert any(x.matches(places["long"]) for x in collect.items(*collect.ALL))


def rows():
    """Returns the rows with a test."""
    found = [re.match(r"[hl]\d\d", name)[0] for name in test_bugs.CASES if re.match(r"[hl]\d\d", name)]
    return found + [*test_bugs.ELSEWHERE, *test_bugs.WITHIN]


def documented():
    """Returns the rows of the tables in Documentation/c-rds-defects.md, in order."""
    return re.findall(r"^\| ([a-z]\d\d) \|", (TOP / "Documentation/c-rds-defects.md").read_text(), re.M)


def test_each_row_is_documented():
    every = [*test_bugs.SOCKETS, *test_bugs.REGIONS, *test_bugs.CONNECTIONS, *test_bugs.TCP]
    assert documented() == sorted(every)


def test_names_of_tests_have_a_row():
    """An id in the name of a case or of a test leads to the description of its defect."""
    used = set()
    for path in sorted((TOP / "tests").rglob("*.py")):
        used |= set(re.findall(r"^def (?:test_)?([a-z]\d\d)_", path.read_text(), re.M))
    assert used and not used - set(documented())


def test_each_is_once():
    assert sorted(rows()) == sorted(set(rows()))


def test_cases_of_others_are_there():
    assert set(test_bugs.WITHIN.values()) <= set(test_bugs.CASES)


def test_regions_are_complete():
    """No row about memory regions and operations is without a test."""
    assert not set(test_bugs.REGIONS) - set(rows())


def test_sockets_are_complete():
    """No row about sockets, congestion, tables or network namespaces is without a test."""
    assert not set(test_bugs.SOCKETS) - set(rows())


def test_connections_are_complete():
    """No row about connections and their transports is without a test."""
    assert not set(test_bugs.CONNECTIONS) - set(rows())


def test_tcp_is_complete():
    """No row about the TCP transport is without a test, except those with a reason."""
    assert set(test_bugs.TCP) - set(rows()) == set(test_bugs.UNTESTED)


def test_each_row_has_its_list():
    """The lists have the 98 defects that C RDS had and the 54 that it has."""
    others = test_bugs.SOCKETS, test_bugs.REGIONS, test_bugs.CONNECTIONS
    every = {f"h{i:02}" for i in range(1, 99)} | {f"l{i:02}" for i in range(1, 55)}
    assert set().union(*others) == every - set(test_bugs.TCP)
