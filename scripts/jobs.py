# SPDX-License-Identifier: GPL-2.0
"""A queue of jobs for as many workers as the machine takes: what takes longest goes first.

A job is a part of the tests that boots its own machines. One that would take longer than its
share is split, so that the last worker does not work alone for long. How long a test takes is
known from tests/vm/costs.json, a copy of what a whole run leaves in build/test-artifacts; a test
that is not there is taken for an average one.
"""

import json
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

COSTS = Path(__file__).resolve().parents[1] / "tests/vm/costs.json"
# Seconds of processors: a boot and a leak scan at the end, by kernel.
BOOT = {"release": 15, "debug": 60}
# A job of more seconds than this is split, by kernel. On the debug one each part looks for leaks.
LONGEST = {"release": 400, "debug": 800}
UNKNOWN = 3.0


@dataclass
class Job:
    """suite: the line of the summary that its cases are added to; name: for people; tests: node
    ids, in order."""

    suite: str
    name: str
    flavor: str
    tests: list = field(default_factory=list)
    # An estimate, of processors.
    seconds: float = 0
    # More of the environment of its tests.
    env: dict = field(default_factory=dict)
    # Called instead of the tests, for what is not a part of tests/vm.
    call: Callable | None = None


def function_of(nodeid):
    return nodeid.partition("[")[0].removeprefix("tests/").removeprefix("vm/")


class Costs:
    """Seconds of processors that a case of each function takes, by kernel."""

    def __init__(self, known=None):
        self.known = (
            json.loads(COSTS.read_text()) if known is None and COSTS.exists() else known or {}
        )

    def of(self, flavor, nodeid):
        return self.known.get(flavor, {}).get(function_of(nodeid), UNKNOWN)


def plan(suite, flavor, tests, costs, longest=None):
    """The jobs of a suite. tests: (node id, name of the machines) in order; those of one name
    share machines."""
    labs = defaultdict(list)
    for nodeid, lab in tests:
        # Those that boot their own machines need no common place.
        labs["own machines" if lab.startswith("own ") else lab].append(nodeid)
    return [
        job
        for lab, nodeids in labs.items()
        for job in split(suite, flavor, lab, nodeids, costs, longest or LONGEST[flavor])
    ]


def split(suite, flavor, lab, nodeids, costs, longest):
    """Jobs of about the same length. The order of tests stays, and no function is torn apart if
    it need not be."""
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
    """Runs jobs with several workers, the longest of those that are there first. Jobs may come
    while others run."""

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
        """No job will be added any more."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def others_run(self):
        """Whether another worker than the caller has a job."""
        with self.changed:
            return self.running > 1

    def work(self):
        """Takes jobs until there are none any more: the loop of a worker."""
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
