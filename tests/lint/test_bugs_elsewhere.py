# SPDX-License-Identifier: GPL-2.0
"""The tests that tests/vm/test_bugs.py says stand for a defect are there, and a defect has one place."""

import re
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "scripts"), str(TOP / "tests/vm")]

import test_bugs  # noqa: E402


def test_each_is_there():
    for row, where in test_bugs.ELSEWHERE.items():
        # With the parameter that stands for it, if not all do.
        file, name, parameter = re.fullmatch(r"(.*)::(\w+)(?:\[(\w+)])?", where).groups()
        text = (TOP / "tests/vm" / file).read_text()
        assert re.search(rf"^def {name}\(", text, re.M), (row, where)
        assert not parameter or f'"{parameter}"' in text, (row, where)


def rows():
    """Those that something stands for."""
    found = [re.match(r"[hl]\d\d", name)[0] for name in test_bugs.CASES if re.match(r"[hl]\d\d", name)]
    return found + [*test_bugs.ELSEWHERE, *test_bugs.WITHIN]


def test_each_is_once():
    assert sorted(rows()) == sorted(set(rows()))


def test_cases_of_others_are_there():
    assert set(test_bugs.WITHIN.values()) <= set(test_bugs.CASES)


def test_regions_are_complete():
    """No row about memory regions and operations is without a test."""
    assert not set(test_bugs.REGIONS) - set(rows())


def test_sockets_are_complete():
    """Nor is one about sockets, congestion, tables or network namespaces."""
    assert not set(test_bugs.SOCKETS) - set(rows())


def test_connections_are_complete():
    """Nor is one about connections, and what carries them."""
    assert not set(test_bugs.CONNECTIONS) - set(rows())


def test_each_row_has_its_list():
    """Those of 98 defects that C RDS had and of 54 that it has, once but for what concerns two."""
    others = test_bugs.SOCKETS, test_bugs.REGIONS, test_bugs.CONNECTIONS
    every = {f"h{i:02}" for i in range(1, 99)} | {f"l{i:02}" for i in range(1, 55)}
    assert set().union(*others) == every - set(test_bugs.TCP)
    assert not set(test_bugs.TCP) & set(rows())
