# SPDX-License-Identifier: GPL-2.0
"""Options and records of all tests in Python; scripts/run-tests.py is their reader.

--outcomes: how each test ended and why, what it cost, and which failures are final. --at-once:
each failure is printed when it happens, as people may wait half an hour for the end, and then
the slowest tests. --repeat: each test several times, as far as --repeat-seconds allow."""

import json
import os
import random
import resource
import time
from collections import Counter
from pathlib import Path

import pytest

START = time.monotonic()
OUTCOMES = {}
# Of each test that failed: the signature of the environment that the harness saw, if any, and
# whether the failure is final, which no later run can change.
FAILURES = {}
WARNINGS = []
# Seconds of each test by the clock and of processors, with all that it was the first to need.
SECONDS, CPU_SECONDS = Counter(), Counter()
SLOWEST = 20
# The summary repeats so much of a failure: first lines, last lines, and characters of each.
SHORT = 5, 8, 400


def pytest_addoption(parser):
    parser.addoption("--outcomes", type=Path, help="write the outcome of each test to this file")
    parser.addoption("--at-once", action="store_true", help="print each failure when it happens")
    parser.addoption(
        "--shuffle",
        type=int,
        metavar="SEED",
        help="run the tests in an order that this number makes",
    )
    parser.addoption("--repeat", type=int, default=1, metavar="N", help="run each test N times")
    parser.addoption(
        "--repeat-seconds",
        type=float,
        metavar="SECONDS",
        help="begin no test any more once so much time has gone, but for the first",
    )


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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    count, seed = config.getoption("repeat"), config.getoption("shuffle")
    if count > 1:
        items[:] = [copy(item, i) for item in items for i in range(1, count + 1)]
    if seed is not None:
        random.Random(seed).shuffle(items)


def copy(item, i):
    """The same test once more. pytest runs one that is named twice only once."""
    made = type(item).from_parent(
        item.parent,
        name=f"{item.name}#{i}",
        callspec=getattr(item, "callspec", None),
        callobj=item.obj,
        fixtureinfo=item._fixtureinfo,
        keywords=dict(item.keywords),
        originalname=item.originalname,
    )
    made.own_markers = list(item.own_markers)
    return made


def children_cpu():
    """Seconds of processors that the processes have used which this one started, those that run
    still too."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = used.ru_utime + used.ru_stime
    # Children are listed with the thread that started them.
    for pid in " ".join(map(text_of, Path("/proc/self/task").glob("*/children"))).split():
        if stat := text_of(Path(f"/proc/{pid}/stat")):
            fields = stat.rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def text_of(file):
    """Returns the text of a file of a thread or process. Empty if that has ended."""
    try:
        return file.read_text()
    except OSError:
        return ""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    before = children_cpu()
    try:
        return (yield)
    finally:
        CPU_SECONDS[item.nodeid] += children_cpu() - before
        limit = item.config.getoption("repeat_seconds")
        if limit is not None and time.monotonic() - START > limit:
            item.session.shouldstop = f"{limit:.0f} seconds have gone"


def why(report):
    """Returns the beginning and the end of what pytest says of a failure. A program in a guest
    names its error at the end."""
    first, last, width = SHORT
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else report.longreprtext).splitlines()
    if len(lines) > first + last:
        lines[first:-last] = ["..."]
    return "\n".join(x[:width] for x in lines)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A test that is marked to fail is excused what it finds itself, not what is found after it.
    None is excused because it says so while it runs."""
    report = yield
    if report.skipped and hasattr(report, "wasxfail"):
        if call.when != "call" or call.excinfo.errisinstance(pytest.xfail.Exception):
            del report.wasxfail
            report.outcome = "failed"
    return report


def outcome(report):
    """Returns the outcome of one phase. A test that is marked to fail until a defect is gone passes
    as long as it fails, and the summary names it."""
    if report.skipped and hasattr(report, "wasxfail"):
        WARNINGS.append(f"{report.nodeid} fails as is known: {report.wasxfail}")
        return "passed"
    return f"failed: {why(report)}" if report.failed else report.outcome


def pytest_runtest_logreport(report):
    SECONDS[report.nodeid] += report.duration
    # A test has passed if all its phases have; one that was skipped has not.
    if report.outcome != "passed" or report.when == "call":
        if OUTCOMES.get(report.nodeid, "passed") == "passed":
            OUTCOMES[report.nodeid] = outcome(report)
    if report.failed:
        said = FAILURES.setdefault(report.nodeid, {"signature": None, "final": False})
        said["signature"] = said["signature"] or getattr(report, "signature", None)
        said["final"] |= getattr(report, "final", False)


def pytest_warning_recorded(warning_message, nodeid):
    WARNINGS.append(f"{nodeid}: {warning_message.message}")


def pytest_sessionfinish(session):
    path = session.config.getoption("outcomes")
    if path:
        path.write_text(
            json.dumps(
                {
                    "outcomes": OUTCOMES,
                    "failures": FAILURES,
                    "warnings": WARNINGS,
                    "seconds": {
                        x: [round(SECONDS[x], 2), round(CPU_SECONDS[x], 2)] for x in OUTCOMES
                    },
                }
            )
        )
