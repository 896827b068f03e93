# SPDX-License-Identifier: GPL-2.0
"""The manual pages: those generated from the tools' options, and the hand-written one.

No formatter complains of them, and each option is there."""

import re
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
BY_HAND = TOP / "Documentation/rds_rust.7"
TOOLS = ("rds-info", "rds-ping", "rds-stress", "rds-verify")
# A generated page has no date, as the date of a build means nothing.
KNOWN = re.compile(r'missing date, using "": TH')


@pytest.fixture(scope="module")
def share(tmp_path_factory):
    """Returns a folder with the same files as build/share after make pages."""
    out = tmp_path_factory.mktemp("share")
    subprocess.run(["cargo", "run", "--quiet", "--locked", "--manifest-path", TOP / "tools/Cargo.toml", "--target-dir",
                    TOP / "build/cargo-test", "-p", "rds-pages", out], check=True, cwd=TOP)
    return out


def complaints(page):
    """Returns the complaints of two formatters."""
    lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", page], capture_output=True, text=True)
    man = subprocess.run(["man", "--warnings", "-l", "-E", "UTF-8", page], capture_output=True, text=True)
    assert "NAME" in man.stdout
    return [x for x in (lint.stdout + lint.stderr + man.stderr).splitlines() if not KNOWN.search(x)]


def test_page_by_hand():
    assert complaints(BY_HAND) == []


def pages_of(tool, share):
    """Returns the pages of a tool, and of its subcommands."""
    return sorted((share / "man/man1").glob(f"{tool}*.1"))


@pytest.mark.parametrize("tool", TOOLS)
def test_page_that_is_made(tool, share):
    pages = pages_of(tool, share)
    assert pages
    for page in pages:
        assert complaints(page) == []
        text = page.read_text()
        for section in ("NAME", "SYNOPSIS", "OPTIONS", "EXAMPLES", "NOTES"):
            assert f"\n.SH {section}\n" in text


def test_pages_of_subcommands(share):
    """The page of a tool names those of its subcommands, and no other."""
    named = re.findall(r"(rds-verify-\w+)\(1\)", (share / "man/man1/rds-verify.1").read_text().replace("\\", ""))
    assert named and {x.stem for x in pages_of("rds-verify", share)} == {"rds-verify", *named}


@pytest.mark.parametrize("tool", TOOLS)
def test_options(tool, share):
    """Each option in the source is in the page and known to each shell."""
    source = (TOP / f"tools/{tool}/src/args.rs").read_text().split("#[cfg(test)]")[0]
    fields = re.findall(r"#\[arg\((?=[^]]*\blong\b(?! =))(?![^]]*\bhide\b)[^]]*\)\]\s+(?:pub\(crate\) )?(\w+):", source)
    assert len(fields) > 4
    for option in (x.replace("_", "-") for x in fields):
        assert f"--{option}" in "".join(x.read_text() for x in pages_of(tool, share)).replace("\\", "")
        assert f"--{option}" in (share / f"bash-completion/completions/{tool}").read_text()
        assert f"--{option}" in (share / f"zsh/site-functions/_{tool}").read_text()
        assert f"-l {option}" in (share / f"fish/vendor_completions.d/{tool}.fish").read_text()


def constants(text):
    """Returns names of the interface for programs."""
    return set(re.findall(r"\b(?:RDS_(?:CMSG|GET|FREE|CANCEL|CONG|RECVERR)\w*|SO_RDS_\w+|SIOCRDS\w+)\b", text))


def test_page_by_hand_agrees_with_abi_md():
    told = constants(BY_HAND.read_text())
    assert told and told <= constants((TOP / "Documentation/abi.md").read_text() +
                                      (TOP / "Documentation/rdma.md").read_text()) | {
        "RDS_CMSG_MASKED_ATOMIC_FADD", "RDS_CMSG_MASKED_ATOMIC_CSWP"}


def test_parameters():
    """The page has all parameters of the module."""
    text = (TOP / "Documentation/abi.md").read_text().split("## Parameters")[1].split("C's others")[0]
    for row in re.findall(r"^\| (`\w.*?) \|", text, re.M):
        for name in re.findall(r"`(\w+)`", row):
            assert re.search(rf"^\.It Cm .*\b{name}\b", BY_HAND.read_text(), re.M), name
