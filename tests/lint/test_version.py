# SPDX-License-Identifier: GPL-2.0
"""The version: the file VERSION has it, and files that cannot read it have the same one.

tests/vm/test_module.py checks the version of the built module and of the built tools."""

import re
import tomllib
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
VERSION = (TOP / "VERSION").read_text().removesuffix("\n")
TOOLS = tomllib.loads((TOP / "tools/Cargo.toml").read_text())["workspace"]


def test_form():
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION), VERSION


def test_dkms():
    assert re.search(r'^PACKAGE_VERSION="(.*)"$', (TOP / "dkms.conf").read_text(), re.M)[1] == VERSION


def test_tools():
    assert TOOLS["package"]["version"] == VERSION


@pytest.mark.parametrize("tool", TOOLS["members"])
def test_tool(tool):
    """A tool has no version of its own."""
    package = tomllib.loads((TOP / "tools" / tool / "Cargo.toml").read_text())["package"]
    assert package["version"] == {"workspace": True}


def test_module():
    """The Rust and the C part of the module read the file."""
    assert 'include_str!("VERSION")' in (TOP / "rds_core.rs").read_text()
    assert "cat $(src)/VERSION" in (TOP / "Kbuild").read_text()


def test_changelog():
    """The change log begins with this version."""
    assert re.search(r"^## (\S+)", (TOP / "CHANGELOG.md").read_text(), re.M)[1] == VERSION
