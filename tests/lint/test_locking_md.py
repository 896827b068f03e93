# SPDX-License-Identifier: GPL-2.0
"""Documentation/locking.md has every lock."""

import re
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

import checks  # noqa: E402

FOLDERS = [x for x in checks.LEVEL if x not in ("bindings", "proto") and (TOP / x).is_dir()]
# Devices of the KUnit suites are no part of the module.
SUITES = ("fake.rs",)
# The name of a lock is the last argument.
LOCK = re.compile(r'\bnew_(?:spinlock(?:_bh)?|mutex)!\([^"]*"([^"]+)"\s*\)')


def test_every_lock_is_there():
    code = "".join(x.read_text() for folder in FOLDERS for x in sorted((TOP / folder).rglob("*.rs"))
                   if x.name not in SUITES)
    locks = LOCK.findall(code)
    assert len(locks) == len(re.findall(r"\bnew_(?:spinlock(?:_bh)?|mutex)!\(", code)) > 20
    page = (TOP / "Documentation/locking.md").read_text()
    assert not [x for x in locks if f"`{x}`" not in page]


def test_locks_are_in_order():
    """The rank says which locks may be taken while a lock is held, so each table is in its
    order."""
    page = (TOP / "Documentation/locking.md").read_text()
    tables = [re.findall(r"^\| (\d+) \|", table, re.M) for table in page.split("| Rank |")[1:]]
    assert len(tables) == 2
    for ranks in tables:
        ranks = [int(x) for x in ranks]
        assert len(ranks) > 5 and ranks == sorted(ranks)
