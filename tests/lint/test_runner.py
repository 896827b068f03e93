# SPDX-License-Identifier: GPL-2.0
"""The test runner counts what it is there to count: no failure gets lost on the way."""

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

import ktap  # noqa: E402

spec = importlib.util.spec_from_file_location("run_tests", TOP / "scripts/run-tests.py")
run_tests = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run_tests)

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
    """What kunit.py leaves behind, and how it ends, become counts."""
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
    """The wrapper for kunit.py takes accelerators away and hands on all else."""
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


def test_outcomes_of_pytest(tmp_path):
    """A test whose teardown fails has failed; so has one that is skipped."""
    (tmp_path / "conftest.py").write_text((TOP / "tests/conftest.py").read_text())
    (tmp_path / "test_sample.py").write_text(
        "import pytest\n"
        "@pytest.fixture\n"
        "def late():\n    yield\n    assert False\n"
        "def test_good(): pass\n"
        "def test_bad(): assert not list(range(99)), 'it is\\n' + 20 * 'bad\\n'\n"
        "def test_skipped(): pytest.skip()\n"
        "def test_late(late): pass\n")
    # Whatever options whoever runs the tests has asked for.
    env = {k: v for k, v in os.environ.items() if k != "PYTEST_ADDOPTS"}
    done = subprocess.run([sys.executable, "-m", "pytest", "--no-summary", "--at-once", "--outcomes=out", "."],
                          cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 1
    told = [x.strip("_ ") for x in done.stdout.split("\n") if "FAILED" in x]
    assert told == ["FAILED test_sample.py::test_bad (call)", "FAILED test_sample.py::test_late (teardown)"]
    assert len(re.findall("^E +(AssertionError: it is|assert False)", done.stdout, re.M)) == 2
    assert {k.split("::")[1]: v for k, v in json.loads((tmp_path / "out").read_text())["outcomes"].items()} == {
        "test_good": "passed", "test_bad": "failed: AssertionError: it is" + 7 * "\n  bad",
        "test_skipped": "skipped", "test_late": "failed: assert False"}


AGAIN = """
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

def test_busy(): assert runs("busy") == 2, "not the first time"
"""


@pytest.mark.parametrize("more, counts, runs", [
    ("", (2, 0), 2),
    ("def test_bad(): assert 0\n", (2, 1), 2),
    # Of these one may not be run again.
    ("def test_defect(): assert 0\n", (1, 2), 1),
    ("@pytest.mark.parametrize('x', range(3))\ndef test_many(x): assert 0\n", (1, 4), 1),
    ("def test_skipped(): pytest.skip()\n", (1, 2), 1),
    ("def test_end(): pytest.exit('end', 3)\n", (1, 1), 1),
], ids=("busy", "bad", "defect", "many", "skipped", "end"))
def test_once_more(more, counts, runs, tmp_path, monkeypatch, capsys):
    """What a busy machine may have made fail is run again, and only that."""
    vm = tmp_path / "tests/vm"
    vm.mkdir(parents=True)
    (tmp_path / "tests/pytest.ini").write_text("[pytest]\n")
    (tmp_path / "tests/conftest.py").write_text((TOP / "tests/conftest.py").read_text())
    (vm / "conftest.py").write_text(
        "import pytest\n"
        "@pytest.hookimpl(wrapper=True)\n"
        "def pytest_runtest_makereport(item, call):\n"
        "    report = yield\n"
        "    report.may_pass = 'defect' not in item.name\n"
        "    return report\n")
    (vm / "test_sample.py").write_text(AGAIN + more)
    monkeypatch.setattr(run_tests, "TOP", tmp_path)
    tally = run_tests.Tally()
    suite = run_tests.Pytest("suite", "prefix", "tests/vm").run()
    suite.run_again()
    suite.add_to(tally)
    assert tally.suites[0][1:3] == counts
    assert len((vm / "busy").read_text()) == runs and len((vm / "good").read_text()) == 1
    tally.summary()
    said = capsys.readouterr().out.splitlines()
    assert [x.strip() for x in said if "WARNING" in x] == ["WARNING vm/test_sample.py::test_good: it took two"]
    told = [x for x in said if "PASSED WHEN RUN AGAIN" in x]
    assert len(told) == runs - 1 and all("test_busy: failed: AssertionError: not the first time" in x for x in told)


@pytest.mark.parametrize("option, wanted", [
    (None, {"cargo", "tests/lint", "build release", "build debug", "kunit release", "kunit debug", "in tree",
            "tests/vm release not more", "tests/vm debug not more"}),
    ("--fast", {"cargo", "tests/lint", "build release", "kunit release"}),
    ("--more", {"build release", "build debug", "tests/vm release more", "tests/vm debug more"}),
])
def test_what_runs(option, wanted, monkeypatch, capsys):
    """make test runs everything, on both kernels; make test-fast no machine but those of KUnit."""
    ran = set()

    class Suite(run_tests.Pytest):
        def run(self):
            kernel = [x.removeprefix("--flavor=") for x in self.arguments if x.startswith("--flavor=")]
            ran.add(" ".join([self.arguments[0], *kernel, *self.arguments[-1:] * bool(kernel)]))
            self.outcomes, self.status = {"test": "passed"}, 0
            return self

    def build(_tally, flavor):
        ran.add(f"build {flavor}")
        return True

    for name, stub in {"cargo": lambda *_: ran.add("cargo"), "build": build, "make": lambda *_: True,
                       "kunit": lambda _, flavor: ran.add(f"kunit {flavor}"),
                       "kunit_in_tree": lambda _: ran.add("in tree"), "Pytest": Suite}.items():
        monkeypatch.setattr(run_tests, name, stub)
    monkeypatch.setattr(sys, "argv", ["run-tests.py", *[option] * bool(option)])
    monkeypatch.chdir(TOP)
    assert run_tests.main() == 0
    assert ran == wanted
    count = sum(x.startswith("tests/") for x in wanted)
    assert capsys.readouterr().out.splitlines()[-1] == f"{count} passed, 0 failed"
