# SPDX-License-Identifier: GPL-2.0
"""The coverage of make fuzz: lines of a real object file are told apart."""

import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

from rdsvm import coverage  # noqa: E402

SOURCE = """\
int once(int a)
{
	if (a > 3)
		return a * 7;
	return 1;
}
int never(int a)
{
	return a;
}
"""
BASE = 0xffffffffc0000000


def test_lines_of_an_object(tmp_path):
    source, built = tmp_path / "some/it.c", tmp_path / "it.o"
    source.parent.mkdir()
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-g", "-O0", "-c", "-fsanitize-coverage=trace-pc", "-o", built, source], check=True)
    offsets = coverage.places(built)[".text"]
    # The first offset is the start of once(). Addresses in other sections do not count.
    found = coverage.lines(built, {".text": BASE}, {BASE + offsets[0], BASE + 0x100000})
    assert found == {str(source): {3: True, 4: False, 5: False, 9: False}}
    every = {BASE + x for x in offsets}
    assert set(coverage.lines(built, {".text": BASE}, every)[str(source)].values()) == {True}
    # A section that has been freed does not count.
    assert not coverage.lines(built, {}, {BASE + offsets[0]})


def test_table():
    found = {"/top/sock/a.rs": {1: True, 2: False, 9: False}, "/top/sock/b.rs": {1: True}, "/top/msg/c.rs": {1: False}}
    a, b, both = coverage.table(found, "/top/sock")
    assert a.split() == ["a.rs", "1", "of", "3", "33", "%", "2", "9"]
    assert b.split() == ["b.rs", "1", "of", "1", "100", "%"]
    assert both.split() == ["all", "2", "of", "4", "50", "%"]
