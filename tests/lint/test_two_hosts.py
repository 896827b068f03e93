# SPDX-License-Identifier: GPL-2.0
"""tools/two-hosts.sh with programs in place of the tools: its steps, its verdicts and its report.
"""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools/two-hosts.sh"
TOOLS = ("rds-ping", "rds-verify", "rds-stress", "rds-info")
HERE, THERE = "192.0.2.1", "192.0.2.2"


@pytest.fixture
def run(tmp_path):
    """Runs the script with tools that note their arguments, and fail if these contain a text."""
    bin, calls = tmp_path / "bin", tmp_path / "calls"
    bin.mkdir()
    for name in TOOLS:
        (bin / name).write_text(f'#!/bin/sh\necho "{name} $*" >>"{calls}"\n'
                                'case "$*" in *"$FAIL"*) echo "it failed"; exit 3 ;; esac\n')
        (bin / name).chmod(0o755)
    # The log of the host is none of the test's business.
    (bin / "dmesg").write_text("#!/bin/sh\n")
    (bin / "dmesg").chmod(0o755)

    def call(*options, fail="no such text"):
        calls.write_text("")
        done = subprocess.run([SCRIPT, "-b", bin, *options, HERE, THERE, tmp_path / "report"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              env={**os.environ, "FAIL": fail, "PATH": f"{bin}:{os.environ['PATH']}"})
        report = tmp_path / "report/report.txt"
        return done, report.read_text().splitlines() if report.exists() else [], calls.read_text().splitlines()

    return call


def test_all_steps_pass(run):
    done, report, calls = run("-n", "400", "-s", "7")
    assert done.returncode == 0, done.stdout
    assert not [x for x in report if x.startswith("FAIL")]
    assert report[-1] == f"{sum(x.startswith('PASS') for x in report)} passed, 0 failed"
    for ends in ((HERE, THERE), (THERE, HERE)):
        assert any(x.startswith("rds-ping") and x.endswith(f"-I {ends[0]} {ends[1]}") for x in calls), calls
        assert any(f"--bind {ends[0]}" in x and f"--to {ends[1]}" in x and "boundary" in x for x in calls), calls
    assert any(x.startswith("rds-stress") and "--atomics" in x and "-T 7" in x for x in calls)


def test_addresses_of_ipv6_have_brackets(run, monkeypatch):
    monkeypatch.setitem(globals(), "HERE", "fd00::1")
    _, _, calls = run()
    assert any("--bind [fd00::1]:4100" in x for x in calls), calls


def test_a_failed_step_is_reported(run):
    """The other steps still run."""
    done, report, calls = run(fail="--atomics")
    assert done.returncode == 1
    assert [x for x in report if x.startswith("FAIL")] == ["FAIL  atomics (status 3)"]
    assert "      it failed" in report
    assert report[-1].endswith(" passed, 1 failed")


def test_the_other_end_may_fail_alone(run):
    done, report, _ = run(fail=f"--bind {THERE}:4116 --to {HERE}:4100 --timeout 120 --count 2000 --sizes mixed")
    assert done.returncode == 1
    assert [x for x in report if x.startswith("FAIL")] == ["FAIL  messages of mixed bytes (status 3)"]


def test_a_silent_host_ends_the_test(run):
    done, report, calls = run(fail=f"-I {HERE}")
    assert done.returncode == 1
    assert report[-1] == "1 passed, 1 failed"
    assert not [x for x in calls if x.startswith("rds-verify")]


def test_a_disturbance(run, tmp_path):
    done, report, _ = run("-x", f"touch {tmp_path}/disturbed", "-x", "exit 4")
    assert (tmp_path / "disturbed").exists()
    assert f"PASS  disturbance -x touch {tmp_path}/disturbed" in report
    assert "FAIL  disturbance -x exit 4 (status 4)" in report
    assert "PASS  traffic after disturbance -x exit 4" in report
    assert done.returncode == 1


# An address on the interface of the file `at`, with what the script asks and does.
IP = """#!/bin/sh
echo "ip $*" >>"{folder}/asked"
at=$(cat "{folder}/at")
case "$*" in
"-o addr show to {here}" | "-o addr show dev $at to {here}") echo "2: $at inet {here}/24 scope global $at" ;;
"addr del {here}/24 dev $at") echo nowhere >"{folder}/at" ;;
"addr add {here}/24 dev "*) echo "$5" >"{folder}/at" ;;
"link set "*) ;;
esac
"""


@pytest.fixture
def interfaces(tmp_path, run):
    """Replaces the commands for interfaces of the host. Yields a function that returns changes."""
    for name, text in {"ip": IP.format(folder=tmp_path, here=HERE), "arping": "#!/bin/sh\n",
                       "sleep": "#!/bin/sh\n"}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "at").write_text("eth0\n")
    asked = tmp_path / "asked"
    return lambda: [x for x in asked.read_text().splitlines() if " show " not in x]


def test_an_interface_goes_down_and_up(run, interfaces):
    _, report, _ = run("-l", "eth7")
    assert interfaces() == ["ip link set eth7 down", "ip link set eth7 up"]
    assert "PASS  disturbance -l eth7" in report
    assert "PASS  traffic after disturbance -l eth7" in report


def test_an_address_moves_and_returns(run, interfaces):
    _, report, _ = run("-f", "eth7")
    assert interfaces() == [f"ip addr {how} {HERE}/24 dev {netdev}" for how, netdev in (
        ("del", "eth0"), ("add", "eth7"), ("del", "eth7"), ("add", "eth0"))]
    assert "PASS  disturbance -f eth7" in report


def test_an_address_that_is_nowhere(run, interfaces, tmp_path):
    (tmp_path / "at").write_text("\n")
    _, report, _ = run("-f", "eth7")
    assert [x for x in report if x.startswith("FAIL")] == ["FAIL  disturbance -f eth7 (status 1)"]


def test_a_driver_of_no_adapter(run):
    """The number is that of no PCI device."""
    _, report, _ = run("-u", "ffff:ff:1f.7")
    assert [x for x in report if x.startswith("FAIL")] == ["FAIL  disturbance -u ffff:ff:1f.7 (status 1)"]


@pytest.mark.parametrize("arguments", ((), ("-z",), ("-n",)))
def test_a_wrong_command_line(arguments):
    done = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Usage: two-hosts.sh" in done.stderr
