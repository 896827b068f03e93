# SPDX-License-Identifier: GPL-2.0
"""Growth of the tests' costs is found, and load of the computer is not taken for it."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

import costs  # noqa: E402

spec = importlib.util.spec_from_file_location("run_tests", TOP / "scripts/run-tests.py")
run_tests = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run_tests)


def committed(functions=40):
    """Returns costs.json of a suite with two cases of each function, which cost 10 to 14
    seconds."""
    known = {f"test_{i}.py::t": 10.0 + i % 5 for i in range(functions)}
    return {"release": known, "total": {"release": 2 * sum(known.values())}}


def run_of(known, pace=lambda i: 1.0):
    """Returns the costs of a run of the committed suite; pace: of the function of this number."""
    functions = list(known["release"].items())
    return {"release": [{f"vm/{name}[{j}]": [99, cost * pace(i)] for i, (name, cost)
                         in list(enumerate(functions))[first::8] for j in range(2)} for first in range(8)]}


def verdict(*arguments, **options):
    """Returns the number of kernels whose tests cost too much, or None if none has a verdict."""
    tally = run_tests.Tally()
    run_tests.check_costs(tally, *arguments, **options)
    _, passed, failed, _, _ = tally.suites[0]
    return failed if passed + failed else None


def part(functions, **growing):
    """Returns the committed costs of a suite without a total, and a run of all of it.

    growing: the factor of functions by number, as `_NUMBER`."""
    known = committed(functions)
    del known["total"]
    return run_of(known, lambda i: 1.1 * growing.get(f"_{i}", (0.9, 1.0, 1.1)[i % 3])), known


@pytest.mark.parametrize("load", [0.5, 1.0, 1.1, 1.3, 3.0])
def test_load_is_no_growth(load):
    """A slower or busier computer has another pace, from one function to the next, too."""
    known = committed()
    assert verdict(run_of(known, lambda _: load), known) == 0
    assert verdict(run_of(known, lambda i: load * (0.8, 1.0, 1.1, 0.9, 1.2)[i % 5]), known) == 0


@pytest.mark.parametrize("jobs_under_load", range(9))
def test_load_of_a_part_of_the_run_is_no_growth(jobs_under_load):
    """The load of some jobs, by another program, gives none or no verdict."""
    known = committed()
    # The jobs of run_of() have every eighth function.
    assert not verdict(run_of(known, lambda i: 1.25 if i % 8 < jobs_under_load else 1), known)


@pytest.mark.parametrize("load", [0.5, 1.0, 1.3])
def test_growing_cost_fails(load):
    """Functions that cost more, more cases and more functions are growth, at any load."""
    known = committed()
    known_total = known["total"]["release"]

    def also(name, cost):
        run = run_of(known, lambda _: load)
        run["release"][0] |= {f"vm/{name}[new {i}]": [99, load * cost / 4] for i in range(4)}
        return verdict(run, known)

    for name in ("test_0.py::t", "test_new.py::t"):
        assert [also(name, known_total * x) for x in (0.049, 0.051)] == [0, 1], name
    # A tenth of the functions costs more.
    slower = [verdict(run_of(known, lambda i: load * (x if i % 10 == 0 else 1)), known) for x in (1.5, 1.8)]
    assert slower == [0, 1]


def test_no_verdict(capsys):
    """After a failure, or if the functions' costs have little in common."""
    known = committed()
    run = run_of(known, lambda _: 2)
    assert verdict({"debug": run["release"]}, known) is None
    assert verdict(run, known, failed=True) is None
    assert "no measure" not in capsys.readouterr().out.replace("no measure of costs", "")
    run = run_of(known, lambda i: (0.3, 1, 1.7)[i % 3])
    tally = run_tests.Tally()
    run_tests.check_costs(tally, run, known)
    assert tally.suites[0][1:4] == (0, 0, []) and "no measure" in tally.suites[0][4][0]


@pytest.mark.parametrize("whole", [True, False])
def test_a_part_is_compared_with_its_own_cases(whole):
    """Gross growth of a part fails, and any other is reported. A whole run without a committed
    total counts as a part."""
    run, known = part(80)
    assert verdict(run, known, whole=whole) == 0
    # New functions have no committed cost.
    run["release"][0] |= {f"vm/test_new.py::t[{i}]": [99, 9999] for i in range(3)}
    assert verdict(run, known, whole=whole) == 0
    grown = {f"_{i}": 4.0 for i in range(8, 16)}
    assert verdict(*part(80, **grown), whole=whole) == 0
    grown = {f"_{i}": 8.0 for i in range(8, 16)}
    assert verdict(*part(80, **grown), whole=whole) == 1


def test_the_total_is_that_of_a_whole_run():
    known = committed(80)
    known["total"]["release"] /= 3
    run = run_of(known)
    assert verdict(run, known) == 1
    assert verdict(run, known, whole=False) == 0


def test_the_ends_of_a_job_are_not_compared():
    """They pay for its boot and its search for leaks, which are in other cases of another part."""
    run, known = part(80)
    for job in run["release"]:
        for name in list(job)[0], list(job)[-1]:
            job[name] = [99, 500]
    assert verdict(run, known) == 0


def test_a_part_of_few_functions_is_not_judged():
    grown = {f"_{i}": 8.0 for i in range(2)}
    assert verdict(*part(20, **grown)) is None


def test_doubt_raises_the_limit():
    """Growth of 6 % is none if the functions' costs spread."""
    known = committed()
    run = run_of(known)
    run["release"][0]["vm/test_new.py::t"] = [99, 0.06 * known["total"]["release"]]
    assert verdict(run, known) == 1
    run = run_of(known, lambda i: (0.9, 1, 1.1)[i % 3])
    run["release"][0]["vm/test_new.py::t"] = [99, 0.06 * known["total"]["release"]]
    assert verdict(run, known) == 0


def test_failure_has_no_cost():
    """A run with a known flake, which passes, has no valid cost."""
    machines = run_tests.Machines([])
    machines.outcomes["suite"] = {"a": "passed"}
    assert not machines.failed()
    machines.notes["suite"] = ["FLAKY a: known as b"]
    assert machines.failed()
    machines.notes["suite"] = []
    machines.outcomes["suite"]["b"] = "failed: c"
    assert machines.failed()
    machines.outcomes["suite"] = {}
    machines.cut_short["suite"] = ["a did not run to its end"]
    assert machines.failed()


def test_costs():
    cases = {"vm/test_a.py::a[1]": [9, 10], "vm/test_a.py::a[2]": [9, 20], "vm/test_b.py::b": [9, 5]}
    functions = {"test_a.py::a": 15, "test_b.py::b": 5}
    assert costs.summary({"debug": cases}) == {"debug": functions, "total": {"debug": 35}}
    assert costs.summary({"debug": cases}, whole=False) == {"debug": functions}


@pytest.mark.parametrize("whole, passed, totals", [(True, True, True), (True, False, False), (False, True, False)])
def test_totals_of_whole_runs_only(whole, passed, totals, tmp_path, monkeypatch):
    """make costs copies the costs of a whole run without failures, and refuses those of another."""
    monkeypatch.setattr(run_tests, "ARTIFACTS", tmp_path / "build/test-artifacts")
    run_tests.ARTIFACTS.mkdir(parents=True)
    (tmp_path / "tests/vm").mkdir(parents=True)
    machines = run_tests.Machines([])
    machines.outcomes["suite"] = {"a": "passed" if passed else "failed: b"}
    cases = {"vm/test_a.py::a": [9, 10]}
    machines.seconds["debug"] = [cases]
    run_tests.write_costs(machines, whole)
    assert json.loads((run_tests.ARTIFACTS / "cases.json").read_text()) == {"debug": cases}
    done = subprocess.run(["make", "-s", "-f", run_tests.TOP / "Makefile", "costs"], cwd=tmp_path,
                          capture_output=True, text=True)
    copied = tmp_path / "tests/vm/costs.json"
    assert (done.returncode == 0) == copied.exists() == totals, done.stderr
    assert ("no total of costs" in done.stderr) != totals
    assert not totals or json.loads(copied.read_text()) == costs.summary({"debug": cases})
