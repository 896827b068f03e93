# SPDX-License-Identifier: GPL-2.0
"""The files of a run with coverage.

"blocks" has a line for each block of the module, see image.py. "cases.jsonl" has a line of JSON for
each test, and for each set-up of machines that tests share:
  case     the name of the test, or the name of a set-up in brackets
  setup    of a test, the name of its set-up, or null if the test boots its own machines
  seconds  its duration with the plugin; for a test, without the set-up
  passed   true if it passed
  blocks   numbers of lines of "blocks", from 0 on, as in "0-3,7"
"""

import json
from dataclasses import dataclass, field

from .image import Block


class Mismatch(Exception):
    """The files are of different builds of the module."""


def to_ranges(numbers):
    parts = []
    for n in sorted(numbers):
        if parts and parts[-1][1] == n - 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def from_ranges(text):
    found = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def write_blocks(path, blocks):
    """Writes the file; if it exists, checks that its content is the same."""
    text = "".join(f"{x.line()}\n" for x in blocks)
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise Mismatch(f"{path} is of another build of the module; name another folder")
    path.write_text(text, encoding="utf-8")


@dataclass
class Case:
    """A test, or a set-up that tests share."""

    name: str
    setup: str | None = None
    seconds: float = 0
    passed: bool = True
    blocks: set = field(default_factory=set)


class Run:
    """All cases of some folders.

    A case that ran several times has the union of the blocks of its runs, and the longest time."""

    def __init__(self, folders):
        self.blocks, self.cases, self.setups = [], {}, {}
        first = None
        for folder in folders:
            text = (folder / "blocks").read_text(encoding="utf-8")
            if first is None:
                first, self.blocks = text, [Block.parse(x) for x in text.splitlines()]
            elif text != first:
                raise Mismatch(f"{folder} and {folders[0]} are of different builds of the module")
            for line in (folder / "cases.jsonl").read_text(encoding="utf-8").splitlines():
                self._add(json.loads(line))

    def _add(self, told):
        kept = self.setups if told["case"].startswith("[") else self.cases
        case = kept.setdefault(told["case"], Case(told["case"], told.get("setup")))
        case.seconds = max(case.seconds, told["seconds"])
        case.passed = case.passed and told["passed"]
        case.blocks |= from_ranges(told["blocks"])

    def reached(self):
        return set().union(*(x.blocks for some in (self.cases, self.setups) for x in some.values()))
