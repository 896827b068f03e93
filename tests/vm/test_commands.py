# SPDX-License-Identifier: GPL-2.0
"""make demo, make shell and make modules, run as users run them."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rdsvm import cluster
from rdsvm.cluster import PAIR, TOP

pytestmark = pytest.mark.flavors("release")
SECONDS = 300


def demo(**env):
    return subprocess.run(["make", "-s", "-C", TOP, "demo"], env={**os.environ, **env}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=SECONDS)


def test_demo():
    done = demo()
    assert done.returncode == 0, str(done)
    assert "all 20 pings were answered" in done.stdout
    assert len(re.findall(r"^ +\d+: \d+ usec$", done.stdout, re.M)) == 20, done.stdout
    # The kernel exists already: the second run takes less than a minute.
    assert "building Linux" not in done.stdout + done.stderr, str(done)
    # The tables of both nodes list the connections.
    for network, transport in (("10.10.0", "infiniband"), ("10.11.0", "tcp")):
        for node, own, peer in (("a", 1, 2), ("b", 2, 1)):
            row = rf"^  node {node} +{network}.{own} +{network}.{peer} +{transport} "
            assert re.search(row, done.stdout, re.M), (row, done.stdout)


@pytest.mark.long("release")
@pytest.mark.parametrize("unanswered", (1, 2), ids=("on-one-node", "on-both"))
def test_demo_without_an_answer(tmp_path, unanswered):
    """make demo prints a message and fails when pings fail."""
    program = tmp_path / "program.py"
    program.write_text(f"import sys\nsys.path.insert(0, {str(TOP / 'scripts')!r})\nimport demo\n"
                       "right = demo.ping\n"
                       "def ping(node, name, source, target):\n"
                       f"    return right(node, name, source, target if name == 'node b' and {unanswered} == 1"
                       " else '10.10.0.77')\n"
                       "demo.ping = ping\n"
                       "demo.PINGS = 1\nsys.exit(demo.main())\n")
    done = subprocess.run([sys.executable, program], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=SECONDS)
    assert done.returncode == 1, str(done)
    assert "some pings were not answered" in done.stdout


@pytest.mark.long("release")
def test_shell():
    """make shell gives a prompt, has the programs in its path, and ends."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp("make", ["make", "-s", "-C", str(TOP), "shell"])
    seen = b""

    def until(pattern):
        nonlocal seen
        deadline = time.monotonic() + SECONDS
        while not re.search(pattern, seen):
            assert select.select([terminal], [], [], deadline - time.monotonic())[0], seen.decode(errors="replace")
            try:
                seen += os.read(terminal, 65536)
            except OSError:
                break
        found = re.search(pattern, seen)
        assert found, seen.decode(errors="replace")
        seen = seen[found.end():]

    until(rb"rds_rust is loaded")
    until(rb"# ")
    os.write(terminal, f"rds-ping -c 1 -I {PAIR[0]} {PAIR[1]}; echo status $?\n".encode())
    until(rb"status 0")
    os.write(terminal, b"exit\n")
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def make(*arguments):
    return subprocess.run(["make", "-s", "-C", TOP, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=SECONDS)


@pytest.mark.long("release")
def test_modules_for_a_tree(tmp_path):
    """make modules accepts any prepared kernel tree, and make print-ko prints the path of the
    module."""
    tree = cluster.make_print("kdir", "release")
    done = make("modules", f"KDIR={tree}")
    assert done.returncode == 0, str(done)
    asked = make("print-ko", f"KDIR={tree}")
    machine = cluster.Machine("n", "rust", "release", tmp_path)
    assert asked.stdout.rstrip() != str(machine.module), "that is the one for the test kernel"
    machine.module = Path(asked.stdout.rstrip())
    try:
        machine.boot()
        cluster.must(machine.load())
    finally:
        machine.kill()


def test_modules_for_no_tree(tmp_path):
    done = make("modules", f"KDIR={tmp_path}")
    assert done.returncode != 0
    assert f"KDIR={tmp_path} is not a configured kernel tree" in done.stderr, str(done)
