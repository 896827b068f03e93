#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""make test, make test-fast and make test-long: runs tests and adds up their cases.

The last line is "N passed, N failed". A skipped case, a suite that did not build and a run that
ended early count as failed. A failure that tests/flakes.toml knows counts as passed if at most half
of its repetitions fail; it is shown as flaky. Every other failure is red, and shown with the number
of repetitions that failed.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import zlib
from collections import defaultdict
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

import costs
import flakes
import jobs
import ktap
from rdsvm import cluster, hardware, klog
from rdsvm.node import Defect, KERNEL_LINE, NodeError

TOP = Path(__file__).resolve().parent.parent
START = time.monotonic()
# Number of jobs at a time. Two leave a sixth of two processors idle, as tests wait for timeouts.
# With three, each machine gets less of a processor.
WORKERS = 2
# Consoles and run directories of the last run. cases.json: [seconds, processor seconds] of each
# case by kernel; costs.json: see costs.py.
ARTIFACTS = TOP / "build/test-artifacts"
PYTEST = (sys.executable, "-u", "-m", "pytest", "-p", "no:cacheprovider")
# Arguments of make bench: the counts that it writes can be committed.
COUNTED = (
    "IMPLS=rust",
    "BASE=tests/vm/counts.json",
    "STRICT=1",
    "COUNTS=build/test-artifacts/counts.json",
)
# Processor seconds of a boot, of all suites, and on the debug kernel of the leak scan.
KUNIT_SECONDS = {"release": 30, "debug": 120}
# An argument of make test-miri: without the host tests, which take far longer. Processor seconds.
CRATES, MIRI_SECONDS = "CRATES=tests/miri", 200
# Seconds in which repetitions of a failed test begin, and the time limit of each.
REPEAT_SECONDS, REPEAT_TIMEOUT = 240, 300


def clock():
    minutes, seconds = divmod(int(time.monotonic() - START), 60)
    return f"[{minutes:2}:{seconds:02}]"


def say(text):
    # One string with its newline, as several threads print.
    print(f"== {clock()} {text}\n", end="", flush=True)


class Tally:
    """Cases by suite."""

    def __init__(self):
        self.suites = []
        self.lock = threading.Lock()

    def add(self, suite, passed, failed, told=(), notes=()):
        """failed: their number; told: facts about each, beginning with its name; notes: further
        information."""
        with self.lock:
            self.suites.append((suite, passed, failed, list(told), list(notes)))
        say(f"{suite}: {passed} passed, {failed} failed")

    def add_outcomes(self, suite, outcomes, whole=True, notes=()):
        """outcomes: {name: "passed" or the failure}; whole: True if the suite ran to its end;
        notes: see add()."""
        bad = [name for name, outcome in outcomes.items() if outcome != "passed"]
        passed = len(outcomes) - len(bad)
        told = [f"{x}: {outcomes[x]}" for x in bad]
        if not whole and not bad or not outcomes:
            told.append("the suite did not run to its end")
        self.add(suite, passed, len(told), told, notes)

    def summary(self, flaky=0):
        width = max(len(x[0]) for x in self.suites)
        print("\nSummary")
        for suite, passed, failed, told, notes in self.suites:
            print(f"  {suite.ljust(width)}  {passed:5} passed {failed:5} failed")
            for text in told:
                print(textwrap.indent(f"FAILED {text}", "    "))
            for text in notes:
                print(textwrap.indent(text, "    "))
        passed, failed = (sum(x[i] for x in self.suites) for i in (1, 2))
        if flaky:
            print(
                f"{flaky} of those that passed are known flakes: tests/flakes.toml"
            )
        print(f"{passed} passed, {failed} failed")
        return failed == 0


def make(*arguments):
    return (
        subprocess.run(
            ["make", "-s", "-C", TOP, *arguments], stdin=subprocess.DEVNULL, stdout=sys.stderr
        ).returncode
        == 0
    )


CARGO_LINE = re.compile(
    r"^ *(?:Running .*?/deps/(\w+)-\w+\)|Doc-tests (\w+)|test (\S+.*?) \.\.\. (\w+))", re.M
)


def cargo_outcomes(text):
    """Returns {"crate name": outcome} of the output of cargo test; only "ok" is a pass."""
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
        [
            "cargo",
            "test",
            "--locked",
            "--color=never",
            "--no-fail-fast",
            "--workspace",
            "--manifest-path",
            f"{crate}/Cargo.toml",
            "--target-dir",
            "build/cargo-test",
            "--",
            "--format=pretty",
        ],
        cwd=TOP,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        print(done.stdout)
    tally.add_outcomes(f"host tests, {crate}", cargo_outcomes(done.stdout), done.returncode == 0)


class Pytest:
    """A run of pytest over some tests."""

    def __init__(self, suite, prefix, *arguments, env=None):
        """prefix: the beginning of each line, as several runs may print; arguments: of pytest;
        env: additional environment."""
        self.suite, self.prefix, self.arguments, self.env = suite, prefix, arguments, env or {}
        self.outcomes, self.failures, self.status, self.records = {}, {}, None, {}

    def run(self):
        say(f"{self.prefix}: pytest")
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "outcomes"
            shown = ["--tb=short", "--no-summary", "--at-once", f"--outcomes={path}"]
            command = [*PYTEST, *shown, *arguments_file(scratch, self.arguments)]
            with subprocess.Popen(
                command,
                cwd=TOP,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env={**os.environ, "RDS_BUILT": "1", **self.env},
            ) as running:
                for line in running.stdout:
                    print(f"{clock()} {self.prefix}: {line}", end="", flush=True)
            self.status = running.returncode
            if path.exists():
                self.records = json.loads(path.read_text())
                self.outcomes, self.failures = self.records["outcomes"], self.records["failures"]
        return self

    def whole(self):
        """Returns True if pytest ran to its end, with or without failures of tests."""
        return self.status in (0, 1)

    def ended(self):
        """Returns True if pytest ended by itself, at its end or before it."""
        return self.status in (0, 1, pytest.ExitCode.INTERRUPTED)


def arguments_file(scratch, arguments):
    """Writes arguments into a file, as many tests are too long for a command line."""
    path = Path(scratch) / "arguments"
    path.write_text("\n".join(map(str, arguments)))
    return [f"@{path}"]


class Machines:
    """The tests of tests/vm: runs jobs, repeats failures, and adds up the results."""

    # More failures than this are no accident, and not worth the time of repetitions.
    REPEATED = 3
    TIMES = 10
    # A known flake is excused if this many repetitions ended, and at least half of them passed.
    ENOUGH = 4

    def __init__(self, ledger, seed=None):
        """seed: of a random order; None: the order of the files."""
        self.ledger, self.seed, self.lock = ledger, seed, threading.Lock()
        self.outcomes, self.notes = defaultdict(dict), defaultdict(list)
        self.cut_short = defaultdict(list)
        # {flavor: [{test: [seconds, processor seconds]} of each job]}
        self.seconds = defaultdict(list)
        self.repeated = 0
        self.queue = None

    def plan(self, flavor, *which, tests=("tests/vm",), cases=(1, 1), suite="", env=None):
        """Returns jobs for the tests of a kernel that pytest's options select.

        cases: (K, N) for the Kth of N parts of those that are not cheap. suite: a name for these
        tests, if not all are run. env: additional environment of them."""
        env = env or {}
        suite = ", ".join(filter(None, (suite_of(flavor), suite)))
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "plan"
            shown = ["-q", "--collect-only", f"--plan={path}"]
            done = subprocess.run(
                [*PYTEST, *shown, *tests, f"--flavor={flavor}", *which],
                cwd=TOP,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, **env},
            )
            if done.returncode:
                print(done.stdout)
                self.cut_short[suite].append("the tests could not be collected")
                return []
            planned = json.loads(path.read_text())
        known = jobs.Costs()
        planned = [x for x in planned if in_part(flavor, x[0], known, *cases)]
        return jobs.plan(suite, flavor, planned, known, env=env)

    def options(self, job, name):
        """Returns pytest's options. The machines' consoles go to build/test-artifacts/`name`."""
        base = ARTIFACTS / re.sub(r"\W+", "-", name)
        # No option for C RDS or the kind of devices: the names of the tests have them.
        return [
            f"--flavor={job.flavor}",
            f"--basetemp={base}",
            *([] if self.seed is None else [f"--shuffle={self.seed}"]),
        ]

    def run(self, job):
        tests = (f"tests/{x}" for x in job.tests)
        ran = Pytest(job.suite, job.name, *self.options(job, job.name), *tests, env=job.env).run()
        with self.lock:
            self.outcomes[job.suite] |= ran.outcomes
            self.notes[job.suite] += [f"WARNING {x}" for x in ran.records.get("warnings", [])]
            self.seconds[job.flavor].append(ran.records.get("seconds", {}))
            missing = set(job.tests) - set(ran.outcomes)
            if missing or not ran.whole():
                self.cut_short[job.suite].append(
                    f"{job.name} did not run to its end: {len(missing)} not run"
                )
        for name, text in ran.outcomes.items():
            if text != "passed":
                self.settle(job, name, text, ran.failures.get(name, {}))

    def settle(self, job, name, text, failure):
        """Counts how often a failure comes again under the same load, and excuses known flakes."""
        with self.lock:
            self.repeated += 1
            if self.repeated > self.REPEATED:
                return
        say(f"{job.name}: {name} failed, and is repeated {self.TIMES} times")
        # Once the queue is empty there is no other load.
        with nullcontext() if self.queue and self.queue.others_run() else load():
            again = Pytest(
                job.suite,
                f"{job.name}, repeated",
                *self.options(job, f"{job.name} repeated {name}"),
                f"--repeat={self.TIMES}",
                f"--repeat-seconds={REPEAT_SECONDS}",
                "-o",
                f"timeout={REPEAT_TIMEOUT}",
                f"tests/{name}",
                env=job.env,
            ).run()
        bad = sum(x != "passed" for x in again.outcomes.values())
        told = f"{bad} of {len(again.outcomes)} failed when it was repeated"
        flake = flakes.known(self.ledger, name, text, failure)
        with self.lock:
            enough = again.ended() and len(again.outcomes) >= self.ENOUGH
            if flake and enough and 2 * bad <= len(again.outcomes):
                self.outcomes[job.suite][name] = "passed"
                self.notes[job.suite].append(f"FLAKY {name}: known as {flake.name}; {told}: {text}")
            else:
                self.outcomes[job.suite][name] = f"{text}\n{told}"

    def add_to(self, tally):
        for suite in sorted(self.outcomes.keys() | self.cut_short.keys()):
            tally.add_outcomes(suite, self.outcomes[suite], notes=self.notes[suite])
            if self.cut_short[suite]:
                tally.add(f"{suite}, whole", 0, len(self.cut_short[suite]), self.cut_short[suite])

    def failed(self):
        """Returns True if a test failed, even as a known flake, or a job did not run to its end."""
        bad = (y != "passed" for x in self.outcomes.values() for y in x.values())
        return any(bad) or any(self.cut_short.values()) or self.flaky() > 0

    def flaky(self):
        return sum(x.startswith("FLAKY") for notes in self.notes.values() for x in notes)


@contextmanager
def load():
    """Starts a process that keeps one processor busy."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            yield
        finally:
            busy.kill()


def suite_of(flavor):
    return f"virtual machines, {flavor} kernel"


def write_costs(machines, whole):
    """Writes the costs of each case, and of all, to build/test-artifacts.

    The totals are left out unless all tests ran and passed."""
    cases = {flavor: costs.joined(of) for flavor, of in machines.seconds.items()}
    measured = costs.summary(cases, whole and not machines.failed())
    for name, what in (("cases", cases), ("costs", measured)):
        (ARTIFACTS / f"{name}.json").write_text(json.dumps(what, indent=1, sort_keys=True) + "\n")


def check_costs(tally, seconds, committed, whole=True, failed=False):
    """Reports how the costs of each kernel's tests have grown since costs were committed. Fails if
    that is too much: see costs.verdict().

    A run that is not whole has no total. There is no measure if tests failed, as a test that waits
    in vain costs its whole time limit.

    seconds: {kernel: see costs.growth()}; committed: costs.json."""
    told, notes, passed = [], [], 0
    for flavor, of in seconds.items():
        known, total = committed.get(flavor, {}), committed.get("total", {}).get(flavor)
        report, good = "no measure of costs, because tests failed", None
        if not failed:
            report, good = costs.verdict(of, known, total if whole else None)
        if good is False:
            told.append(f"{flavor} kernel: {report}: see costs.json in build/test-artifacts")
            continue
        notes.append(f"{flavor} kernel: {report}")
        passed += good is True
    if told or notes:
        tally.add("costs of the tests in machines", passed, len(told), told, notes)


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
            outcomes |= {
                f"clean log: {x.splitlines()[0]}": "failed" for x in machine.complaints(start)
            }
            if machine.finds_leaks:
                outcomes["no leaks"] = "failed" if machine.scan_leaks() else "passed"
        except (NodeError, Defect) as e:
            print(e)
            outcomes = {"the machine": "failed"}
        finally:
            if any(x != "passed" for x in outcomes.values()):
                print("\n".join(machine.log()))
            machine.kill()
    tally.add_outcomes(suite, outcomes)


def kunit_in_tree(tally):
    """Runs the suites in the kernel's own tree by its kunit.py, whose verdict counts, too."""
    suite = "KUnit, in the kernel tree"
    say(f"{suite}: building the kernel, as far as it is not in the cache, and running kunit.py")
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "log"
        # The build uses the time that the other machines leave idle.
        done = subprocess.run(
            ["nice", "scripts/kunit-intree.sh", path],
            cwd=TOP,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        lines = path.read_text().splitlines() if path.exists() else []
    lines = [KERNEL_LINE.sub("", x) for x in lines]
    outcomes = ktap.cases(lines) if lines else {}
    outcomes |= {f"clean log: {x.splitlines()[0]}": "failed" for x in klog.complaints(lines)}
    if done.returncode or any(x != "passed" for x in outcomes.values()):
        print(done.stdout, "\n".join(lines), sep="\n")
    tally.add_outcomes(suite, outcomes, done.returncode == 0)


def build(tally, flavor, *more):
    """Builds a kernel and the module for it. more: further arguments of make."""
    say(f"{flavor} kernel: building it, as far as it is not in the cache, and the module")
    built = make("modules", f"FLAVOR={flavor}", *more)
    if not built:
        tally.add(f"the module, {flavor} kernel", 0, 1, ["it does not build"])
    return built


def choose(args):
    """Returns options of pytest that select the tests in machines, by kernel."""
    if args.fast:
        return {"release": ["--impls=rust", "--kinds=rxe", "-m", "smoke"]}
    which = "more" if args.long else "not more"
    # C RDS alone behaves the same on both kernels, and the debug kernel reports defects of it.
    return {
        "release": [f"--impls={'rust' if args.long else 'rust,c'}", "-m", which],
        "debug": ["--impls=rust", "-m", which],
    }


def shard(text):
    """Parses K/N, the Kth of N parts, and returns (K, N)."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"{text} is not K/N with K from 1 to N")
    return int(found[1]), int(found[2])


def in_part(flavor, case, known, k, n):
    """Returns True if a case is in the Kth of N parts of a kernel's cases.

    A cheap case is in all of them, and so are those of jobs.IN_EACH_PART. Otherwise the name alone
    decides. known: a jobs.Costs."""
    if known.of(flavor, case) <= jobs.CHEAP or case in jobs.IN_EACH_PART[flavor]:
        return True
    return zlib.crc32(case.encode()) % n == k - 1


def parts(args):
    """Returns (K, N) by kernel: the part of the costly cases to run."""
    return {"release": args.release_part, "debug": args.debug_part}


def part(all_jobs, k, n):
    """Returns the jobs of the Kth of N shards: of about equal length, and always the same."""
    shards = [[] for _ in range(n)]
    for job in sorted(all_jobs, key=lambda x: (-x.seconds, x.name)):
        min(shards, key=lambda x: sum(y.seconds for y in x)).append(job)
    return shards[k - 1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--fast", action="store_true", help="run only a few of the tests in virtual machines")
    which.add_argument(
        "--long", action="store_true", help="run the tests in virtual machines that take hours"
    )
    parser.add_argument(
        "--shard", type=shard, default=(1, 1), metavar="K/N", help="with --long: run part K of N"
    )
    for flavor in KUNIT_SECONDS:
        parser.add_argument(
            f"--{flavor}-part", type=shard, default=(1, 1), metavar="K/N",
            help=f"run only part K of N of the costly cases in machines on the {flavor} kernel",
        )
    parser.add_argument("--workers", type=int, default=WORKERS, help="number of jobs at a time")
    parser.add_argument("--seed", type=int, help="seed of the random order of --long")
    args = parser.parse_args()
    os.chdir(TOP)
    # FLAVOR is a variable of other targets: both kernels are tested.
    os.environ.pop("FLAVOR", None)
    shutil.rmtree(ARTIFACTS, ignore_errors=True)
    ARTIFACTS.mkdir(parents=True)
    tally = Tally()
    if args.long and args.seed is None:
        args.seed = random.randrange(10**6)
    if args.long:
        say(f"the tests of each job in a random order: --seed={args.seed}")
    machines = Machines(flakes.read((TOP / "tests/flakes.toml").read_text()), args.seed)
    queue = machines.queue = jobs.Queue(
        lambda job: job.call(tally) if job.call else machines.run(job)
    )
    workers = [threading.Thread(target=queue.work) for _ in range(args.workers)]
    for worker in workers:
        worker.start()
    try:
        add_jobs(args, tally, machines)
    finally:
        queue.close()
        for worker in workers:
            worker.join()
    machines.add_to(tally)
    whole = not (args.fast or args.long or any(n > 1 for _, n in parts(args).values()))
    write_costs(machines, whole)
    check_costs(tally, machines.seconds, jobs.Costs().known, whole, machines.failed())
    return 0 if tally.summary(machines.flaky()) else 1


def add_jobs(args, tally, machines):
    """Builds, and adds the jobs of each kernel once its module is built."""

    def call(name, function, *arguments, seconds=30):
        return jobs.Job(
            "", name, "", seconds=seconds, call=lambda tally: function(tally, *arguments)
        )

    if not args.long:
        machines.queue.add([call("host", host)])
    if not make("tools"):
        tally.add("tools", 0, 1, ["they do not build"])
        return
    for flavor, options in choose(args).items():
        if not build(tally, flavor):
            continue
        cases = parts(args)[flavor]
        if cases[1] > 1:
            say("{} kernel: part {} of {} of the costly cases".format(flavor, *cases))
        planned = machines.plan(flavor, *options, cases=cases)
        if args.long:
            planned = part(planned, *args.shard)
            if args.shard[0] == 1:
                planned += jobs.of_other_devices(machines.plan, flavor)
        machines.queue.add(planned)
        # The jobs need not wait for the module with the suites.
        if not args.long and build(tally, flavor, "KUNIT=y"):
            seconds = KUNIT_SECONDS[flavor]
            machines.queue.add([call(f"{flavor} KUnit", kunit, flavor, seconds=seconds)])
    if args.long and args.shard[0] == 1:
        fuzz = "random calls for ten minutes"
        machines.queue.add([call(fuzz, made, fuzz, "fuzz", "SECONDS=600", seconds=700)])
        counted = "instructions, against tests/vm/counts.json"
        machines.queue.add([call(counted, made, counted, "bench", *COUNTED, seconds=120)])
        miri = "data structures with unsafe code under Miri"
        machines.queue.add([call(miri, made, miri, "test-miri", CRATES, seconds=MIRI_SECONDS)])
    if not (args.fast or args.long):
        machines.queue.add([call("KUnit in the kernel tree", kunit_in_tree, seconds=200)])


def made(tally, name, *arguments):
    """Runs a target of make with tests of its own, which counts as one case."""
    tally.add_outcomes(name, {name: "passed" if make(*arguments) else "failed"})


def host(tally):
    """Runs all tests that need no machine."""
    for crate in ("tests/host", "tests/loom", "tools"):
        cargo(tally, crate)
    checks = Pytest("checks of the checks", "checks", "tests/lint").run()
    tally.add_outcomes(checks.suite, checks.outcomes, checks.whole() and bool(checks.outcomes))


if __name__ == "__main__":
    sys.exit(main())
