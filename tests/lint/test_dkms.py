# SPDX-License-Identifier: GPL-2.0
"""dkms with a test's own tree builds the module by make modules, and skips other kernels."""

import os
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
VERSION = (TOP / "VERSION").read_text().strip()
CONFIGURED = ("CONFIG_RUST=y", "CONFIG_INFINIBAND_ADDR_TRANS=y", "CONFIG_RUSTC_VERSION_TEXT=rustc 1.90.0 (a)")
# A kernel's Makefile that checks its arguments, and makes a file that dkms takes for a module.
KERNEL = """
modules:
	test '$(M)' && test -e '$(M)/Kbuild' && test -e '$(M)/rds_core.rs'
	echo 'int x;' | gcc -g -c -x c - -o $(MO)/rds_rust.ko
"""
PROGRAMS = {"rustc": "echo 'rustc 1.90.0 (a)'", "bindgen": "echo bindgen 0.72.1"}


class Dkms:
    def __init__(self, top):
        self.top, self.tree, self.sources, self.kdir = top, top / "dkms", top / "src", top / "kdir"
        self.tree.mkdir()
        # The commands of the package and of "make install-source".
        subprocess.run(["scripts/install.sh", "source"], cwd=TOP, env={**os.environ, "DESTDIR": str(top / "root")},
                       check=True)
        (top / "root/usr/src").rename(self.sources)
        self.configure(CONFIGURED)
        (self.kdir / "rust").mkdir()
        (self.kdir / "rust/libkernel.rmeta").touch()
        (self.kdir / "Makefile").write_text(KERNEL)
        (top / "bin").mkdir()
        for name, text in PROGRAMS.items():
            self.program(name, text)

    def program(self, name, text):
        path = self.top / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def configure(self, lines):
        for path in (self.kdir / ".config", self.kdir / "include/config/auto.conf"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{x}\n" for x in lines))

    def environment(self):
        """Returns that of an installation: without HOME, and without options of another make."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE") and k not in ("HOME", "BINDGEN")}
        return env | {"PATH": f"{self.top}/bin:{env['PATH']}:/usr/sbin:/sbin", "RDS_CACHE": str(self.top / "cache")}

    def run(self, action, kernel="7.2.99-test", arch="x86_64"):
        """Runs dkms as an installation does."""
        return subprocess.run(
            ["dkms", action, f"rds-rust/{VERSION}", "--dkmstree", self.tree, "--sourcetree", self.sources, "-k", kernel,
             "-a", arch, "--kernelsourcedir", self.kdir], env=self.environment(), capture_output=True, text=True,
            stdin=subprocess.DEVNULL)

    def build(self, **options):
        added = self.run("add")
        assert added.returncode == 0, str(added)
        return self.run("build", **options)

    def log(self):
        path = self.tree / f"rds-rust/{VERSION}/build/make.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def dkms(tmp_path):
    return Dkms(tmp_path)


def test_build(dkms):
    done = dkms.build()
    assert done.returncode == 0, f"{done} {dkms.log()}"
    module, = dkms.tree.rglob("rds_rust.ko*")
    assert module.parent == dkms.tree / f"rds-rust/{VERSION}/7.2.99-test/x86_64/module"
    assert dkms.run("remove").returncode == 0
    assert not list(dkms.tree.rglob("rds_rust.ko*"))


def test_caches_of_removed_kernels_are_dropped(dkms):
    for name in ("stock-7.2.0+gone-amd64-0123456789ab", "stock-root-trixie-0123456789ab"):
        (dkms.top / "cache" / name).mkdir(parents=True)
    assert dkms.build().returncode == 0
    assert [x.name for x in (dkms.top / "cache").glob("stock-*")] == ["stock-root-trixie-0123456789ab"]


@pytest.mark.parametrize("kernel", ("7.2-rc1", "7.3.4+deb13-amd64"))
def test_kernels_that_are_built_for(kernel, dkms):
    done = dkms.build(kernel=kernel)
    assert done.returncode == 0, f"{done} {dkms.log()}"


@pytest.mark.parametrize("kernel", ("7.20.1", "6.7.2"))
def test_other_kernels(kernel, dkms):
    """Other kernels are skipped, which has a status of its own."""
    assert dkms.build(kernel=kernel).returncode == 77


def test_kernels_without_rust(dkms):
    dkms.configure(CONFIGURED[1:])
    assert dkms.build().returncode == 77


def test_kernels_without_infiniband(dkms):
    """The module for them has no RDMA, which make modules tells."""
    told = "without RDMA, as the kernel has no CONFIG_INFINIBAND_ADDR_TRANS"
    for configured in (CONFIGURED, (CONFIGURED[0], CONFIGURED[2])):
        dkms.configure(configured)
        done = subprocess.run([dkms.sources / f"rds-rust-{VERSION}/scripts/dkms-build.sh", dkms.kdir], capture_output=True, text=True,
                              env=dkms.environment())
        assert done.returncode == 0 and (told in done.stderr) == (configured != CONFIGURED), done
    assert dkms.build().returncode == 0


def test_headers_without_rust(dkms):
    """The headers belong to no package, so there is no source of them."""
    (dkms.kdir / "rust/libkernel.rmeta").unlink()
    done = dkms.build()
    assert done.returncode == 77 and "lacks the metadata of the kernel's Rust crates" in done.stderr


def test_compiler_that_is_not_here(dkms):
    """A compiler of rustup is not in PATH while packages are installed."""
    dkms.program("rustc", "echo 'rustc 1.85.1 (b)'")
    done = dkms.build()
    assert done.returncode == 77 and "was built with rustc 1.90.0 (a), which is not in PATH" in done.stderr


def test_nothing_is_installed(dkms):
    """The log of the build names missing packages, for root as well."""
    for name in ("apt-get", "cargo"):
        dkms.program(name, f": >{dkms.top}/called")
    dkms.program("apt-cache", "exit 1")
    dkms.program("bindgen", "echo bindgen 0.71.0")
    assert dkms.build().returncode not in (0, 77)
    assert "error: bindgen 0.71.1 or newer is missing" in dkms.log()
    assert not (dkms.top / "called").exists()
