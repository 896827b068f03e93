# SPDX-License-Identifier: GPL-2.0
"""pytest collects cases for each part of the tests in machines that the runner plans."""

import argparse
import importlib.util
import re
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

import collect  # noqa: E402
import jobs  # noqa: E402

spec = importlib.util.spec_from_file_location("run_tests", TOP / "scripts/run-tests.py")
run_tests = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run_tests)

FLAVORS = tuple(run_tests.KUNIT_SECONDS)
# Neither the memory of peers nor that of user verbs can bounce.
TRANSLATED_ONLY = {"operations", "regions", "rogue"}


@pytest.fixture
def machines(monkeypatch):
    monkeypatch.delenv("RDS_DMA", raising=False)
    return run_tests.Machines([])


def files_of(planned):
    """Returns the names of the test files of jobs, as jobs.py has them."""
    return {Path(jobs.function_of(x).partition("::")[0]).stem.removeprefix("test_") for y in planned for x in y.tests}


@pytest.mark.parametrize("flavor", FLAVORS)
def test_long_suites(flavor, machines):
    options = run_tests.choose(argparse.Namespace(fast=False, long=True))[flavor]
    assert machines.plan(flavor, *options)
    assert not machines.cut_short


@pytest.mark.parametrize("row", jobs.OTHER_DEVICES, ids=lambda row: row[0])
def test_other_devices(row, machines, monkeypatch):
    """Each file has cases on a kernel, and each kernel has cases. pytest would skip none of
    them."""
    monkeypatch.setattr(jobs, "OTHER_DEVICES", (row,))
    planned = {x: jobs.of_other_devices(machines.plan, x) for x in FLAVORS}
    assert not machines.cut_short
    assert all(planned.values())
    _, some, whole, env = row
    found = sum(planned.values(), [])
    assert all(x.env == env for x in found)
    impossible = TRANSLATED_ONLY if env.get("RDS_DMA") == "bounced" else set()
    assert files_of(found) == {*some, *whole} - impossible
    assert not [x for y in found for x in y.tests if re.search(r"\b(NOTSET|nowhere)\b", x)]


@pytest.mark.parametrize("case", (
    "test_dma.py::test_traffic[translated]", "test_device_faults.py::test_each_access_was_allowed"))
def test_checks_of_the_dma_api_see_translated_memory(case):
    """Only the debug kernel has these checks."""
    assert any(x.matches(case) for x in collect.of_suite("debug"))


@pytest.mark.parametrize("options", [("-m", "smoke and not smoke"), ("--no-such-option",)])
def test_a_plan_without_cases_is_a_failure(options, machines, capsys):
    """A selection of no case fails the run, as does one that pytest cannot collect."""
    assert machines.plan("release", *options, suite="a part") == []
    assert machines.failed()
    tally = run_tests.Tally()
    machines.add_to(tally)
    assert not tally.summary()
    assert "a part, whole" in capsys.readouterr().out
