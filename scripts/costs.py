# SPDX-License-Identifier: GPL-2.0
"""Costs of the tests in machines, and their growth since costs were committed.

A cost is processor time. It depends on the computer and on its load, by a factor that most tests
have in common: the pace of a run. The tests themselves measure it. Growth is the rest: functions
that cost more than the pace explains, and new ones.

The cases of a part have no committed total. They are compared with the sum of their own committed
costs. The first and the last case of a job are left out, as they pay for its boot and its search
for leaks. Growth of a part by 5 % cannot be judged. In three runs of the same code on a loaded
computer most functions cost 0.8 to 1.6 times the pace. One in ten cost over twice as much. With
such costs the sum of a third of the tests is 1.03 to 1.33 times its pace. An eighth of those on the
debug kernel costs 0.9 to 1.5 times. So growth of a part is reported, and fails only if it is gross
and the part has enough functions.
"""

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass

from jobs import function_of

# Twice the standard error of the difference between mean and median, in units of the standard
# deviation by the root of the number of samples. The samples are normal.
ERRORS = 1.5
# With normal samples, their standard deviation is this times the median distance from the median.
DEVIATION = 1.48
# The largest accepted growth of a whole run and of a part, and the largest uncertainty of a
# comparison.
MOST_GROWTH, MOST_GROWTH_OF_PART, MOST_DOUBT = 1.05, 1.5, 0.1
# A part with fewer functions of equal weight is not judged. The parts of continuous integration
# have some 80 on the release kernel, and 7 on the debug kernel.
ENOUGH_FUNCTIONS = 30


@dataclass(frozen=True)
class Growth:
    """The costs of a kernel's tests, in relation to the committed ones.

    pace: the cost of a typical function in relation to the committed one
    factor: growth of the total at this pace
    doubt: the uncertainty of the factor
    functions: number of functions of equal weight that are as certain
    """

    pace: float
    factor: float
    doubt: float
    functions: float


def summary(seconds, whole=True):
    """Returns costs in the form of tests/vm/costs.json.

    They are the mean processor seconds of the cases of each function, by kernel. The totals are
    left out unless the run was whole, so that nobody commits wrong ones.

    seconds: {kernel: {test: [seconds, processor seconds]}}."""
    told = {
        flavor: {name: round(statistics.mean(x), 2) for name, x in sorted(by_function(of).items())}
        for flavor, of in seconds.items()
    }
    if whole:
        told["total"] = {flavor: round(total(of), 1) for flavor, of in seconds.items()}
    return told


def joined(jobs):
    """Returns the costs of the tests of all jobs."""
    return {name: cost for job in jobs for name, cost in job.items()}


def by_function(seconds):
    """Returns {function: list of the processor seconds of its cases}."""
    functions = defaultdict(list)
    for name, (_, cpu) in seconds.items():
        functions[function_of(name)].append(cpu)
    return functions


def total(seconds):
    return sum(cpu for _, cpu in seconds.values())


def growth(jobs, committed, committed_total):
    """Compares the costs of a kernel's tests with the committed ones.

    Returns None if no function has a committed cost.

    jobs: list of {test: [seconds, processor seconds]}, each of tests that ran one after the other;
    committed: {function: processor seconds of a case}."""
    seconds = joined(jobs)
    samples = samples_of(seconds, committed)
    if not samples:
        return None
    pace = median(samples)
    apart = DEVIATION * median((abs(ratio - pace), weight) for ratio, weight in samples)
    # The load may change from job to job, and is then common to the functions of one.
    of_jobs = [(median(x), sum(w for _, w in x)) for x in (samples_of(y, committed) for y in jobs) if x]
    between = mean(((ratio - pace) ** 2, weight) for ratio, weight in of_jobs) ** 0.5
    return Growth(
        pace=pace,
        factor=total(seconds) / (pace * committed_total),
        doubt=ERRORS * math.hypot(apart / root(samples), between / root(of_jobs)) / pace,
        functions=root(samples) ** 2,
    )


def part_of(jobs, committed):
    """Returns the cases of all jobs that can be compared with the sum of their committed costs,
    and this sum."""
    inner = [
        {name: cost for name, cost in list(job.items())[1:-1] if committed.get(function_of(name))}
        for job in jobs
    ]
    expected = sum(committed[function_of(name)] for job in inner for name in job)
    return [job for job in inner if job], expected


def verdict(jobs, committed, committed_total=None):
    """Returns a report about the growth of a kernel's tests, and whether it is accepted.

    That is None if it cannot be judged. committed_total: None for a part; see growth()."""
    compared, expected = jobs, committed_total
    if not committed_total:
        compared, expected = part_of(jobs, committed)
    found = growth(compared, committed, expected)
    if not found:
        return f"{total(joined(jobs)):.0f} processor seconds; no cost is committed", None
    told = f"{found.factor:.3f} times the committed costs, at {found.pace:.2f} times their pace"
    most = MOST_GROWTH + found.doubt
    if not committed_total:
        most = MOST_GROWTH_OF_PART
        told = f"{told}, in a part of {expected:.0f} processor seconds"
    if found.doubt > MOST_DOUBT:
        return f"{told}, give or take {found.doubt:.0%}: no measure", None
    if not committed_total and found.functions < ENOUGH_FUNCTIONS:
        return f"{told} and {found.functions:.0f} functions: no measure", None
    return f"{told}; at most {most:.3f}", found.factor <= most


def samples_of(seconds, committed):
    """Returns (cost in relation to the committed one, committed cost of all cases) by function."""
    return [
        (sum(cases) / (committed[name] * len(cases)), committed[name] * len(cases))
        for name, cases in by_function(seconds).items()
        if committed.get(name)
    ]


def root(samples):
    """Returns the root of the number of samples of equal weight that are as certain."""
    return sum(w for _, w in samples) / math.hypot(*(w for _, w in samples))


def mean(samples):
    """Returns the mean of (value, weight)."""
    samples = list(samples)
    return sum(value * weight for value, weight in samples) / sum(weight for _, weight in samples)


def median(samples):
    """Returns the weighted median of (value, weight)."""
    samples = sorted(samples)
    half, below = sum(weight for _, weight in samples) / 2, 0
    for value, weight in samples:
        below += weight
        if below >= half:
            return value
    raise ValueError("no samples")
