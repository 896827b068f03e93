# SPDX-License-Identifier: GPL-2.0
"""The facts that packagers and contributors rely on.

These are licence texts, locked dependencies, the maintainers of each file, and names in documents
that have to exist."""

import fnmatch
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

import checks  # noqa: E402

TRACKED = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=TOP, check=True,
                         capture_output=True, text=True).stdout.strip("\0").split("\0")
SCRIPTS = ["Makefile", *(x for x in TRACKED if x.startswith((".ci/", "scripts/")))]
CARGO = re.compile(r"\bcargo (?:\S+ ){0,2}(?:build|check|clippy|doc|run|test) [^\n;&|]*"
                   r'|"cargo",\s*"(?:build|check|clippy|doc|run|test)",[^)\]]*')


def workspaces():
    """Returns the folders in which cargo is run: those that are no member of another."""
    folders = [str(Path(x).parent) for x in TRACKED if Path(x).name == "Cargo.toml"]
    return sorted(x for x in folders if not any(x.startswith(f"{other}/") for other in folders))


def test_workspaces():
    assert {"tools", "tests/host"} <= set(workspaces())


@pytest.mark.parametrize("folder", workspaces())
def test_dependencies_are_locked(folder):
    assert f"{folder}/Cargo.lock" in TRACKED


def test_builds_use_locked_versions():
    calls = [x for script in SCRIPTS for x in CARGO.findall((TOP / script).read_text())]
    assert len(calls) >= 4, calls
    assert [x for x in calls if "--locked" not in x] == []


def test_licences():
    """Each licence that a file names has its text."""
    named = set()
    for path in TRACKED:
        lines = (TOP / path).read_text(errors="replace").split("\n")[:2]
        named |= {m[1] for x in lines if (m := re.match(r"\W*SPDX-License-Identifier: (.*?)(?: \*/)?$", x))}
    texts = {x.name: x.read_text() for x in (TOP / "LICENSES").rglob("*") if x.is_file()}
    known = {m for x in texts.values() for m in re.findall(r"^Valid-License-Identifier: (.*)$", x, re.M)}
    assert {"GPL-2.0", "GPL-2.0-only OR BSD-2-Clause"} <= named
    assert [x for x in named if not set(re.split(r" (?:OR|AND|WITH) ", x)) <= known] == []
    assert "GNU GENERAL PUBLIC LICENSE" in texts["GPL-2.0"] and "LICENSES/preferred/GPL-2.0" in (TOP / "COPYING").read_text()


@pytest.mark.parametrize("path", [x for x in TRACKED if Path(x).name == "Cargo.toml"])
def test_crates_have_the_licence_of_their_folder(path):
    """The licence is that of SPDX, which appends "only" to the kernel's name."""
    package = tomllib.loads((TOP / path).read_text()).get("package")
    if package is None:
        return
    licence = package.get("license")
    if licence == {"workspace": True}:
        workspace = (TOP / path).parent.parent / "Cargo.toml"
        licence = tomllib.loads(workspace.read_text())["workspace"]["package"]["license"]
    if licence is not None:
        assert licence == re.sub(r"^GPL-2.0$", "GPL-2.0-only", checks.licence_of(path))


def entries():
    """Returns {title: [(letter, value)]} of MAINTAINERS."""
    blocks = (TOP / "MAINTAINERS").read_text().strip("\n").split("\n\n")[1:]
    return {block.split("\n")[0]: [tuple(x.split(":\t")) for x in block.split("\n")[1:]] for block in blocks}


def covers(pattern, path):
    """Matches as the kernel's scripts/get_maintainer.pl: only a folder stands for all below it."""
    if pattern.endswith("/"):
        return path.startswith(pattern)
    return path.count("/") == pattern.count("/") and fnmatch.fnmatch(path, pattern)


def test_each_file_has_maintainers():
    patterns = [value for lines in entries().values() for letter, value in lines if letter == "F"]
    assert [x for x in TRACKED if not any(covers(y, x) for y in patterns)] == []
    assert [y for y in patterns if not any(covers(y, x) for x in TRACKED)] == []


@pytest.mark.parametrize("title, lines", entries().items(), ids=lambda x: x if isinstance(x, str) else "")
def test_maintainers_in_the_form_of_the_kernel(title, lines):
    """Titles are in capitals, and letters in the kernel's order. A list is no maintainer."""
    letters = [x[0] for x in lines]
    lists = {value.split()[0] for letter, value in lines if letter == "L"}
    assert lists and not [value for letter, value in lines if letter == "M" and value.split()[-1].strip("<>") in lists]
    assert title == title.upper() and {"S", "F"} <= set(letters)
    assert letters == sorted(letters, key="MRLSWQBCPTFXNK".index), letters


@pytest.mark.parametrize("document", [x for x in TRACKED if x.endswith(".md")])
def test_links(document):
    """Links lead to existing files."""
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", (TOP / document).read_text())
    local = [x for x in targets if "://" not in x]
    assert [x for x in local if not (TOP / document).parent.joinpath(x).exists()] == []


def test_targets_in_documents_exist():
    told = set(re.findall(r"(?:^    |`|&& )make (?:-s )?([a-z][a-z-]+)", "".join(
        (TOP / x).read_text() for x in ("CONTRIBUTING.md", "README.md", "Documentation/install.md")), re.M))
    makefile = (TOP / "Makefile").read_text()
    assert told and [x for x in told if not re.search(rf"^(?:[\w-]+ )*{x}(?: [\w-]+)*:", makefile, re.M)] == []
