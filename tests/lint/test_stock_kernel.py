# SPDX-License-Identifier: GPL-2.0
"""Messages before a build against a packaged kernel's headers that is not possible."""

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
RELEASE = "7.2.12+deb13-amd64"
RUSTC = "rustc 1.85.1 (4eb161250 2025-03-15) (built from a source tarball)"
BINDGEN = "bindgen 0.71.1"
CONFIG = f"""\
CONFIG_RUST=y
CONFIG_RUSTC_VERSION_TEXT="{RUSTC}"
CONFIG_BINDGEN_VERSION_TEXT="{BINDGEN}"
CONFIG_CC_VERSION_TEXT="some-gcc-14 (Debian 14.2.0-19) 14.2.0"
"""


FAILS = "#!/bin/sh\nexit 1\n"


def says(text):
    return f"#!/bin/sh\necho '{text}'\n"


class Machine:
    """Headers as Debian packages them, and programs before the machine's own."""

    def __init__(self, path):
        self.path, self.kdir, self.common = path, path / "headers", path / "common"
        for folder in (self.kdir / "include/config", self.common, path / "bin"):
            folder.mkdir(parents=True)
        self.write("headers/include/config/auto.conf", CONFIG)
        self.write("headers/include/config/kernel.release", f"{RELEASE}\n")
        self.write("headers/Makefile", f"include {self.common}/Makefile\n")
        sysroot = path / "sysroot"
        self.write("sysroot/lib/rustlib/src/rust/library/core/src/lib.rs", "")
        self.programs(dpkg_query=says("7.2.12-1"), bindgen=says(BINDGEN), some_gcc_14=says("gcc"), apt_get=FAILS, apt_cache=FAILS,
                      rustc=f'#!/bin/sh\n[ "$1" = --print ] && echo {sysroot} || echo "{RUSTC}"\n')

    def write(self, name, text):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def programs(self, **texts):
        for name, text in texts.items():
            path = self.path / "bin" / name.replace("_", "-")
            path.write_text(text)
            path.chmod(0o755)

    def run(self, kdir=None, *options):
        # The scripts prepend a folder of their own to PATH, so variables name the programs.
        env = {**os.environ, "PATH": f"{self.path}/bin:/usr/bin:/bin", "RDS_CACHE": str(self.path / "cache"),
               "RUSTC": f"{self.path}/bin/rustc", "BINDGEN": f"{self.path}/bin/bindgen"}
        return subprocess.run(["bash", TOP / "scripts/stock-kernel.sh", *options, kdir or self.kdir], env=env,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)

    def refusal(self, kdir=None, *options):
        done = self.run(kdir, *options)
        assert done.returncode == 1 and done.stdout == "", str(done)
        return done.stderr


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_tree_with_the_metadata_is_taken_as_it_is(machine):
    machine.write("headers/rust/libkernel.rmeta", "")
    assert machine.run().stdout == f"{machine.kdir}\n"


def test_no_headers(machine):
    assert "the kernel's headers are missing" in machine.refusal(machine.path / "none")
    assert "is not a configured kernel tree" in machine.refusal(machine.common)


def test_kernel_without_rust(machine):
    machine.write("headers/include/config/auto.conf", "CONFIG_NET=y\n")
    assert f"Linux {RELEASE} was built without Rust" in machine.refusal()


def test_headers_of_another_distribution(machine):
    machine.programs(dpkg_query="#!/bin/sh\nexit 1\n")
    told = machine.refusal()
    assert "rust/libkernel.rmeta" in told and f"linux-lib-rust-{RELEASE}" in told


@pytest.mark.parametrize("program, text, wanted, package", [
    ("rustc", "rustc 1.85.1 (4eb161250 2025-03-15)", RUSTC, "rustc"),
    ("bindgen", "bindgen 0.72.1", BINDGEN, "bindgen"),
])
def test_another_tool(machine, program, text, wanted, package):
    """The same number is not enough: symbols depend on the build of the compiler, too."""
    machine.programs(**{program: says(text)})
    told = machine.refusal()
    assert f"was built with {wanted}, and here is {text}" in told
    assert f"Install the package {package} from the suite of the kernel" in told


def test_no_compiler_for_c(machine):
    machine.write("headers/include/config/auto.conf", CONFIG.replace("some-gcc-14", "x86_64-linux-gnu-gcc-99"))
    assert "x86_64-linux-gnu-gcc-99, which is missing: install the package gcc-99" in machine.refusal()


def test_no_source_of_the_library(machine):
    (machine.path / "sysroot/lib/rustlib/src/rust/library/core/src/lib.rs").unlink()
    assert "install the package rust-src" in machine.refusal()


def test_no_source_of_that_version(machine):
    assert "apt does not offer linux-source-7.2 7.2.12-1, the source of" in machine.refusal()


def archive(names, mode):
    """Returns a tar archive with these files: {name: content}."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        for name, data in names.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


SYMBOLS = {"core": "_RNvA", "helpers": "rust_helper_b", "bindings": "_RNvC", "kernel": "_RNvD"}


@pytest.fixture
def packaged(machine):
    """A machine with a source package, and with a make that builds what it should."""
    source = archive({f"linux-source-7.2/{x}/file": b"" for x in ("rust", "scripts", "drivers/base", "drivers/android", "net")},
                     "w:xz")
    (machine.path / "source.tar").write_bytes(archive({"./usr/src/linux-source-7.2.tar.xz": source}, "w"))
    exports = " ".join(f"echo 'EXPORT_SYMBOL_RUST_GPL({x});' >rust/exports_{name}_generated.h;" for name, x in SYMBOLS.items())
    machine.programs(
        apt_cache='#!/bin/sh\n[ "$*" = "show linux-source-7.2=7.2.12-1" ]\n',
        apt_get=f"#!/bin/sh\necho fetched >>{machine.path}/fetched; touch linux-source-7.2_7.2.12-1_all.deb\n",
        dpkg_deb=f"#!/bin/sh\ncat {machine.path}/source.tar\n",
        make=f'#!/bin/sh\ncd "$2" && mkdir rust && {exports} echo "$@" >{machine.path}/made\n')
    for folder in ("common/arch", "common/include", "headers/scripts", "headers/tools"):
        machine.write(f"{folder}/file", "")
    machine.write("common/Makefile", "")
    machine.write("headers/Module.symvers", "".join(f"0x0\t{x}\tvmlinux\tEXPORT_SYMBOL_GPL\t\n"
                                                   for x in (*SYMBOLS.values(), "kfree")))
    return machine


def test_crates_are_built_once_and_elsewhere(packaged):
    before = sorted(packaged.kdir.rglob("*"))
    out = Path(packaged.run().stdout.strip())
    assert out.name == "obj" and out.is_relative_to(packaged.path / "cache")
    assert not (out.parent / "src/net").exists() and (out.parent / "src/drivers/android/file").exists()
    assert f"RUSTC={packaged.path}/bin/rustc" in (packaged.path / "made").read_text()
    assert packaged.run().stdout.strip() == str(out)
    assert (packaged.path / "fetched").read_text() == "fetched\n" and sorted(packaged.kdir.rglob("*")) == before


@pytest.mark.parametrize("line", ("", "0x0\t_RNvE\tvmlinux\tEXPORT_SYMBOL_GPL\t\n"), ids=("one-more", "one-less"))
def test_other_symbols(packaged, line):
    """Nothing is printed if the kernel exports other symbols, this time or the next."""
    rest = "".join(f"0x0\t{x}\tvmlinux\tEXPORT_SYMBOL_GPL\t\n" for x in list(SYMBOLS.values())[not line:])
    packaged.write("headers/Module.symvers", rest + line)
    for _ in range(2):
        assert "1 differ from those that were built" in packaged.refusal()


def test_nothing_is_fetched_if_only_asked(packaged, monkeypatch):
    monkeypatch.setenv("SETUP", "check")
    assert "have not been built yet" in packaged.refusal()
    assert not (packaged.path / "fetched").exists()


def test_source_that_cannot_be_fetched(packaged):
    packaged.programs(apt_get=FAILS)
    assert "could not be fetched. Without a network: install that package" in packaged.refusal()


class TestCheck:
    """--check prints the errors of a build, and makes nothing."""

    def test_all_is_there(self, packaged):
        done = packaged.run(None, "--check")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert not (packaged.path / "fetched").exists() and not (packaged.path / "made").exists()

    def test_crates_that_are_built_need_no_source(self, packaged):
        packaged.run()
        packaged.programs(apt_cache=FAILS)
        assert packaged.run(None, "--check").returncode == 0

    def test_no_source(self, machine):
        assert "apt does not offer linux-source-7.2 7.2.12-1" in machine.refusal(None, "--check")

    def test_another_rustc(self, machine):
        machine.programs(rustc=says("rustc 1.90.0 (a)"))
        assert "and here is rustc 1.90.0 (a)" in machine.refusal(None, "--check")

    def test_a_tree_with_the_metadata(self, machine):
        machine.write("headers/rust/libkernel.rmeta", "")
        assert machine.run(None, "--check").returncode == 0
        machine.programs(rustc=says("rustc 1.90.0 (a)"))
        assert f"was built with {RUSTC}, which is not in PATH" in machine.refusal(None, "--check")
