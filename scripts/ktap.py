# SPDX-License-Identifier: GPL-2.0
"""Reads the results of KUnit from a kernel log."""

import re

PLAN = re.compile(r"^(    )?1\.\.(\d+)$")
SUITE = re.compile(r"# Subtest: (\S+)")
RESULT = re.compile(r"^(\s*)(not ok|ok) \d+ (\S+)(.*)$")


def cases(lines):
    """Returns {"suite.case": "passed", "failed" or "skipped"}.

    The line of a suite itself counts only when it reports a failure that none of its cases reports.
    Suites and cases that were announced and have no result count as failed."""
    found, suite, started = {}, None, set()
    planned, ended, cases_planned = None, 0, {}
    for line in lines:
        if m := SUITE.search(line):
            # A parameterised case announces itself as a subtest, too; the outer name counts.
            if not line.startswith(" " * 8):
                suite = m[1]
                started.add(suite)
            continue
        if m := PLAN.match(line):
            if m[1]:
                cases_planned[suite] = int(m[2])
            else:
                planned = (planned or 0) + int(m[2])
            continue
        m = RESULT.match(line)
        if not m:
            continue
        depth, verdict, name, rest = len(m[1]), m[2], m[3], m[4]
        outcome = "failed" if verdict == "not ok" else "skipped" if "# SKIP" in rest else "passed"
        if depth == 4:
            found[f"{suite}.{name}"] = outcome
        elif depth == 0:
            ended += 1
            started.discard(name)
            told = of_suite(found, name)
            if outcome == "failed" and "failed" not in told or not told:
                found[name] = "failed"
            elif len(told) != cases_planned.get(name):
                found[f"{name}, all cases"] = "failed"
    # A suite without a result was cut short.
    found.update({name: "failed" for name in started})
    if not planned or ended != planned:
        found[f"all suites ({ended} of {planned or 'an unknown number'} ended)"] = "failed"
    return found


def of_suite(found, name):
    return [outcome for key, outcome in found.items() if key.startswith(f"{name}.")]
