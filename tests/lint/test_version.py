# SPDX-License-Identifier: GPL-2.0
"""The version: the file VERSION has it, and what cannot read that file says the same. tests/vm/test_module.py
looks at what the built module and the built tools say."""

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
    """Has no version of its own."""
    package = tomllib.loads((TOP / "tools" / tool / "Cargo.toml").read_text())["package"]
    assert package["version"] == {"workspace": True}


def test_module():
    """Both of its languages read the file."""
    assert 'include_str!("VERSION")' in (TOP / "rds_core.rs").read_text()
    assert "cat $(src)/VERSION" in (TOP / "Kbuild").read_text()


def test_changelog():
    """Begins with this version."""
    assert re.search(r"^## (\S+)", (TOP / "CHANGELOG.md").read_text(), re.M)[1] == VERSION
