# SPDX-License-Identifier: GPL-2.0
"""Files of a folder that import each other are found, however they write it."""

import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

import import_cycles  # noqa: E402


def module():
    """Returns the text of each Rust file of the project, by path."""
    names = subprocess.run(["git", "ls-files", "*.rs"], cwd=TOP, check=True, capture_output=True, text=True).stdout
    return {x: (TOP / x).read_text() for x in names.splitlines() if (TOP / x).is_file()}


@pytest.mark.parametrize("a, b", [
    ("use super::b::B;", "use super::a::A;"),
    ("use super::{\n    b::{self, B},\n    x::X,\n};", "use crate::cm::a::A;"),
    ("use super::B;", "use super::A;"),
    ("fn f() { super::b::f() }", "fn f() { crate::cm::a::f() }"),
    ("use crate::{cm::B as C, conn::X};", "struct S(super::a::A);"),
], ids=("names", "groups", "re-exports", "paths", "mixed"))
def test_two_files_that_import_each_other_are_found(a, b):
    sources = {"cm/mod.rs": "mod a;\nmod b;\npub(crate) use a::A;\npub(crate) use b::{B, B as D};", "cm/a.rs": a, "cm/b.rs": b}
    assert import_cycles.complaints(sources) == ["cm: a, b import each other [import_cycles]"]


def test_a_cycle_is_found_over_several_files_and_through_a_subfolder():
    sources = {"cm/a.rs": "use super::b::B;", "cm/b.rs": "use super::c::C;", "cm/c/mod.rs": "pub(crate) mod d;\npub(crate) use d::C;",
               "cm/c/d.rs": "use super::super::a::A;", "cm/c/e.rs": "use super::f::F;", "cm/c/f.rs": "use super::e::E;",
               "cm/z.rs": "use super::a::A;"}
    assert import_cycles.cycles(sources) == {"cm": [("a", "b", "c")], "cm/c": [("e", "f")]}


@pytest.mark.parametrize("a, b", [
    ("use super::b::B;", "// use super::a::A;\nconst S: &str = \"super::a\";"),
    ("use super::b::B;", "use super::SECOND;"),
    ("use super::b::B;", "use crate::conn::a::A;"),
    ("use super::b::B;", "use core::a::A;"),
])
def test_one_direction_is_allowed(a, b):
    sources = {"cm/mod.rs": "mod a;\nmod b;\nconst SECOND: u32 = 1;", "cm/a.rs": a, "cm/b.rs": b, "conn/a.rs": "use crate::cm::b::B;"}
    assert not import_cycles.complaints(sources)


def test_files_of_the_module_do_not_import_each_other():
    assert not import_cycles.complaints(module())


def test_each_exception_is_needed():
    found = import_cycles.cycles(module())
    needed = {folder: {name for group in groups for name in group} for folder, groups in found.items()}
    assert import_cycles.EXCEPTIONS == needed
