# SPDX-License-Identifier: GPL-2.0
"""The test runner counts all failures: none gets lost on the way."""

import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

import collect  # noqa: E402
import flakes  # noqa: E402
import jobs  # noqa: E402
import ktap  # noqa: E402

spec = importlib.util.spec_from_file_location("run_tests", TOP / "scripts/run-tests.py")
run_tests = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run_tests)

# Processor seconds of the costly cases that are in each part: 150 together.
MOST_IN_EACH_PART = {"release": 30, "debug": 120}

CARGO = """
     Running unittests src/lib.rs (build/cargo-test/debug/deps/rds_proto_host-0123456789abcdef)

running 4 tests
test wire::tests::round_trip ... ok
test wire::tests::bad ... FAILED
test wire::tests::slow ... ignored
test sim::lossy - should panic ... ok

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured
     Running unittests src/main.rs (build/cargo-test/debug/deps/rds_ping-0123456789abcdef)
test wire::tests::bad ... ok
   Doc-tests rds_socket
test src/lib.rs - open (line 3) ... ok
"""


def test_cargo_output():
    assert run_tests.cargo_outcomes(CARGO) == {
        "rds_proto_host wire::tests::round_trip": "passed",
        "rds_proto_host wire::tests::bad": "FAILED",
        "rds_proto_host wire::tests::slow": "ignored",
        "rds_proto_host sim::lossy - should panic": "passed",
        "rds_ping wire::tests::bad": "passed",
        "rds_socket src/lib.rs - open (line 3)": "passed",
    }


KTAP = """KTAP version 1
1..2
    KTAP version 1
    # Subtest: wire
    # module: rds_rust
    1..4
    ok 1 round_trip
    # bad: ASSERTION FAILED at wire.rs:3
    not ok 2 bad
    ok 3 odd # SKIP not here
        KTAP version 1
        # Subtest: sizes
        ok 1 0
        ok 2 4096
    ok 4 sizes
# wire: pass:2 fail:1 skip:1 total:4
not ok 1 wire
    KTAP version 1
    # Subtest: rx
    1..1
    ok 1 order
# rx: pass:1 fail:0 skip:0 total:1
ok 2 rx"""


def test_ktap():
    assert ktap.cases(KTAP.split("\n")) == {
        "wire.round_trip": "passed",
        "wire.bad": "failed",
        "wire.odd": "skipped",
        "wire.sizes": "passed",
        "rx.order": "passed",
    }


def test_ktap_of_a_suite_that_was_cut_short():
    lines = KTAP.split("\n")
    found = ktap.cases(lines[: lines.index("    ok 1 order") + 1])
    assert found["rx"] == "failed" and found["rx.order"] == "passed"


def test_ktap_of_a_suite_that_fails_without_a_case():
    found = ktap.cases(["1..1", "    # Subtest: init", "    1..1", "not ok 1 init"])
    assert found == {"init": "failed"}


def test_ktap_of_a_suite_that_never_ran():
    lines = KTAP.split("\n")
    found = ktap.cases(lines[: lines.index("not ok 1 wire") + 1])
    assert found["all suites (1 of 2 ended)"] == "failed"
    assert "failed" not in ktap.cases(["1..1", *lines[-5:]]).values()


@pytest.mark.parametrize("lines", ([], KTAP.split("\n")[2:], ["KTAP version 1", "1..0"]),
                         ids=("nothing", "no plan", "no suites"))
def test_ktap_of_nothing(lines):
    assert [v for k, v in ktap.cases(lines).items() if k.startswith("all suites")] == ["failed"]


def test_ktap_of_a_case_that_is_missing():
    lines = KTAP.split("\n")
    lines.remove("    ok 1 round_trip")
    assert ktap.cases(lines)["wire, all cases"] == "failed"


LOGS = {
    "pass": ("1..1\n    # Subtest: wire\n    1..1\n    ok 1 parse\nok 1 wire\n", 0, (1, 0)),
    "fail": ("1..1\n    # Subtest: wire\n    1..1\n    not ok 1 parse\nnot ok 1 wire\n", 1, (0, 1)),
    "timed": ("[    0.5] 1..1\n[    0.5]     # Subtest: wire\n[    0.5]     1..1\n"
              "[    0.5]     ok 1 parse\n[    0.5] ok 1 wire\n", 0, (1, 0)),
    "verdict": ("1..1\n    # Subtest: wire\n    1..1\n    ok 1 parse\nok 1 wire\n", 1, (1, 1)),
    "warning": ("WARNING: rds\n1..1\n    # Subtest: wire\n    1..1\n    ok 1 parse\nok 1 wire\n", 0,
                (1, 1)),
    "unbuilt": (None, 1, (0, 1)),
    "crash": ("1..2\n    # Subtest: wire\n    1..1\n    ok 1 parse\nok 1 wire\n", 1, (1, 1)),
}


@pytest.mark.parametrize("log, status, counts", LOGS.values(), ids=LOGS)
def test_kunit_in_tree(log, status, counts, tmp_path, monkeypatch):
    """The log of kunit.py and its exit status become counts."""
    script = tmp_path / "scripts/kunit-intree.sh"
    script.parent.mkdir()
    (tmp_path / "log").write_text(log or "")
    script.write_text(f"#!/bin/sh\n{'cp log $1' if log else ':'}\nexit {status}\n")
    script.chmod(0o755)
    monkeypatch.setattr(run_tests, "TOP", tmp_path)
    tally = run_tests.Tally()
    run_tests.kunit_in_tree(tally)
    assert tally.suites[0][1:3] == counts


def test_qemu_is_run_without_kvm(tmp_path):
    """The wrapper for kunit.py removes accelerators and passes on all other arguments."""
    real = tmp_path / "qemu-system-x86_64"
    real.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    real.chmod(0o755)
    asked = ["-accel", "kvm", "-m", "1024", "-accel", "tcg", "-append", "a b", "-enable-kvm"]
    done = subprocess.run(["qemu-system-x86_64", *asked], capture_output=True, text=True,
                          env={"PATH": f"{TOP}/scripts/tcg:{tmp_path}:/usr/bin:/bin"})
    assert done.stdout.splitlines() == ["-accel", "tcg", "-m", "1024", "-append", "a b"]


@pytest.mark.parametrize("outcomes, whole, counts", [
    ({"a": "passed", "b": "passed"}, True, (2, 0)),
    ({"a": "passed", "b": "skipped"}, True, (1, 1)),
    ({"a": "passed", "b": "failed"}, False, (1, 1)),
    ({"a": "passed"}, False, (1, 1)),
    ({}, True, (0, 1)),
    ({}, False, (0, 1)),
])
def test_tally(outcomes, whole, counts, capsys):
    tally = run_tests.Tally()
    tally.add_outcomes("suite", outcomes, whole)
    assert tally.summary() == (counts[1] == 0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"{counts[0]} passed, {counts[1]} failed"
    assert len([x for x in lines if "FAILED" in x]) == counts[1]


def pytest_of(path, sample, *options):
    """Runs tests with the project's conftest.py, in a folder of their own."""
    (path / "conftest.py").write_text((TOP / "tests/conftest.py").read_text())
    (path / "test_sample.py").write_text(sample)
    # Without options that the user has set for pytest.
    env = {k: v for k, v in os.environ.items() if k != "PYTEST_ADDOPTS"}
    return subprocess.run([sys.executable, "-m", "pytest", *options, "."], cwd=path, env=env, timeout=100,
                          stdout=subprocess.PIPE, text=True)


def test_outcomes_of_pytest(tmp_path):
    """A test whose teardown fails has failed; so has one that is skipped."""
    done = pytest_of(
        tmp_path, "import pytest\n"
        "@pytest.fixture\n"
        "def late():\n    yield\n    assert False\n"
        "def test_good(): pass\n"
        "def test_bad(): raise OSError('it is\\n' + 20 * 'bad\\n' + 'the end')\n"
        "def test_skipped(): pytest.skip()\n"
        "def test_late(late): pass\n", "--no-summary", "--at-once", "--outcomes=out")
    assert done.returncode == 1
    told = [x.strip("_ ") for x in done.stdout.split("\n") if "FAILED" in x]
    assert told == ["FAILED test_sample.py::test_bad (call)", "FAILED test_sample.py::test_late (teardown)"]
    assert len(re.findall("^E +(OSError: it is|assert False)", done.stdout, re.M)) == 2
    assert {k.split("::")[1]: v for k, v in json.loads((tmp_path / "out").read_text())["outcomes"].items()} == {
        "test_good": "passed", "test_bad": "failed: OSError: it is" + 4 * "\nbad" + "\n..." + 7 * "\nbad" + "\nthe end",
        "test_skipped": "skipped", "test_late": "failed: assert False"}


def test_known_failures_of_pytest(tmp_path):
    """A test that is marked to fail passes as long as it fails, and is named.

    A marked test that passes has failed. So has one whose teardown fails, and one that fails by a
    call of pytest.xfail() alone."""
    (tmp_path / "pytest.ini").write_text((TOP / "tests/pytest.ini").read_text())
    done = pytest_of(
        tmp_path, "import pytest\n"
        "known = pytest.mark.xfail(reason='row 1')\n"
        "@pytest.fixture\n"
        "def late():\n    yield\n    assert False\n"
        "@known\ndef test_known(): assert False\n"
        "@known\ndef test_mended(): pass\n"
        "@known\ndef test_late(late): assert False\n"
        "def test_says_so(): pytest.xfail('row 1')\n", "--outcomes=out")
    assert done.returncode == 1
    found = json.loads((tmp_path / "out").read_text())
    assert {k.split("::")[1]: v.partition(":")[0] for k, v in found["outcomes"].items()} == {
        "test_known": "passed", "test_mended": "failed", "test_late": "failed", "test_says_so": "failed"}
    assert "test_sample.py::test_known fails as is known: row 1" in found["warnings"]


SAMPLE = """
import pytest
import warnings
from pathlib import Path

def runs(name):
    path = Path(__file__).with_name(name)
    path.write_text(path.read_text() + "x" if path.exists() else "x")
    return len(path.read_text())

def test_good():
    warnings.warn("it took two")
    assert runs("good") == 1

def test_busy(): assert runs("busy") != 1, "not the first time"
"""
LEDGER = """
[[flake]]
name = "busy"
test = "vm/test_sample.py::test_busy"
error = "not the first"
cause = "The first run of all fails."

[[flake]]
name = "hung"
signature = "BootFailed"
cause = "The guest never came up at all."
"""


def run_sample(more, ledger, tmp_path, monkeypatch):
    """Runs a sample of tests like those in machines.

    Returns the tally, the machines, and the number of runs of each of two tests."""
    vm = tmp_path / "tests/vm"
    vm.mkdir(parents=True)
    (tmp_path / "tests/pytest.ini").write_text("[pytest]\n")
    (tmp_path / "tests/conftest.py").write_text((TOP / "tests/conftest.py").read_text())
    (vm / "conftest.py").write_text(
        "import pytest\n"
        "@pytest.hookimpl(wrapper=True)\n"
        "def pytest_runtest_makereport(item, call):\n"
        "    report = yield\n"
        "    report.final = 'defect' in item.name\n"
        "    report.signature = 'BootFailed' if 'hung' in item.name else None\n"
        "    return report\n")
    (vm / "test_sample.py").write_text(SAMPLE + more)
    monkeypatch.setattr(run_tests, "TOP", tmp_path)
    monkeypatch.setattr(run_tests, "ARTIFACTS", tmp_path / "artifacts")
    monkeypatch.setattr(run_tests.Machines, "options", lambda *_: [])
    monkeypatch.setattr(run_tests, "load", contextlib.nullcontext)
    tally = run_tests.Tally()
    machines = run_tests.Machines(flakes.read(ledger))
    tests = [f"vm/test_sample.py::{x}" for x in ("test_good", "test_busy", *re.findall(r"def (test_\w+)", more))]
    machines.run(jobs.Job("suite", "job", "release", tests))
    machines.add_to(tally)
    return tally, machines, *(len((vm / x).read_text()) for x in ("good", "busy"))


@pytest.mark.parametrize("more, counts, flaky", [
    ("", (2, 0), 1),
    ("def test_bad(): assert 0\n", (2, 1), 1),
    ("def test_hung(): assert runs('hung') != 1\n", (3, 0), 2),
    # It fails most of the time, so it is no flake.
    ("def test_hung(): assert runs('hung') > 9\n", (2, 1), 1),
    # A failure that is final is not excused, known or not.
    ("def test_hung_defect(): assert runs('hung') != 1\n", (2, 1), 1),
    ("def test_skipped(): pytest.skip()\n", (2, 1), 1),
    # The run that ends early has one failure more, and only failed tests are repeated.
    ("def test_end(): pytest.exit('end', 3)\n", (2, 1), 1),
], ids=("known", "bad", "signature", "often", "final", "skipped", "end"))
def test_failures_are_repeated(more, counts, flaky, tmp_path, monkeypatch, capsys):
    """A known flake is excused if it passes most of the time; other failures stay red."""
    tally, machines, good, busy = run_sample(more, LEDGER, tmp_path, monkeypatch)
    assert tuple(sum(x[i] for x in tally.suites) for i in (1, 2)) == counts
    assert good == 1 and busy == 1 + run_tests.Machines.TIMES and machines.flaky() == flaky
    tally.summary(machines.flaky())
    said = capsys.readouterr().out.splitlines()
    assert [x.strip() for x in said if "WARNING" in x] == ["WARNING vm/test_sample.py::test_good: it took two"]
    assert any("FLAKY vm/test_sample.py::test_busy: known as busy; 0 of 10 failed when it was repeated" in x
               for x in said)
    assert said[-2].startswith(f"{flaky} of those") and said[-1] == f"{counts[0]} passed, {counts[1]} failed"


def test_unknown_flake_is_red(tmp_path, monkeypatch, capsys):
    tally, machines, _, busy = run_sample("", "", tmp_path, monkeypatch)
    assert tally.suites[0][1:3] == (1, 1) and busy == 11 and machines.flaky() == 0
    tally.summary()
    assert "0 of 10 failed when it was repeated" in capsys.readouterr().out


def test_repetitions_end_when_their_time_is_over(tmp_path, monkeypatch, capsys):
    """A slow test is repeated until the time is over; the repetitions may be too few."""
    monkeypatch.setattr(run_tests, "REPEAT_SECONDS", 0)
    tally, machines, _, busy = run_sample("", LEDGER, tmp_path, monkeypatch)
    assert busy == 2 and machines.flaky() == 0 and tally.suites[0][1:3] == (1, 1)
    tally.summary()
    assert "0 of 1 failed when it was repeated" in capsys.readouterr().out


def test_many_failures_are_not_repeated(tmp_path, monkeypatch, capsys):
    more = "@pytest.mark.parametrize('x', range(9))\ndef test_many(x): assert runs('many') < 0\n"
    monkeypatch.setattr(run_tests.Machines, "REPEATED", 2)
    vm = tmp_path / "tests/vm"
    tally, _, _, busy = run_sample(more, LEDGER, tmp_path, monkeypatch)
    # test_many has no id of that name, so it was not run under it.
    assert sum(x[2] for x in tally.suites) >= 1 and busy in (1, 11)
    assert vm.exists() and "passed" not in capsys.readouterr().err


@pytest.mark.parametrize("entry", [
    "name = 'a'\ncause = 'one two three four five'",
    "name = 'a'\nsignature = 'BootFailed'\ncause = 'unknown'",
    "name = 'a'\ntest = 'b'\ncause = 'one two three four five'",
    "name = 'a'\nsignature = 'BootFailed'\ntest = 'b'\nerror = 'c'\ncause = 'one two three four five'",
    "name = 'a'\nsignature = 'BootFailed'\ncause = 'one two three four five'\nissue = 3",
])
def test_ledger_without_sense(entry):
    with pytest.raises(ValueError, match=r"flakes.toml: a"):
        flakes.read(f"[[flake]]\n{entry}\n")


def test_ledger():
    """Each signature in the ledger is one that the harness can recognize."""
    known = flakes.read((TOP / "tests/flakes.toml").read_text())
    assert len({x.name for x in known}) == len(known)
    source = "".join(x.read_text() for x in [TOP / "tests/vm/conftest.py", TOP / "scripts/rdsvm/node.py"])
    for flake in known:
        if flake.signature:
            assert re.search(rf'class {flake.signature}\(Environment\)|"{flake.signature}"', source), flake.name
        else:
            path, _, function = jobs.function_of(flake.test.replace("\\", "")).partition("::")
            assert f"def {function}(" in (TOP / "tests/vm" / path).read_text(), flake.name


@pytest.mark.parametrize("case, answer, excused", [
    ("map-freed_with_invalidate", ["ok", "moved, SUCCESS, arrived"], True),
    ("map-freed_with_invalidate", "failed: the region is in use", True),
    # The call failed, the operation was lost, and another case.
    ("map-freed_with_invalidate", ["EINVAL", "moved, SUCCESS, arrived"], False),
    ("map-freed_with_invalidate", ["ok", "unmoved, untold, lost, reset"], False),
    ("map-lives", ["ok", "moved, SUCCESS, arrived"], False),
    ("get-freed_with_invalidate", ["ok", "moved, SUCCESS, arrived"], False)])
def test_only_the_known_answers_of_c_rds_are_excused(case, answer, excused, tmp_path):
    known = flakes.read((TOP / "tests/flakes.toml").read_text())
    wanted = dict.fromkeys(("the call's", "the region's"), ["ok", "unmoved, REMOTE_ERROR, lost, reset"])
    (tmp_path / "pytest.ini").write_text((TOP / "tests/pytest.ini").read_text())
    pytest_of(tmp_path, f"def test(): assert {wanted | {'the call' + chr(39) + 's': answer}!r} == {wanted!r}",
              "--outcomes=out")
    text, = json.loads((tmp_path / "out").read_text())["outcomes"].values()
    found = flakes.known(known, f"vm/test_abi_rdma.py::test_abi_rdma[c-{case}]", text, {"signature": None, "final": False})
    assert bool(found) == excused, text


def test_plan_of_jobs():
    """A job of too many seconds is split between functions; own machines share a job."""
    known = jobs.Costs({"debug": {"test_a.py::a": 100.0, "test_b.py::b": 1.0}})
    tests = [(f"vm/test_a.py::a[{i}]", "rust") for i in range(4)]
    tests += [(f"vm/test_b.py::{x}", lab) for x, lab in (("b[1]", "rust"), ("b[2]", "rust"), ("c", "own b"), ("d", "own d"))]
    planned = jobs.plan("suite", "debug", tests, known, longest=210)
    assert [(x.name, len(x.tests), x.seconds) for x in planned] == [
        ("debug rust 1/2", 4, 460), ("debug rust 2/2", 2, 62), ("debug own machines", 2, 66.0)]
    assert [y for x in planned for y in x.tests] == [x for x, _ in tests]
    assert len(jobs.plan("suite", "debug", tests, known, longest=9999)) == 2
    # The default is longer for the debug kernel, where each job looks for leaks.
    known = jobs.Costs({x: {"test_a.py::a": 150.0, "test_b.py::b": 100.0} for x in jobs.LONGEST})
    assert [len(jobs.plan("suite", x, tests[:6], known)) for x in ("release", "debug")] == [2, 1]


def test_queue():
    """The longest job goes first, and jobs that come later are done, too."""
    done = []

    def run(job):
        done.append(job.name)
        if job.name == "long":
            queue.add([jobs.Job("", "late", "", seconds=9)])
            queue.close()

    queue = jobs.Queue(run)
    queue.add([jobs.Job("", x, "", seconds=y) for x, y in (("short", 1), ("long", 10), ("middle", 5))])
    queue.work()
    assert done == ["long", "late", "middle", "short"]


def of_cost(seconds):
    return jobs.Costs({"release": {"test_a.py::test_b": seconds}})


def test_each_costly_case_is_in_one_part():
    names = [f"vm/test_a.py::test_b[rust-{i}]" for i in range(300)]
    known = of_cost(jobs.CHEAP + 1)
    parts = [[x for x in names if run_tests.in_part("release", x, known, k, 3)] for k in (1, 2, 3)]
    assert sorted(sum(parts, [])) == sorted(names)
    assert all(70 < len(x) < 130 for x in parts)
    assert all(run_tests.in_part("release", x, known, 1, 1) for x in names)


def test_new_and_cheap_cases_are_in_each_part():
    assert jobs.UNKNOWN < jobs.CHEAP
    known = of_cost(jobs.CHEAP)
    assert all(run_tests.in_part("release", f"vm/test_a.py::test_{name}[{i}]", known, k, 9)
               for name in "bc" for i in range(9) for k in range(1, 10))


@pytest.mark.parametrize("flavor, subjects", [
    ("release", {"test_restart.py::test_rust_restarts"}),
    ("debug", {"test_credits.py", "test_failover.py"})])
def test_some_costly_cases_are_in_each_part(flavor, subjects, tmp_path):
    """Failover and flow control on the debug kernel, and a restart beside C RDS, cost little."""
    each, known = jobs.IN_EACH_PART[flavor], jobs.Costs()
    assert {x for x in subjects if any(f"vm/{x}" in case for case in each)} == subjects
    # They are in `make test`.
    path = tmp_path / "plan"
    subprocess.run([*run_tests.PYTEST, "-q", "--collect-only", f"--plan={path}", "tests/vm", f"--flavor={flavor}",
                    *collect.suites()[flavor][1:]], cwd=TOP, check=True, stdout=subprocess.DEVNULL)
    assert set(each) <= {name for name, _ in json.loads(path.read_text())}
    # A cheap case is there without the list.
    assert all(known.of(flavor, x) > jobs.CHEAP for x in each)
    assert sum(known.of(flavor, x) for x in each) < MOST_IN_EACH_PART[flavor]
    assert all(run_tests.in_part(flavor, x, known, k, 99) for x in each for k in range(1, 100))


def test_shards():
    planned = [jobs.Job("", str(i), "", seconds=i) for i in range(1, 10)]
    parts = [run_tests.part(planned, k, 3) for k in (1, 2, 3)]
    assert sorted(x.name for y in parts for x in y) == sorted(x.name for x in planned)
    assert max(sum(x.seconds for x in y) for y in parts) - min(sum(x.seconds for x in y) for y in parts) <= 2
    assert run_tests.shard("2/4") == (2, 4)
    for text in ("0/4", "5/4", "x", "1"):
        with pytest.raises(run_tests.argparse.ArgumentTypeError):
            run_tests.shard(text)


@pytest.mark.parametrize("option, wanted", [
    (None, {"host", "build release", "build release KUNIT=y", "build debug", "build debug KUNIT=y",
            "kunit release", "kunit debug", "in tree", "release rust,c not more", "debug rust not more"}),
    ("--debug-part=2/2", {"host", "build release", "build release KUNIT=y", "build debug", "build debug KUNIT=y",
            "kunit release", "kunit debug", "in tree", "release rust,c not more", "debug rust not more, part (2, 2)"}),
    ("--release-part=1/3", {"host", "build release", "build release KUNIT=y", "build debug", "build debug KUNIT=y",
            "kunit release", "kunit debug", "in tree", "release rust,c not more, part (1, 3)", "debug rust not more"}),
    ("--fast", {"host", "build release", "build release KUNIT=y", "kunit release", "release rust smoke"}),
    ("--long", {"build release", "build debug", "release rust more", "debug rust more",
                *(f"{flavor} rust {kind}, {name} {env}" for flavor in ("release", "debug")
                  for name, _, whole, env in jobs.OTHER_DEVICES for kind in ("some", "whole")[:1 + bool(whole)]),
                "made fuzz SECONDS=600", "made test-miri CRATES=tests/miri",
                f"made bench {' '.join(run_tests.COUNTED)}"}),
])
def test_selection(option, wanted, tmp_path, monkeypatch, capsys):
    """make test runs everything, on both kernels; make test-fast a few tests in machines."""
    ran = set()

    class Machines(run_tests.Machines):
        def plan(self, flavor, *which, tests=(), cases=(1, 1), suite="", env=None):
            impls = which[0].removeprefix("--impls=")
            if tests:
                kind = "some" if "not more" in which else "whole"
                return [jobs.Job(f"{flavor}, {suite}", f"{flavor} {impls} {kind}, {suite}", flavor, env=env)]
            part = f", part {cases}" if cases != (1, 1) else ""
            return [jobs.Job(flavor, f"{flavor} {impls} {which[-1]}{part}", flavor)]

        def run(self, job):
            ran.add(f"{job.name} {job.env}" if job.env else job.name)
            self.outcomes[job.suite][job.name] = "passed"

    def build(_tally, flavor, *more):
        ran.add(" ".join(("build", flavor, *more)))
        return True

    for name, stub in {"host": lambda _: ran.add("host"), "build": build, "make": lambda *_: True,
                       "made": lambda _, name, *what: ran.add(f"made {' '.join(what)}"),
                       "kunit": lambda _, flavor: ran.add(f"kunit {flavor}"), "ARTIFACTS": tmp_path / "artifacts",
                       "kunit_in_tree": lambda _: ran.add("in tree"), "Machines": Machines}.items():
        monkeypatch.setattr(run_tests, name, stub)
    monkeypatch.setattr(sys, "argv", ["run-tests.py", *[option] * bool(option)])
    monkeypatch.chdir(TOP)
    assert run_tests.main() == 0
    assert ran == wanted
    count = sum(" rust" in x for x in wanted)
    assert capsys.readouterr().out.splitlines()[-1] == f"{count} passed, 0 failed"


def test_threads_may_end(tmp_path):
    """While their children are looked for, once for each test."""
    done = pytest_of(
        tmp_path, "import threading, pytest\n"
        "end = threading.Event()\n"
        "def begin():\n    while not end.is_set(): threading.Thread(target=int).start()\n"
        "threading.Thread(target=begin, daemon=True).start()\n"
        "@pytest.mark.parametrize('n', range(300))\ndef test(n): pass\n"
        "def test_end(): end.set()\n")
    assert done.returncode == 0 and "301 passed" in done.stdout, done.stdout
