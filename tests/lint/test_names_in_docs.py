# SPDX-License-Identifier: GPL-2.0
"""The documents for developers name files, types and functions that exist."""

import re
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

import checks  # noqa: E402
import lint  # noqa: E402

PAGES = ("architecture.md", "connections.md", "glossary.md", "hardware.md", "locking.md", "protocol.md", "rdma.md",
         "recv-pool.md")
# "`f` in `file.rs`", "`f` and `g` in `file.rs`", "`f` (`file.rs`)".
PLACE = re.compile(r"`([\w:]+)`(?: and `([\w:]+)`)?\s+(?:in\s+|\()`([\w/]+\.rs)`")
PATH = re.compile(r"`(\w+::\w+)`")
FILE = re.compile(r"`([\w/]+/[\w/]+\.(?:rs|c|h|py|sh))`")
DEFINED = re.compile(r"\b(?:fn|struct|enum|trait|const|static|type|mod|union)\s+(\w+)"
                     r"|^\s*(?:pub(?:\([^)]*\))? )?(\w+):|^\s+([A-Z]\w*)\b(?=,|\(|\s*\{|\s*=)", re.M)


def sources():
    return {x: (TOP / x).read_text() for x in lint.tracked() if checks.layer_of(x)}


def complaints(page, module, files):
    """Returns the names in a page that the files of the module, or the project, do not have."""
    defined = {name for text in module.values() for found in DEFINED.findall(text) for name in found if name}
    for m in PLACE.finditer(page):
        for name in filter(None, (m[1], m[2])):
            if m[3] in module and not re.search(rf"\b{name.split('::')[-1]}\b", module[m[3]]):
                yield f"{name} is not in {m[3]}"
    for m in PATH.finditer(page):
        if not set(m[1].split("::")) <= defined:
            yield f"there is no {m[1]}"
    for m in FILE.finditer(page):
        if not any(x == m[1] or x.endswith(f"/{m[1]}") for x in files):
            yield f"there is no file {m[1]}"


@pytest.mark.parametrize("page", PAGES)
def test_names_exist(page):
    text = (TOP / "Documentation" / page).read_text()
    wrong = [x for x in complaints(text, sources(), lint.tracked()) if not re.search(r"file (include|linux)/", x)]
    assert not wrong


@pytest.mark.parametrize("text", (
    "`judge` in `socket/state.rs`", "`Socket::new` and `judge` in `socket/state.rs`", "`judge` (`socket/state.rs`)",
    "`Socket::judge`", "`Judge::new`", "`socket/judge.rs`"))
def test_wrong_names_are_found(text):
    module = {"socket/state.rs": "pub(crate) struct Socket {\n    /// judge\n}\nfn new() {}\n"}
    assert list(complaints(text, {x: checks.code_of(y) for x, y in module.items()}, module))


def test_right_names_pass():
    module = {"socket/state.rs": "struct Socket {\n    recv: u32,\n}\nenum Kind {\n    One,\n}\nfn new() {}\n"}
    text = "`Socket::new` and `new` in `socket/state.rs`; `Socket::recv`, `Kind::One` (`socket/state.rs`)"
    assert not list(complaints(text, module, module))
