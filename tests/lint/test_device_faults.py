# SPDX-License-Identifier: GPL-2.0
"""Checks that the matrix of faults in testing.md, the faults of the device, and tests agree."""

import re
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / "Documentation/testing.md").read_text()
DRIVER = (TOP / "tests/vm/faulty/rxe_faults.c").read_text()
TESTS = (TOP / "tests/vm/test_device_faults.py").read_text()
# Switches of the device without the files of a fault.
SWITCHES = {"fatal", "dead"}
# Settings of a fault, which have no row of their own.
SETTINGS = {"device", "late_ms", "turned", "overtook", "cm_attribute"}


def matrix():
    """Returns the names in the first column of the matrix."""
    table = PAGE.partition("| Fault | What the device does |")[2].partition("\n\n")[0]
    return {name for cell in re.findall(r"^\| (`[^|]*) \|", table, re.M) for name in re.findall(r"`(\w+)`", cell)}


def faults():
    return set(re.findall(r'\.name = "(\w+)"', DRIVER))


def test_each_fault_has_a_row():
    assert len(faults()) > 15
    assert matrix() - SETTINGS == faults() | SWITCHES


def test_switches_are_files_of_the_device():
    assert set(re.findall(r'debugfs_create_\w+\("(\w+)", \w+, folder', DRIVER)) == SWITCHES | SETTINGS


def test_each_fault_has_a_case():
    """The names of the faults of the CM are composed."""
    kinds = re.findall(r'"how", \(([^)]*)\)', TESTS)
    used = {f"cm_{x}" for kind in kinds for x in re.findall(r'"(\w+)"', kind)}
    used |= set(re.findall(r'"(\w+)"', TESTS)) | set(re.findall(r"rxe_faults/(\w+)", TESTS))
    assert not (faults() | SWITCHES) - used
