# SPDX-License-Identifier: GPL-2.0
"""What people are told where something is missing that the set-up needs, and what the print targets print."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
# What the scripts need of any machine.
BASICS = ("bash", "cat", "cut", "dirname", "env", "grep", "head", "mkdir", "realpath", "sed", "sha256sum", "tail")
INSTALLED = "#!/bin/sh\necho ii\n"


@pytest.fixture
def machine(tmp_path):
    """Runs a script where there is nothing but the basics and these programs; returns what people see."""
    def run(script, *arguments, **programs):
        tools = tmp_path / "bin"
        tools.mkdir()
        for name in BASICS:
            (tools / name).symlink_to(shutil.which(name))
        for name, text in programs.items():
            path = tools / name.replace("_", "-")
            path.write_text(text)
            path.chmod(0o755)
        # The scripts put a place of their own in front: that of the compiler.
        done = subprocess.run([tools / "bash", "-c", f'. {TOP}/scripts/lib.sh; PATH={tools}; . "$0"',
                               TOP / "scripts" / script, *arguments],
                              env={"PATH": str(tools), "HOME": str(tmp_path), "LLVM_BIN": "/none"},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert done.returncode != 0 and done.stdout == "", str(done)
        return done.stderr

    return run


def test_no_apt(machine):
    told = machine("setup.sh", dpkg_query="#!/bin/sh\nexit 1\n")
    assert "these Debian packages are missing and there is no apt-get here: clang-19 " in told, told


def test_not_root(machine):
    told = machine("setup.sh", dpkg_query="#!/bin/sh\nexit 1\n", apt_get="#!/bin/sh\nexit 1\n",
                   id="#!/bin/sh\necho 1000\n")
    assert "these packages are missing; as root: apt-get install clang-19 " in told, told


def test_one_package_is_missing(machine):
    told = machine("setup.sh", dpkg_query='#!/bin/sh\n[ "$4" != bc ] && echo ii\n')
    assert ": bc; and rustc" in told, told


def test_no_rust(machine):
    told = machine("setup.sh", dpkg_query=INSTALLED)
    assert "rustc and cargo (1.85 or newer) are missing: install rustup" in told, told


def test_old_rust(machine):
    told = machine("setup.sh", dpkg_query=INSTALLED, cargo="#!/bin/sh\n", rustc="#!/bin/sh\necho rustc 1.84.1\n")
    assert "rustc 1.84.1 is too old, 1.85 or newer is needed" in told, told


def test_no_rustfmt(machine):
    told = machine("setup.sh", dpkg_query=INSTALLED, cargo="#!/bin/sh\n", rustc="#!/bin/sh\necho rustc 2.1.0\n",
                   clippy_driver="#!/bin/sh\n")
    assert "rustfmt is missing: 'rustup component add rustfmt clippy'" in told, told


def test_all_is_told_at_once(machine):
    told = machine("setup.sh", dpkg_query='#!/bin/sh\n[ "$4" != bc ] && echo ii\n', apt_get="#!/bin/sh\nexit 1\n",
                   id="#!/bin/sh\necho 1000\n")
    assert "as root: apt-get install bc; and rustc and cargo (1.85 or newer) are missing" in told, told


def test_no_kernel_source(machine):
    told = machine("fetch-kernel.sh")
    assert "no apt-get here to get the Linux 7.2 source with: KSRC=DIR" in told, told


def test_no_mirror(machine):
    nothing = "#!/bin/sh\nexit 0\n"
    told = machine("fetch-kernel.sh", apt_get=nothing, dpkg_deb=nothing)
    assert "apt knows no mirror; run 'apt-get update'" in told, told


def test_kernel_source_that_is_there(tmp_path):
    def fetch():
        return subprocess.run([TOP / "scripts/fetch-kernel.sh"], env={**os.environ, "KSRC": str(tmp_path)},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)

    assert f"KSRC={tmp_path} is not a kernel source tree" in fetch().stderr
    (tmp_path / "Makefile").touch()
    assert fetch().stdout == f"{tmp_path}\n"


@pytest.mark.parametrize("status", (0, 3))
def test_long_steps_say_how_far_they_are(tmp_path, status):
    program = f'. {TOP}/scripts/lib.sh; run_logged step sh -c "echo half; sleep 2; echo whole; exit {status}"'
    done = subprocess.run(["bash", "-c", program], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env={**os.environ, "RDS_CACHE": str(tmp_path), "RDS_TICK": "0.1"})
    assert "== still at step: half\n" in done.stderr and done.stdout == ""
    assert done.returncode == (1 if status else 0)
    assert ("error: step failed" in done.stderr) == bool(status)


@pytest.mark.parametrize("flavor", ("release", "debug"))
@pytest.mark.parametrize("what, end", (("kdir", ""), ("ko", "/rds_rust.ko")))
def test_print(flavor, what, end):
    """One line, and nothing else."""
    done = subprocess.run(["make", "-s", "-C", TOP, f"print-{what}", f"FLAVOR={flavor}"],
                          env={k: v for k, v in os.environ.items() if not k.startswith("MAKE")},
                          check=True, capture_output=True, text=True)
    line, = done.stdout.splitlines()
    assert done.stdout == line + "\n"
    assert line.startswith("/") and flavor in line and line.endswith(end), line
