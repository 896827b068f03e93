#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""make test, make test-fast and make test-more: runs tests and adds up their cases.

The last line is "N passed, N failed". A case that was skipped, a suite that did not build and a run
that ended early count as failed.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ktap
from rdsvm import cluster, hardware, klog
from rdsvm.node import KERNEL_LINE, NodeError

TOP = Path(__file__).resolve().parent.parent
FLAVORS = ("release", "debug")
START = time.monotonic()


def clock():
    minutes, seconds = divmod(int(time.monotonic() - START), 60)
    return f"[{minutes:2}:{seconds:02}]"


def say(text):
    # With its end in one piece, as several threads print.
    print(f"== {clock()} {text}\n", end="", flush=True)


class Tally:
    """Cases by suite."""

    def __init__(self):
        self.suites = []

    def add(self, suite, passed, failed, told=(), notes=()):
        """failed: how many; told: what is known of each, from its name on; notes: what else people are to know."""
        self.suites.append((suite, passed, failed, list(told), list(notes)))
        say(f"{suite}: {passed} passed, {failed} failed")

    def add_outcomes(self, suite, outcomes, whole=True, notes=()):
        """outcomes: {name: "passed" or what happened}; whole: whether the suite ran to its end; notes: see add()."""
        bad = [name for name, outcome in outcomes.items() if outcome != "passed"]
        passed = len(outcomes) - len(bad)
        told = [f"{x}: {outcomes[x]}" for x in bad]
        if not whole and not bad or not outcomes:
            told.append("the suite did not run to its end")
        self.add(suite, passed, len(told), told, notes)

    def summary(self):
        width = max(len(x[0]) for x in self.suites)
        print("\nSummary")
        for suite, passed, failed, told, notes in self.suites:
            print(f"  {suite.ljust(width)}  {passed:5} passed {failed:5} failed")
            for text in told:
                print(textwrap.indent(f"FAILED {text}", "    "))
            for text in notes:
                print(textwrap.indent(text, "    "))
        passed, failed = (sum(x[i] for x in self.suites) for i in (1, 2))
        print(f"{passed} passed, {failed} failed")
        return failed == 0


def make(*arguments):
    return subprocess.run(["make", "-s", "-C", TOP, *arguments],
                          stdin=subprocess.DEVNULL, stdout=sys.stderr).returncode == 0


CARGO_LINE = re.compile(r"^ *(?:Running .*?/deps/(\w+)-\w+\)|Doc-tests (\w+)|test (\S+.*?) \.\.\. (\w+))",
                        re.M)


def cargo_outcomes(text):
    """{"crate name": outcome} of the output of cargo test; "ok" is the only way to pass."""
    found, crate = {}, ""
    for binary, documented, name, word in CARGO_LINE.findall(text):
        if word:
            found[f"{crate} {name}"] = "passed" if word == "ok" else word
        else:
            crate = binary or documented
    return found


def cargo(tally, crate):
    say(f"{crate}: cargo test")
    done = subprocess.run(
        ["cargo", "test", "--color=never", "--no-fail-fast", "--workspace", "--manifest-path",
         f"{crate}/Cargo.toml", "--target-dir", "build/cargo-test", "--", "--format=pretty"],
        cwd=TOP, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True)
    if done.returncode:
        print(done.stdout)
    tally.add_outcomes(f"host tests, {crate}", cargo_outcomes(done.stdout), done.returncode == 0)


class Pytest:
    """A suite of pytest."""

    # More than this many failures are no accident.
    AGAIN = 3

    def __init__(self, suite, prefix, *arguments):
        """prefix: what each line begins with, as two may run at a time; arguments: of pytest, where first."""
        self.suite, self.prefix, self.arguments = suite, prefix, arguments
        self.outcomes, self.may_pass, self.status, self.notes = {}, [], None, []

    def once(self, *arguments):
        """Returns the outcomes, which tests may be run again, and how pytest ended."""
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "outcomes"
            command = [sys.executable, "-u", "-m", "pytest", "-p", "no:cacheprovider", "--tb=short",
                       "--no-summary", "--at-once", f"--outcomes={path}", *arguments]
            with subprocess.Popen(command, cwd=TOP, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, errors="replace") as running:
                for line in running.stdout:
                    print(f"{clock()} {self.prefix}: {line}", end="", flush=True)
            told = json.loads(path.read_text()) if path.exists() else {"outcomes": {}, "again": [], "warnings": []}
        self.notes += [f"WARNING {x}" for x in told["warnings"]]
        return told["outcomes"], told["again"], running.returncode

    def run(self):
        say(f"{self.suite}: pytest")
        self.outcomes, self.may_pass, self.status = self.once(*self.arguments)
        return self

    def run_again(self):
        """What a busy machine may have made fail is run once more, with nothing beside it, and the summary tells of
        it. tests/vm/conftest.py says what that is."""
        bad = {k: v for k, v in self.outcomes.items() if v != "passed"}
        # 1: some failed, and nothing worse.
        if self.status != 1 or not bad or len(bad) > self.AGAIN or not set(bad) <= set(self.may_pass):
            return
        say(f"{self.suite}: {len(bad)} once more")
        outcomes, _, self.status = self.once(*(f"tests/{x}" for x in bad), *self.arguments[1:])
        self.notes += [f"PASSED WHEN RUN AGAIN {k}: {v}" for k, v in bad.items() if outcomes.get(k) == "passed"]
        self.outcomes |= {k: outcomes.get(k, "not run again") for k in bad}

    def add_to(self, tally):
        tally.add_outcomes(self.suite, self.outcomes, self.status == 0, self.notes)


def kunit(tally, flavor):
    """Loads the module with its suites in it, which runs them, and reads the kernel log."""
    suite = f"KUnit, {flavor} kernel"
    say(suite)
    with tempfile.TemporaryDirectory(prefix="rds-kunit-") as rundir:
        machine = cluster.Machine("kunit", "rust", flavor, rundir, **hardware.with_iommu())
        machine.module = machine.module.parents[1] / f"{flavor}-kunit/rds_rust.ko"
        try:
            machine.boot()
            start = machine.mark("KUnit starts")
            cluster.must(machine.load())
            machine.mark("KUnit ends")
            cluster.must(machine.unload())
            machine.mark("unloaded")
            outcomes = ktap.cases(machine.log(start))
            outcomes |= {f"clean log: {x.splitlines()[0]}": "failed"
                         for x in machine.complaints(start)}
            if machine.finds_leaks:
                outcomes["no leaks"] = "failed" if machine.scan_leaks() else "passed"
        except NodeError as e:
            print(e)
            outcomes = {"the machine": "failed"}
        finally:
            if any(x != "passed" for x in outcomes.values()):
                print("\n".join(machine.log()))
            machine.kill()
    tally.add_outcomes(suite, outcomes)


def kunit_in_tree(tally):
    """The suites in the kernel's own tree, run by its kunit.py, whose verdict counts, too."""
    suite = "KUnit, in the kernel tree"
    say(f"{suite}: building the kernel, as far as it is not in the cache, and running kunit.py")
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "log"
        # It builds in the time that the other machines leave.
        done = subprocess.run(["nice", "scripts/kunit-intree.sh", path], cwd=TOP, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        lines = path.read_text().splitlines() if path.exists() else []
    lines = [KERNEL_LINE.sub("", x) for x in lines]
    outcomes = ktap.cases(lines) if lines else {}
    outcomes |= {f"clean log: {x.splitlines()[0]}": "failed" for x in klog.complaints(lines)}
    if done.returncode or any(x != "passed" for x in outcomes.values()):
        print(done.stdout, "\n".join(lines), sep="\n")
    tally.add_outcomes(suite, outcomes, done.returncode == 0)


def build(tally, flavor):
    """A kernel, the module for it, and the module with its KUnit suites."""
    say(f"{flavor} kernel: building it, as far as it is not in the cache, and the module")
    built = all(make("modules", f"FLAVOR={flavor}", *more) for more in ((), ("KUNIT=y",)))
    if not built:
        tally.add(f"the module, {flavor} kernel", 0, 1, ["it does not build"])
    return built


def in_machines(tally, flavor, args):
    """Returns the suite of pytest, if there is one, which has no place in the tally yet."""
    if not args.more:
        kunit(tally, flavor)
    if args.fast:
        return None
    which = "more" if args.more else "not more"
    # C RDS by itself answers the same on both kernels, and the debug one has defects to tell of it.
    impls = "rust" if args.more or flavor == "debug" else "rust,c"
    return Pytest(f"virtual machines, {flavor} kernel", flavor, "tests/vm", f"--flavor={flavor}",
                  f"--impls={impls}", "-m", which).run()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--fast", action="store_true", help="no tests in VMs but KUnit")
    which.add_argument("--more", action="store_true", help="the tests in VMs that are left out else")
    args = parser.parse_args()
    os.chdir(TOP)
    # What FLAVOR says is for other targets: both kernels are tested.
    os.environ.pop("FLAVOR", None)
    tally = Tally()

    if not args.more:
        for crate in ("tests/host", "tools"):
            cargo(tally, crate)
        Pytest("checks of the checks", "checks", "tests/lint").run().add_to(tally)
    if not make("tools"):
        tally.add("tools", 0, 1, ["they do not build"])
    # The tests of both kernels run side by side, as machines often wait.
    built = [flavor for flavor in FLAVORS[:1 if args.fast else None] if build(tally, flavor)]
    with ThreadPoolExecutor() as pool:
        running = [pool.submit(in_machines, tally, flavor, args) for flavor in built]
        if not (args.fast or args.more):
            kunit_in_tree(tally)
    for suite in filter(None, [x.result() for x in running]):
        suite.run_again()
        suite.add_to(tally)
    return 0 if tally.summary() else 1


if __name__ == "__main__":
    sys.exit(main())
