# SPDX-License-Identifier: GPL-2.0
"""The tests that `make test` runs in virtual machines, by pytest's own collection.

This file is also a plugin of pytest, which writes a list of the collected tests."""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
# Options that also collect the tests that `make test` leaves out.
ALL = ("--flavor=debug",)


@cache
def suites():
    """Returns the options of pytest with which `make test` selects tests, by kernel."""
    sys.path.insert(0, str(TOP / "scripts"))
    spec = importlib.util.spec_from_file_location("run_tests", TOP / "scripts/run-tests.py")
    runner = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    chosen = runner.choose(argparse.Namespace(fast=False, long=False))
    return {flavor: (f"--flavor={flavor}", *options) for flavor, options in chosen.items()}


@dataclass(frozen=True)
class Item:
    """A test: file, function, parameters that are strings, and names of fixtures."""

    file: str
    function: str
    params: tuple
    fixtures: tuple

    def matches(self, where):
        """True if `where` is FILE::FUNCTION, or that with a parameter of the test in brackets."""
        name, _, parameter = where.rstrip("]").partition("[")
        if name != f"{self.file}::{self.function}":
            return False
        return not parameter or parameter in dict(self.params).values()


def pytest_collection_finish(session):
    found = []
    for item in session.items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        text = [(k, v) for k, v in params.items() if isinstance(v, str)]
        found.append((item.path.name, item.originalname, text, item.fixturenames))
    Path(os.environ["COLLECTED"]).write_text(json.dumps(found), encoding="utf-8")


@cache
def items(*arguments):
    """Returns the tests that pytest runs with these arguments."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "collect", "-q"]
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "items"
        here = str(Path(__file__).parent)
        done = subprocess.run(
            [*command, "--collect-only", "tests/vm", *arguments],
            cwd=TOP,
            capture_output=True,
            text=True,
            env={**os.environ, "COLLECTED": str(path), "PYTHONPATH": here},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        collected = json.loads(path.read_text(encoding="utf-8"))
    return [
        Item(file, function, tuple(map(tuple, params)), tuple(fixtures))
        for file, function, params, fixtures in collected
    ]


def of_suite(flavor):
    return items(*suites()[flavor])
