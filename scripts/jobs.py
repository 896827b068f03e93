# SPDX-License-Identifier: GPL-2.0
"""A queue of jobs for the workers of the machine: the longest jobs go first.

A job is a part of the tests that boots its own machines. A job that would take longer than its
share is split, so that the last worker does not work alone for long. tests/vm/costs.json has the
duration of each test. It is a copy of a file that a whole run leaves in build/test-artifacts. A
test that is not there is assumed to take an average time.
"""

import json
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

COSTS = Path(__file__).resolve().parents[1] / "tests/vm/costs.json"
# Processor seconds of a boot, and of a leak scan at the end, by kernel.
BOOT = {"release": 15, "debug": 60}
# Jobs of more processor seconds are split, by kernel. On the debug one each part scans for leaks.
LONGEST = {"release": 400, "debug": 800}
UNKNOWN = 3.0
# Most processor seconds of a case that is in each part of the cases, as a new one is.
CHEAP = 4.0
# Costly cases that are in each part, by kernel: failover and flow control on the debug kernel, and
# this module restarting beside C RDS.
IN_EACH_PART = {
    "release": ("vm/test_restart.py::test_rust_restarts[rust-c-crash-cut]",),
    "debug": (
        "vm/test_credits.py::test_without_memory[rust]",
        "vm/test_failover.py::test_wire_dies_and_addresses_move[rust-rust-pulled]",
    ),
}
# Devices on which make test-long runs a part of tests/vm: a name, the tests, those that run with
# the cases that make test leaves out, and the environment that selects the devices. The first ones
# are tests that the defects of the soft devices can break, the others those of the data path.
DATA_PATH = (
    "pair",
    "operations",
    "pool",
    "links",
    "rogue",
    "regions",
    "module",
    "credits",
    "restart",
    "dead_peer",
    "lost",
    "mtu",
    "fragments",
    "wrong_keys",
)
# Connections that move take their buffers along. On the debug kernel these cases take some 15
# minutes of a processor for each way to memory; all left-out cases of the data path take hours.
WHOLE = ("failover",)
OTHER_DEVICES = (
    ("unpatched devices", ("pair", "failover", "links", "dead_peer"), (), {"UNPATCHED": "1"}),
    ("translated memory", DATA_PATH, WHOLE, {"RDS_DMA": "translated"}),
    ("bounced memory", DATA_PATH, WHOLE, {"RDS_DMA": "bounced"}),
)


@dataclass
class Job:
    """A part of the tests.

    suite: the line of the summary that its cases are added to; name: shown to people; tests: node
    ids, in order."""

    suite: str
    name: str
    flavor: str
    tests: list = field(default_factory=list)
    # An estimate, in processor seconds.
    seconds: float = 0
    # Additional environment of its tests.
    env: dict = field(default_factory=dict)
    # Called instead of the tests, for a job that is not a part of tests/vm.
    call: Callable | None = None


def function_of(nodeid):
    return nodeid.partition("[")[0].removeprefix("tests/").removeprefix("vm/")


class Costs:
    """Processor seconds of a case of each function, by kernel."""

    def __init__(self, known=None):
        self.known = (
            json.loads(COSTS.read_text()) if known is None and COSTS.exists() else known or {}
        )

    def of(self, flavor, nodeid):
        return self.known.get(flavor, {}).get(function_of(nodeid), UNKNOWN)


def plan(suite, flavor, tests, costs, longest=None, env=None):
    """Returns the jobs of a suite.

    tests: (node id, name of the machines) in order; tests with the same name share machines. env:
    additional environment of the tests."""
    labs = defaultdict(list)
    for nodeid, lab in tests:
        # Tests that boot their own machines need no common job.
        labs["own machines" if lab.startswith("own ") else lab].append(nodeid)
    made = [
        job
        for lab, nodeids in labs.items()
        for job in split(suite, flavor, lab, nodeids, costs, longest or LONGEST[flavor])
    ]
    for job in made:
        if env:
            job.name = f"{job.name}, {suite}"
            job.env = env
    return made


def of_other_devices(plan, flavor):
    """Returns the jobs of a kernel on OTHER_DEVICES. plan: see Machines.plan() in run-tests.py."""
    planned = []
    for name, *files, env in OTHER_DEVICES:
        for which, chosen in zip((["-m", "not more"], []), files):
            tests = [f"tests/vm/test_{x}.py" for x in chosen]
            if tests:
                planned += plan(flavor, "--impls=rust", *which, tests=tests, suite=name, env=env)
    return planned


def split(suite, flavor, lab, nodeids, costs, longest):
    """Returns jobs of about the same length.

    The order of tests stays, and the cases of a function stay together if possible."""
    total = sum(costs.of(flavor, x) for x in nodeids)
    parts = max(1, round(total / longest))
    jobs = [Job(suite, f"{flavor} {lab}", flavor, seconds=BOOT[flavor])]
    done = 0.0
    for i, nodeid in enumerate(nodeids):
        begins = i > 0 and function_of(nodeid) != function_of(nodeids[i - 1])
        if begins and done >= len(jobs) * total / parts and len(jobs) < parts:
            jobs.append(Job(suite, f"{flavor} {lab}", flavor, seconds=BOOT[flavor]))
        jobs[-1].tests.append(nodeid)
        cost = costs.of(flavor, nodeid)
        jobs[-1].seconds += cost
        done += cost
    if len(jobs) > 1:
        for i, job in enumerate(jobs, 1):
            job.name += f" {i}/{len(jobs)}"
    return jobs


class Queue:
    """Runs jobs with several workers: the longest job in the queue first.

    Jobs may be added while others run."""

    def __init__(self, run):
        """run: called with each job, by the worker that takes it."""
        self.run, self.waiting, self.running = run, [], 0
        self.changed = threading.Condition()
        self.closed = False

    def add(self, jobs):
        with self.changed:
            self.waiting = sorted([*self.waiting, *jobs], key=lambda x: -x.seconds)
            self.changed.notify_all()

    def close(self):
        """Closes the queue: no job will be added any more."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def others_run(self):
        """Returns True if another worker than the caller has a job."""
        with self.changed:
            return self.running > 1

    def work(self):
        """Runs jobs until there are no more: the loop of a worker."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.waiting or self.closed)
                if not self.waiting:
                    return
                job = self.waiting.pop(0)
                self.running += 1
            try:
                self.run(job)
            finally:
                with self.changed:
                    self.running -= 1
