#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tables of the coverage of tests that ran with --coverage.

missed: the blocks of the module that no test reaches, by file, function and line.
cover: tests, each of which adds most blocks per second to those reached by the tests before it.
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from blockcov.cases import Mismatch, Run, to_ranges  # noqa: E402
from blockcov.image import plain  # noqa: E402

# Lower limit for the time of a test, as very short times are not exact.
LEAST_SECONDS = 0.05
# A redundant test takes at least this long, and the tests before it reach this part without it.
REDUNDANT_SECONDS, ENOUGH = 2, 0.99


def split(source):
    """Returns file and line of a block's source; line -1 if there is none."""
    path, _, line = source.rpartition(":")
    return (path, int(line)) if path else ("(no line of the module)", -1)


def share(some, every):
    both = len(some & every)
    return f"{both:6} of {len(every):6} {100 * both // max(len(every), 1):4} %"


def missed(run):
    """Yields lines of text. Blocks that end in a panic or a trap are not expected to run."""
    names = plain(x.function for x in run.blocks)
    reached = run.reached()
    files, functions, panics = defaultdict(set), defaultdict(set), 0
    for number, block in enumerate(run.blocks):
        if block.kind == "panic":
            panics += 1
            continue
        files[split(block.source)[0]].add(number)
        functions[names[block.function]].add(number)
    every = set().union(*files.values())
    width = max((len(x) for x in files), default=0)
    yield f"{'reached':>{width + 7}}"
    for path in sorted(files):
        yield f"{path:{width}} {share(reached, files[path])}"
    yield f"{'all':{width}} {share(reached, every)}"
    yield f"{panics} more end in a panic or a trap; {len(reached - every)} of them were reached."
    yield from missed_lines(run, files, functions, names, reached)


def missed_lines(run, files, functions, names, reached):
    """Yields each file's functions with blocks that were not reached, and the blocks' lines."""
    def line_of(number):
        return split(run.blocks[number].source)[1]

    for path in sorted(files):
        by_function = defaultdict(set)
        for number in files[path] - reached:
            by_function[names[run.blocks[number].function]].add(number)
        if by_function:
            yield f"\n{path}"
        for name, mine in sorted(by_function.items(), key=lambda x: min(map(line_of, x[1]))):
            lines = to_ranges({x for x in map(line_of, mine) if x >= 0})
            # The function may also have blocks of other files, which were inlined.
            whole = " (nothing of the function)" if not functions[name] & reached else ""
            yield f"  {len(mine):4} in {name}{whole}{': ' if lines else ''}{lines}"


def bits(numbers):
    return sum(1 << x for x in numbers)


def cover(run, seconds, within=None):
    """Returns a greedy cover: {"order": tests with what each adds, ...}.

    seconds: {name: time}, used instead of the run's own times; within: a limit for all tests. The
    first test on shared machines also takes the time of their set-up."""
    chosen, have, total, made = [], 0, 0.0, set()
    left = {x.name: (x, bits(x.blocks)) for x in run.cases.values() if x.passed}
    setups = {x.name: bits(x.blocks) for x in run.setups.values()}

    def cost(case):
        setup = run.setups.get(case.setup) if case.setup not in made else None
        own = seconds.get(case.name, case.seconds)
        return max(own, LEAST_SECONDS) + (seconds.get(setup.name, setup.seconds) if setup else 0)

    while left:
        rows = []
        for case, own in left.values():
            new = (own | setups.get(case.setup, 0)) & ~have
            if new and (within is None or total + cost(case) <= within):
                rows.append((new.bit_count() / cost(case), new, case))
        if not rows:
            break
        _, new, case = max(rows, key=lambda x: (x[0], x[2].name))
        total += cost(case)
        have |= new
        made.add(case.setup)
        del left[case.name]
        chosen.append({"case": case.name, "setup": case.setup, "new": new.bit_count(),
                       "blocks": have.bit_count(), "seconds": round(total, 2)})
    useful = {n for n, (case, own) in left.items() if (own | setups.get(case.setup, 0)) & ~have}
    return {"blocks": len(run.blocks), "reached": len(run.reached()), "order": chosen,
            "no room": sorted(useful), "nothing new": sorted(set(left) - useful),
            "failed": sorted(x.name for x in run.cases.values() if not x.passed)}


def redundant(run, found):
    """Returns the tests that may be left out: slow ones without which a cover reaches enough."""
    enough = ENOUGH * found["reached"]
    needed = {x["case"] for x in found["order"] if x["blocks"] - x["new"] < enough}
    return sorted(x.name for x in run.cases.values()
                  if x.passed and x.name not in needed and x.seconds >= REDUNDANT_SECONDS)


def cover_table(found):
    yield f"{'seconds':>9} {'new':>6} {'blocks':>7}  of {found['reached']} that all tests reach"
    for x in found["order"]:
        percent = 100 * x["blocks"] / max(found["reached"], 1)
        yield f"{x['seconds']:9.1f} {x['new']:6} {x['blocks']:7} {percent:5.1f} %  {x['case']}"
    for what in ("no room", "nothing new", "failed"):
        yield f"{len(found[what])} tests: {what}"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("missed", "cover"))
    parser.add_argument("folders", nargs="+", type=Path,
                        help="folders written by --coverage, with one build of the module")
    parser.add_argument("--seconds", type=Path,
                        help="cover: a JSON file with the seconds of each test by its name")
    parser.add_argument("--within", type=float, help="cover: limit of the sum of seconds of all tests")
    parser.add_argument("--json", type=Path, help="cover: also write the result to this file")
    parser.add_argument("--redundant", type=Path, help="cover: write the redundant tests to this file")
    args = parser.parse_args()
    try:
        run = Run(args.folders)
    except (Mismatch, OSError) as e:
        sys.exit(f"error: {e}")
    if args.what == "missed":
        print("\n".join(missed(run)))
        return
    seconds = json.loads(args.seconds.read_text(encoding="utf-8")) if args.seconds else {}
    found = cover(run, seconds, args.within)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if args.redundant:
        args.redundant.write_text("".join(f"{x}\n" for x in redundant(run, found)), encoding="utf-8")
    print("\n".join(cover_table(found)))


if __name__ == "__main__":
    main()
