# SPDX-License-Identifier: GPL-2.0
"""For all tests in Python, run by scripts/run-tests.py: --outcomes tells it how each of them ended and why, and which
may be run again; --at-once tells people what failed when it fails, as they may wait an hour for the end, and then what
they waited for."""

import json
from collections import Counter
from pathlib import Path

import pytest

OUTCOMES = {}
# Which of those that failed may be run again: all reports of their failures have may_pass.
AGAIN = {}
# What tests, or what they use, warned of.
WARNINGS = []
# How long each took, with what it was the first to need.
SECONDS = Counter()
SLOWEST = 20
# How much of a failure the summary repeats: lines, and characters of each.
SHORT = 8, 400


def pytest_addoption(parser):
    parser.addoption("--outcomes", type=Path, help="write the outcome of each test to this file")
    parser.addoption("--at-once", action="store_true", help="print each failure when it happens")


class AtOnce:
    def __init__(self, terminal):
        self.terminal = terminal

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.terminal.ensure_newline()
            self.terminal.write_sep("_", f"FAILED {report.nodeid} ({report.when})")
            self.terminal.write_line(report.longreprtext)
            for name, text in report.sections:
                self.terminal.write_sep("-", name)
                self.terminal.write_line(text)

    def pytest_sessionfinish(self):
        self.terminal.ensure_newline()
        for nodeid, seconds in SECONDS.most_common(SLOWEST):
            if seconds >= 1:
                self.terminal.write_line(f"{seconds:4.0f} s for {nodeid}")


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    if config.getoption("at_once"):
        config.pluginmanager.register(AtOnce(config.pluginmanager.get_plugin("terminalreporter")))


def why(report):
    """The beginning of what pytest says of a failure."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else report.longreprtext).splitlines()
    return "\n".join(x[:SHORT[1]] for x in lines[:SHORT[0]])


def pytest_runtest_logreport(report):
    SECONDS[report.nodeid] += report.duration
    # A test has passed if all its phases have; one that was skipped has not.
    if report.outcome != "passed" or report.when == "call":
        if OUTCOMES.get(report.nodeid, "passed") == "passed":
            OUTCOMES[report.nodeid] = f"failed: {why(report)}" if report.failed else report.outcome
    if report.failed:
        AGAIN[report.nodeid] = AGAIN.get(report.nodeid, True) and getattr(report, "may_pass", False)


def pytest_warning_recorded(warning_message, nodeid):
    WARNINGS.append(f"{nodeid}: {warning_message.message}")


def pytest_sessionfinish(session):
    path = session.config.getoption("outcomes")
    if path:
        path.write_text(json.dumps({"outcomes": OUTCOMES, "again": [k for k, may in AGAIN.items() if may],
                                    "warnings": WARNINGS}))
