# SPDX-License-Identifier: GPL-2.0
"""For all tests in Python: --outcomes tells scripts/run-tests.py how each of them ended."""

import json
from pathlib import Path

OUTCOMES = {}


def pytest_addoption(parser):
    parser.addoption("--outcomes", type=Path, help="write the outcome of each test to this file")


def pytest_runtest_logreport(report):
    # A test has passed if all its phases have; one that was skipped has not.
    if report.outcome != "passed" or report.when == "call":
        if OUTCOMES.get(report.nodeid, "passed") == "passed":
            OUTCOMES[report.nodeid] = report.outcome


def pytest_sessionfinish(session):
    path = session.config.getoption("outcomes")
    if path:
        path.write_text(json.dumps(OUTCOMES))
