# SPDX-License-Identifier: GPL-2.0
"""The rules about comments and names find the words that they are for, and nothing else."""

import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

import checks  # noqa: E402


def complaints(check, path, text):
    return [number for number, _ in check(path, text)]


@pytest.mark.parametrize("path, code", [
    ("conn/a.rs", "/// What a peer has sent.\nstruct A;"),
    ("conn/a.rs", "/// A thing.\nstruct A;\n\n    /// Whether it is there.\n    b: bool,"),
    ("kapi/a.rs", "//! How it is done.\n"),
    ("tools/a.rs", "    /// How long to wait"),
    ("bindings/a.h", "/*\n * How a thing is done.\n */"),
    ("scripts/a.c", "/* Which of them. */"),
])
def test_comment_that_breaks_a_rule_is_found(path, code):
    assert complaints(checks.comments, path, "// SPDX-License-Identifier: GPL-2.0\n\n" + code)


@pytest.mark.parametrize("path, code", [
    ("conn/a.rs", "/// State of a connection.\n/// What follows is for one link.\nstruct A;"),
    ("conn/a.rs", "// What follows has no documentation."),
    ("conn/a.rs", "/// Whatever comes is dropped."),
    ("bindings/a.h", "/* Howitzers. */"),
])
def test_comment_within_the_rules_is_allowed(path, code):
    assert not complaints(checks.comments, path, "// SPDX-License-Identifier: GPL-2.0\n\n" + code)


LONG = "a " * 51


@pytest.mark.parametrize("path, text", [
    ("tests/kunit/a.rs", f"// {LONG}"),
    ("conn/a.rs", f"let a = 1; // {LONG}"),
    ("tools/a.rs", f"/// {LONG}"),
    ("tools/a.rs", f"#[arg({LONG})]"),
    ("tests/vm/a.py", f"# {LONG}"),
    ("tests/vm/a.py", f"a = 1\n    # {LONG}"),
    ("tests/vm/a.py", f'"""A.\n\n{LONG}"""'),
    ("README.md", LONG),
    ("README.md", f"- {LONG}"),
    ("README.md", f"- a\n    {LONG}"),
    ("README.md", f"    code\n\n{LONG}"),
    ("README.md", f"```\ncode\n```\n{LONG}"),
])
def test_line_that_is_too_long_is_found(path, text):
    assert complaints(checks.width, path, text) == [text.count("\n") + 1]


@pytest.mark.parametrize("path, text", [
    ("conn/a.rs", f"const S: &str = \"{LONG}\";"),
    ("tools/a.rs", f"    (name, \"{'a' * 90}\"),"),
    ("tests/vm/a.py", f'a = "{LONG}"'),
    ("README.md", f"| {LONG} |"),
    ("README.md", f"```\n{LONG}\n```"),
    ("README.md", f"Text:\n\n    {LONG}\n\n    {LONG}"),
    ("README.md", "a " * 50),
    ("a.lua", LONG),
])
def test_line_that_may_be_long_is_allowed(path, text):
    assert not complaints(checks.width, path, text)


SHORT = "word " * 24 + "word"


@pytest.mark.parametrize("path, text, line", [
    ("README.md", f"# Title\n\n{SHORT} more.", 3),
    ("README.md", f"Short. {SHORT},\nmore.", 1),
    ("README.md", f"- {SHORT}.\n- {SHORT}\n  more.", 2),
    ("README.md", f"{SHORT}: `a`, `b` and `c`.", 1),
    ("conn/a.rs", f"//! Short.\n\n/// {SHORT},\n/// more.", 3),
    ("tests/host/src/a.rs", f"/// Short, e.g. {SHORT}.", 1),
    ("bindings/a.c", f"int a;\n\n/*\n * {SHORT}\n * more.\n */", 4),
    ("tests/vm/a.py", f'def f():\n    """{SHORT}\n    more."""', 2),
])
def test_long_sentence_is_found(path, text, line):
    assert complaints(checks.sentences, path, text) == [line]


@pytest.mark.parametrize("path, text", [
    ("README.md", f"{SHORT}. {SHORT}! (Is it {SHORT[:-10]}?) `{SHORT}`"),
    ("README.md", f"- {SHORT}\n- {SHORT}\n1. {SHORT}\n\n{SHORT}"),
    ("README.md", f"{SHORT[:-5]} `a`, `b`, `c` and `d`."),
    ("README.md", f"| {SHORT} more |\n\n    {SHORT} more\n\n```\n{SHORT} more\n```"),
    ("conn/a.rs", f"/// {SHORT}\n///\n/// {SHORT}\nfn f() {{}} // {SHORT} more"),
    ("conn/a.rs", f"/// {SHORT}\nfn f() {{}}\n/// {SHORT}"),
    ("bindings/a.c", f"/**\n * f() - {SHORT[:-20]}\n * @a: {SHORT[:-5]}\n * @b: {SHORT[:-5]}\n */"),
    ("scripts/a.c", f"/*\n * OUT.a  {SHORT[:-5]}\n * OUT.b  {SHORT[:-5]}\n */"),
    ("scripts/a.py", f'"""a: {SHORT[:-5]}\nb: {SHORT[:-5]}"""\n# {SHORT} more'),
    ("a.lua", f"-- {SHORT} more"),
])
def test_short_sentences_are_allowed(path, text):
    assert not complaints(checks.sentences, path, text)


@pytest.mark.parametrize("doc", [
    "/// Creates it. Fails only with `ENOMEM`.",
    "/// Finds it. Fails only\n/// with `ENOMEM`.",
    "/// Finds it, or fails with EINVAL.",
    "/// Posts it: returns `ENOMEM` if memory is short.",
    "//! Returns `ENODEV`.",
    "/// Finds it.\n///\n/// # Context\n///\n/// Returns `EAGAIN` in softirqs.",
    "/// # Errors\n///\n/// - `EIO`\n\n/// Fails with `EIO`.",
])
def test_error_outside_its_section_is_found(doc):
    assert complaints(checks.error_sections, "conn/a.rs", f"{doc}\nfn f() {{}}\n")


@pytest.mark.parametrize("path, doc", [
    ("conn/a.rs", "/// Finds it.\n///\n/// # Errors\n///\n/// - Fails with `ENOENT` if there is none."),
    ("conn/a.rs", "/// Ports for which a send failed with `ENOBUFS`."),
    ("conn/a.rs", "/// Writes outside of the range fail with `EINVAL`."),
    ("conn/a.rs", "/// Fails without memory. `ENOMEM` is then reported elsewhere."),
    ("conn/a.rs", "/// Returns `EMBRYOS`."),
    ("conn/a.rs", "// Returns `EINVAL`."),
    ("tools/a.rs", "/// Returns `EINVAL`."),
])
def test_error_in_its_section_is_allowed(path, doc):
    assert not complaints(checks.error_sections, path, f"{doc}\nfn f() {{}}\n")


HASH = "# SPDX-License-Identifier: GPL-2.0\n"


@pytest.mark.parametrize("path, text, line", [
    ("run", f"#!/bin/sh\n{HASH}# What this runs.\nset -e\n", 3),
    ("a.sh", f"{HASH}#\n# How to do it.\n", 3),
    ("Makefile", f"{HASH}\n# Whether it is there.\n", 3),
    ("a.toml", f"{HASH}# Of all crates.\n", 2),
    ("a.py", f'{HASH}"""What this is for."""\n', 2),
    ("a.py", f'{HASH}def f():\n    """That of one phase."""\n', 3),
    ("a.py", f'{HASH}class A:\n    """A thing."""\n    def f(self):\n        """How it is done."""\n', 5),
])
def test_fragment_in_a_script_is_found(path, text, line):
    assert complaints(checks.comments, path, text) == [line]


@pytest.mark.parametrize("path, text", [
    ("run", f"#!/bin/sh\n{HASH}# Runs the tests.\n# What follows is no header.\n"),
    ("a.sh", f"{HASH}set -e\n# What follows is no header.\n"),
    ("a.py", f'{HASH}"""The runner."""\n\nX = 1  # What follows is no docstring.\n'),
    ("a.py", f'{HASH}"""The runner.\n\nHow it runs is said there."""\n'),
])
def test_script_without_a_fragment_is_allowed(path, text):
    assert not complaints(checks.comments, path, text)


@pytest.mark.parametrize("path, text", [
    ("conn/a.rs", "fn tend_soon() {}"),
    ("conn/a.rs", "struct NoTicket;"),
    ("proto/a.rs", "let told = 1;"),
    ("msg/a.rs", "const PATIENCE_MS: u32 = 1;"),
    ("conn/a.rs", "// The connection is made anew."),
    ("tools/a/src/args.rs", "/// RDMA writes and reads by turns"),
    ("Documentation/a.md", "It is for whoever reads."),
    ("bindings/a.c", "/* Of ours. */"),
])
def test_private_word_is_found(path, text):
    assert complaints(checks.private_words, path, text) == [1]


@pytest.mark.parametrize("path, text", [
    ("conn/a.rs", "fn returns() -> Intent {}  // It tells the peer."),
    ("conn/a.rs", 'log("the peer was told");'),
    ("tests/host/src/a.rs", "let told = 1;"),
    ("Documentation/a.md", "It is told to the program, but forwarded."),
])
def test_term_of_the_field_is_allowed(path, text):
    assert not complaints(checks.private_words, path, text)


@pytest.mark.parametrize("path, text, line", [
    ("tests/host/src/a.rs", "#[test]\nfn what_is_sent_arrives() {}\n", 2),
    ("tests/kunit/a.rs", "    #[test]\n    #[ignore]\n    fn waits_for_nobody() -> Result {\n", 3),
    ("tools/a/src/a.rs", "#[test] fn so_many_are_kept() {}\n", 1),
    ("tests/vm/test_a.py", "import os\n\ndef test_who_is_woken(node):\n", 3),
    ("tests/lint/test_a.py", "class TestA:\n    def test_peer_is_told(self):\n", 2),
])
def test_vague_name_of_a_test_is_found(path, text, line):
    assert complaints(checks.test_names, path, text) == [line]


@pytest.mark.parametrize("path, text", [
    ("tests/host/src/a.rs", "#[test]\nfn whole_messages_arrive() {}\n\nfn what_is_sent() {}\n"),
    ("tests/host/src/a.rs", "// #[test]\n// fn what_is_sent() {}\n"),
    ("tests/vm/test_a.py", "def who_waits():\n    pass\n"),
    ("tests/vm/test_a.py", "def test_untold_of_whole_somatic_yours():\n    pass\n"),
])
def test_clear_name_of_a_test_is_allowed(path, text):
    assert not complaints(checks.test_names, path, text)
