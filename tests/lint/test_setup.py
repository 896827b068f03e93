# SPDX-License-Identifier: GPL-2.0
"""Messages about missing requirements of the set-up, and the output of the print targets."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
# Programs that the scripts need on any machine.
BASICS = ("bash", "cat", "cut", "dirname", "env", "grep", "head", "mkdir", "realpath", "sed", "sha256sum", "tail")
INSTALLED = "#!/bin/sh\necho ii\n"
WORKS = "#!/bin/sh\n"
FAILS = "#!/bin/sh\nexit 1\n"
NOBODY = "#!/bin/sh\necho 1000\n"
ROOT = "#!/bin/sh\necho 0\n"


@pytest.fixture
def tried(tmp_path):
    """Runs a script on a machine that has only the basics and these programs."""
    def run(script, *arguments, system="debian", env=(), **programs):
        tools = tmp_path / "bin"
        tools.mkdir()
        for name in BASICS:
            (tools / name).symlink_to(shutil.which(name))
        for name, text in programs.items():
            path = tools / name.replace("_", "-")
            path.write_text(text)
            path.chmod(0o755)
        (tmp_path / "os-release").write_text(f'NAME="Some system"\nID={system}\nVERSION_ID="1"\n')
        # The scripts prepend folders of their own to PATH, such as that of the compiler.
        return subprocess.run([tools / "bash", "-c", f'. {TOP}/scripts/lib.sh; PATH={tools}; . "$0"',
                               TOP / "scripts" / script, *arguments],
                              env={"PATH": str(tools), "HOME": str(tmp_path), "LLVM_ROOT": str(tmp_path / "llvm"),
                                   "OS_RELEASE": str(tmp_path / "os-release"), **dict(env)},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)

    return run


@pytest.fixture
def machine(tried):
    """Runs a script in the same way; it has to fail. Returns its messages."""
    def run(*arguments, **programs):
        done = tried(*arguments, **programs)
        assert done.returncode != 0 and done.stdout == "", str(done)
        return done.stderr

    return run


@pytest.fixture
def kernel(tmp_path):
    """Returns the path of a kernel tree with common configuration lines, and these ones."""
    def make(*lines):
        path = tmp_path / "kdir/include/config/auto.conf"
        path.parent.mkdir(parents=True)
        path.write_text("\n".join(("CONFIG_RUST=y", "CONFIG_RUSTC_VERSION_TEXT=rustc 1.90.0 (a)", *lines, "")))
        return tmp_path / "kdir"

    return make


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


def test_all_missing_parts_are_listed_at_once(machine):
    told = machine("setup.sh", dpkg_query='#!/bin/sh\n[ "$4" != bc ] && echo ii\n', apt_get="#!/bin/sh\nexit 1\n",
                   id="#!/bin/sh\necho 1000\n")
    assert "as root: apt-get install bc; and rustc and cargo (1.85 or newer) are missing" in told, told


@pytest.mark.parametrize("system", ("ubuntu", '"fedora"'))
def test_another_system_gets_a_list(system, machine, tmp_path):
    """The list comes before anything is installed."""
    told = machine("setup.sh", system=system, dpkg_query=FAILS, id=ROOT, apt_get=f"#!/bin/sh\n: >{tmp_path}/called\n")
    assert "this system is not Debian: clang-19 lld-19 " in told and "; and rustc and cargo" in told, told
    assert not (tmp_path / "called").exists()


@pytest.mark.parametrize("known, chosen", (("19 22", 19), ("20 22 9", 22), ("", 19)))
def test_a_suite_may_lack_the_version_of_clang(known, chosen, machine):
    packages = "".join(f"echo clang-{x}\n" for x in (*known.split(), "format", "format-99"))
    told = machine("setup.sh", dpkg_query=FAILS, apt_get=FAILS, id=NOBODY, apt_cache=f"#!/bin/sh\n{packages}")
    wanted = " ".join(f"{x}-{chosen}" for x in ("clang", "lld", "llvm", "libclang"))
    assert f"apt-get install {wanted}-dev " in told, told


def test_the_index_of_packages_may_be_empty(machine, tmp_path):
    """The versions of clang are known once the index has been fetched."""
    updated, installed = tmp_path / "updated", tmp_path / "installed"
    machine("setup.sh", dpkg_query=FAILS, id=ROOT, cargo=WORKS, rustc="#!/bin/sh\necho rustc 1.90.0\n", rustfmt=WORKS,
            clippy_driver=WORKS, apt_cache=f"#!/bin/sh\n[ ! -e {updated} ] || echo clang-21\n",
            apt_get=f"#!/bin/sh\n[ $1 != update ] || {{ : >{updated}; exit 0; }}\necho $* >{installed}\nexit 1\n")
    assert " clang-21 lld-21 llvm-21 libclang-21-dev " in installed.read_text()


@pytest.mark.parametrize("there, chosen", (("", 19), ("19 22", 19), ("14 20 21", 21), ("14", 19)))
def test_clang_that_is_installed(there, chosen, tmp_path):
    for version in there.split():
        path = tmp_path / f"llvm-{version}/bin/clang"
        path.parent.mkdir(parents=True)
        path.write_text(WORKS)
        path.chmod(0o755)
    done = subprocess.run(["bash", "-c", f'. {TOP}/scripts/lib.sh; echo "$LLVM_BIN"'], check=True, capture_output=True,
                          text=True, env={**os.environ, "LLVM_ROOT": str(tmp_path), "RDS_CACHE": str(tmp_path)})
    assert done.stdout == f"{tmp_path}/llvm-{chosen}/bin\n"


BUILDER = {"make": WORKS, "gcc": WORKS, "rustc": "#!/bin/sh\necho 'rustc 1.90.0 (a)'\n",
           "bindgen": "#!/bin/sh\necho bindgen 0.71.1\n"}


class TestBuild:
    """setup.sh --build: the requirements of make modules KDIR=, and no others."""

    def test_all_is_there(self, tried, kernel):
        done = tried("setup.sh", "--build", kernel(), **BUILDER)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), str(done)

    def test_no_tree(self, machine, tmp_path):
        assert f"error: KDIR={tmp_path} is not a configured kernel tree\n" == machine("setup.sh", "--build", tmp_path)

    def test_kernel_of_clang(self, machine, kernel):
        told = machine("setup.sh", "--build", kernel("CONFIG_CC_IS_CLANG=y"), id=NOBODY, apt_get=FAILS, **BUILDER)
        assert told.endswith("as root: apt-get install clang-19 lld-19 llvm-19\n"), told

    def test_kernel_of_gcc(self, machine, kernel):
        del (programs := dict(BUILDER))["gcc"]
        assert machine("setup.sh", "--build", kernel(), id=NOBODY, apt_get=FAILS, **programs).endswith("install gcc\n")

    @pytest.mark.parametrize("quote", ("", '"'))
    def test_another_rustc(self, quote, machine, kernel):
        text = f"CONFIG_RUSTC_VERSION_TEXT={quote}rustc 1.85.1 (b)(c){quote}"
        (tree := kernel()).joinpath("include/config/auto.conf").write_text(f"CONFIG_RUST=y\n{text}\n")
        told = machine("setup.sh", "--build", tree, **BUILDER)
        assert "error: the kernel was built by rustc 1.85.1 (b)(c), and a module has to be by the same: " \
            "here is rustc 1.90.0 (a); " in told, told

    def test_no_rust_in_the_kernel(self, machine, kernel):
        text = "CONFIG_RUSTC_VERSION_TEXT=rustc 1.90.0 (a)\n"
        (tree := kernel()).joinpath("include/config/auto.conf").write_text(text)
        assert "has no support for Rust (CONFIG_RUST)" in machine("setup.sh", "--build", tree, **BUILDER)

    def old_bindgen(self, version="0.70.9"):
        return {**BUILDER, "bindgen": f"#!/bin/sh\necho bindgen {version}\n", "id": NOBODY, "apt_get": FAILS}

    @pytest.mark.parametrize("version", ("0.71.1", "0.71.10", "0.72.0", "1.0.0"))
    def test_new_bindgen(self, version, tried, kernel):
        done = tried("setup.sh", "--build", kernel(), **self.old_bindgen(version))
        assert (done.returncode, done.stderr) == (0, ""), str(done)

    @pytest.mark.parametrize("version", ("0.70.9", "0.71.0", "0.8.0"))
    def test_bindgen_of_the_suite(self, version, machine, kernel):
        told = machine("setup.sh", "--build", kernel(), **self.old_bindgen(version),
                       apt_cache="#!/bin/sh\n[ $1 != policy ] || echo '  Candidate: 0.71.1-4'\n")
        assert told.endswith("apt-get install bindgen\n"), told

    def test_bindgen_that_is_built(self, machine, kernel):
        """Another bindgen is built if the suite's is too old. It needs a library when it runs."""
        told = machine("setup.sh", "--build", kernel(), cargo=WORKS, **self.old_bindgen(),
                       apt_cache="#!/bin/sh\n[ $1 != policy ] || echo '  Candidate: 0.60.1-1'\n")
        assert told.endswith("apt-get install libclang-19-dev\n"), told

    def test_no_bindgen(self, machine, kernel):
        told = machine("setup.sh", "--build", kernel(), **self.old_bindgen())
        assert told == "error: bindgen 0.71.1 or newer is missing: put it into PATH, or cargo, to build it\n"

    def test_check_installs_nothing(self, machine, kernel, tmp_path):
        del (programs := dict(BUILDER))["make"]
        told = machine("setup.sh", "--build", kernel(), env={"SETUP": "check"}, id=ROOT,
                       apt_get=f"#!/bin/sh\n: >{tmp_path}/called\n", **programs)
        assert told.endswith("as root: apt-get install make\n"), told
        assert not (tmp_path / "called").exists()

    def test_another_system(self, machine, kernel):
        told = machine("setup.sh", "--build", kernel("CONFIG_CC_IS_CLANG=y"), system="arch")
        assert "this system is not Debian: make clang-19 lld-19 llvm-19; and the kernel was built by" in told, told
        assert "here is no rustc" in told and "; and bindgen 0.71.1 or newer is missing" in told, told


def test_no_kernel_source(machine):
    told = machine("fetch-kernel.sh")
    assert "no apt-get here to get the source of Linux 7.3 7.2 with: KSRC=DIR" in told, told


def test_no_mirror(machine):
    nothing = "#!/bin/sh\nexit 0\n"
    told = machine("fetch-kernel.sh", apt_get=nothing, dpkg_deb=nothing)
    assert "apt knows no mirror of Debian; run 'apt-get update'" in told, told
    assert told.count("error: ") == 1, told


class TestSeries:
    """The source of Linux that is selected, with a mirror that has none, or these."""

    APT_GET = "#!/bin/sh\ncase $1 in indextargets) echo http://mirror ;; esac\n"
    FOUND = "#!/bin/sh\nfor last; do :; done\necho \"$last\" >>\"$HOME/asked\"\ncase $last in *%s*) echo found ;; esac\n"

    @pytest.fixture
    def asked(self, machine, tmp_path):
        """Returns the messages of fetch-kernel.sh, and the packages that it looked for."""
        def run(has, *cached, **env):
            for series in cached:
                path = tmp_path / ".cache/rds_rust" / f"linux-{series}"
                path.mkdir(parents=True)
                (path / ".complete").touch()
            # It fails at the end, as there is nothing to unpack.
            told = machine("fetch-kernel.sh", env=env, apt_get=self.APT_GET, apt_cache=self.FOUND % has, dpkg_deb=FAILS,
                           kill=WORKS, sleep=WORKS, tar=FAILS, tr=WORKS)
            path = tmp_path / "asked"
            return told, path.read_text().split() if path.exists() else []

        return run

    def test_of_the_first_series(self, asked):
        told, names = asked("linux-source-7.3")
        assert "fetching the source of Linux 7.3 " in told and len(names) == 1, (told, names)

    def test_of_the_next_one_if_the_mirror_has_moved_on(self, asked):
        told, names = asked("linux-source-7.2")
        assert "fetching the source of Linux 7.2 " in told and len(names) == 2, (told, names)

    def test_one_that_is_not_in_the_cache_before_one_that_is(self, asked):
        told, names = asked("linux-source-7.3", "7.2")
        assert "fetching the source of Linux 7.3 " in told, told

    def test_one_that_was_asked_for(self, asked):
        told, names = asked("linux-source-7.", KERNEL_SERIES="7.2")
        assert "fetching the source of Linux 7.2 " in told and len(names) == 1, (told, names)

    def test_no_series(self, asked):
        told, names = asked("linux-source-8.0")
        assert "the mirror has the source of none of Linux 7.3 7.2" in told and "KSRC=DIR" in told, told

    def test_another_series(self, asked):
        told, names = asked("linux-source-7.", KERNEL_SERIES="6.12")
        assert "KERNEL_SERIES=6.12 is not one that this module is for: 7.3 7.2" in told and not names, (told, names)


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


def printed(what, flavor, **env):
    """Returns a path that make prints. The output is one line, and nothing else."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("MAKE") and k != "CFI"}
    done = subprocess.run(["make", "-s", "-C", TOP, f"print-{what}", f"FLAVOR={flavor}"],
                          env={**inherited, **env}, check=True, capture_output=True, text=True)
    line, = done.stdout.splitlines()
    assert done.stdout == line + "\n"
    return line


@pytest.mark.parametrize("flavor", ("release", "debug"))
@pytest.mark.parametrize("what, end", (("kdir", ""), ("ko", "/rds_rust.ko")))
def test_print(flavor, what, end):
    line = printed(what, flavor)
    assert line.startswith("/") and flavor in line and line.endswith(end), line


def test_kernel_with_cfi_is_another_one():
    """It is beside the ordinary one, and so is the module for it and the one with KUnit suites."""
    for what in ("kdir", "mods", "ko"):
        assert "cfi" in printed(what, "release", CFI="1") and "cfi" not in printed(what, "release")
    assert printed("ko", "release", CFI="1", KUNIT="y").endswith("/cfi/release-kunit/rds_rust.ko")
