# SPDX-License-Identifier: GPL-2.0
"""make install and uninstall below a test's own root, and names for modprobe afterwards."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
RELEASE = "7.2.99-test"
CONFIGURED = ("modprobe.d/zz-rds_rust.conf", "modules-load.d/rds_rust.conf", "sysctl.d/rds_rust.conf")
PROGRAMS = ("rds-info", "rds-ping", "rds-stress", "rds-verify")
EXTRAS = {"two-hosts.sh", "rds.lua", "rds.rules.yml", "rds-metrics.service", "rds-metrics.timer", "sos_rds.py",
          *(x.name for x in (TOP / "tools/bpftrace").iterdir())}
PAGE = "usr/local/share/man/man7/rds_rust.7"
# A Makefile with the actions of the kernel's for a module outside its tree.
KERNEL = """
modules_install:
	install -D -m 644 $(MO)/rds_rust.ko $(INSTALL_MOD_PATH)/lib/modules/%s/$(INSTALL_MOD_DIR)/rds_rust.ko
	$(if $(INSTALL_MOD_STRIP),strip --strip-debug $(INSTALL_MOD_PATH)/lib/modules/%s/$(INSTALL_MOD_DIR)/rds_rust.ko)
	$(DEPMOD) nothing
""" % (RELEASE, RELEASE)
ALIASES = [*re.findall(r'"([^"]*)"', re.search(r"^    alias: \[(.*)\],$", (TOP / "rds_core.rs").read_text(), re.M)[1]),
           *re.findall(r'^MODULE_ALIAS\("(.*)"\);$', (TOP / "bindings/helpers_rdma.c").read_text(), re.M)]
# The command of the file: one if the kernel has this module, and another if not; it passes options.
CHOICE = re.compile(r"install if /sbin/modprobe -qn rds_rust; then exec /sbin/modprobe (.*) \$CMDLINE_OPTS; "
                    r"else exec /sbin/modprobe (.*) \$CMDLINE_OPTS; fi")
OURS, THEIRS = "/updates/rds_rust.ko", "/kernel/net/rds/rds.ko"


def environment():
    """Returns the environment without the options of a make that runs this test."""
    return {**{k: v for k, v in os.environ.items() if not k.startswith("MAKE")},
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}


class Machine:
    """A kernel's build tree, a module that was built for it, and a root with that kernel."""

    def __init__(self, top):
        self.kdir, self.built, self.root, self.programs = top / "kdir", top / "built", top / "root", top / "programs"
        self.modules = self.root / "lib/modules" / RELEASE
        for path in (self.kdir / "include/config", self.built, self.modules):
            path.mkdir(parents=True)
        (self.kdir / "include/config/kernel.release").write_text(RELEASE + "\n")
        (self.kdir / "Makefile").write_text(KERNEL)
        for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
            (self.modules / name).touch()
        self.module(self.built / "rds_rust.ko", *(f"alias={x}" for x in ALIASES), f"vermagic={RELEASE} SMP")
        # A module of another project.
        self.module(self.modules / "updates/other.ko")

    def module(self, path, *info):
        """Makes an object file with this information about itself."""
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f'"{x}\\0" ' for x in ("license=GPL", *info))
        source = f'__attribute__((section(".modinfo"), used)) static const char m[] = {text};'
        subprocess.run(["gcc", "-g", "-c", "-x", "c", "-", "-o", path], input=source, text=True, check=True)

    def c_rds(self):
        """Adds the modules of C RDS as the kernel's own tree has them."""
        self.module(self.modules / "kernel/net/rds/rds.ko", "name=rds", "alias=net-pf-21")
        self.module(self.modules / "kernel/net/rds/rds_rdma.ko", "name=rds_rdma", "depends=rds")

    def index(self):
        subprocess.run(["depmod", "-b", self.root, RELEASE], env=environment(), check=True)

    def make(self, target, root=None, **variables):
        """Runs a target that succeeds; returns its messages."""
        done = self.tried(target, root, **variables)
        assert done.returncode == 0, str(done)
        return done.stderr

    def tried(self, target, root=None, **variables):
        given = {"KDIR": self.kdir, "BUILD": self.built, "DESTDIR": root or self.root, **variables}
        return subprocess.run(["make", "-s", "-C", TOP, target, *(f"{k}={v}" for k, v in given.items())],
                              env=environment() | {"PROGRAMS": str(self.programs)}, capture_output=True, text=True)

    def make_programs(self):
        """Makes the files of "make programs", but fewer of them."""
        (self.programs / "tools/release").mkdir(parents=True)
        for name in PROGRAMS:
            shutil.copy2("/bin/true", self.programs / "tools/release" / name)
            for path in (f"man/man1/{name}.1", f"bash-completion/completions/{name}"):
                (self.programs / "share" / path).parent.mkdir(parents=True, exist_ok=True)
                (self.programs / "share" / path).write_text(name)

    def alone(self):
        """Installs the module without the files of dist/, as DKMS does."""
        self.make("install")
        (self.root / "usr/lib" / CONFIGURED[0]).unlink()

    def administrator(self, name, text):
        path = self.root / "etc/modprobe.d" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def load(self, *names):
        """Returns modprobe's actions for a name, as lines; options may be before it."""
        configured = [x for x in (self.root / "etc/modprobe.d", self.root / "usr/lib/modprobe.d") if x.is_dir()]
        done = subprocess.run(
            ["modprobe", "-d", self.root, "-S", RELEASE, *(f"--config={x}" for x in configured),
             "--show-depends", *names], env=environment(), capture_output=True, text=True)
        return [x.strip() for x in done.stdout.splitlines()]

    def final(self, name):
        """Returns the last action for a name, with the commands for other names followed."""
        options = []
        for _ in range(5):
            line, = self.load(*options, name)
            chosen = CHOICE.fullmatch(line)
            if not chosen:
                return line.removeprefix(f"insmod {self.modules}")
            *options, name = chosen[1 if self.load("rds_rust") else 2].split()
        raise AssertionError(f"modprobe would never end: {line}")


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def files(root):
    """Returns the files that an installation may change."""
    return {str(x.relative_to(root)) for x in root.rglob("*") if x.is_file() and x.name.split(".")[0] != "modules"}


def test_install_and_uninstall(machine):
    (machine.modules / "updates/rds_rust.ko.orig").touch()
    machine.administrator("rds_rust.conf", "options rds_rust max_frag=4096\n")
    before = files(machine.root)
    told = machine.make("install")
    assert f"installed for Linux {RELEASE}; to load it: modprobe rds_rust\n" in told
    assert files(machine.root) - before == \
        {f"lib/modules/{RELEASE}{OURS}", PAGE, *(f"usr/lib/{x}" for x in CONFIGURED)}
    machine.make("uninstall")
    assert files(machine.root) == before
    assert machine.load("rds_rust") == []


def test_install_without_rdma(machine):
    machine.module(machine.built / "rds_rust.ko", "alias=rds", f"vermagic={RELEASE} SMP")
    assert f"installed for Linux {RELEASE}, without RDMA; to load it: modprobe rds_rust tcp=1\n" in machine.make("install")


@pytest.mark.parametrize("prefix", ("/usr/local", "/usr"))
def test_tools_that_were_built(prefix, machine):
    """Tools are installed and removed with the module, with their pages."""
    machine.make_programs()
    before = files(machine.root)
    machine.make("install", PREFIX=prefix)
    top = machine.root / prefix[1:]
    for name in PROGRAMS:
        assert os.access(top / "bin" / name, os.X_OK)
        assert (top / f"share/man/man1/{name}.1").read_text() == name
        assert (top / f"share/bash-completion/completions/{name}").read_text() == name
    assert {x.name for x in (top / "share/rds-rust").iterdir()} == EXTRAS
    assert os.access(top / "share/rds-rust/two-hosts.sh", os.X_OK)
    machine.make("uninstall", PREFIX=prefix)
    assert not (top / "share/rds-rust").exists()
    assert files(machine.root) == before


def test_source_for_dkms(machine):
    """The source has all files that a build reads, and no tests."""
    machine.make("install-source")
    source = machine.root / "usr/src" / f"rds-rust-{(TOP / 'VERSION').read_text().strip()}"
    there = {str(x.relative_to(source)) for x in source.rglob("*") if x.is_file()}
    assert {"dkms.conf", "Kbuild", "Makefile", "rds_core.rs", "proto/mod.rs", "scripts/dkms-build.sh"} <= there
    assert not [x for x in there if x.startswith(("tests", "tools", "build")) or x.endswith(".o")]
    kbuild = re.findall(r"\b(bindings/\w+)\.o", (TOP / "Kbuild").read_text())
    assert kbuild and {f"{x}.c" for x in kbuild} <= there
    layers = re.findall(r"^mod (\w+);", (TOP / "rds_core.rs").read_text(), re.M)
    files_of = {x: {f"{x}/mod.rs", f"{x}.rs"} & there for x in layers if x != "kunit"}
    assert {"kapi", "trace"} <= {*files_of} and all(files_of.values()), files_of
    assert {"uapi/uapi.h", "uapi/bindgen_parameters"} <= there
    assert files(machine.root) >= {PAGE, *(f"usr/lib/{x}" for x in CONFIGURED)}


def test_debugging_information_is_left_out(machine):
    def sections(path):
        return subprocess.run(["objdump", "-h", path], check=True, capture_output=True, text=True).stdout

    machine.make("install")
    assert ".debug_info" in sections(machine.built / "rds_rust.ko")
    installed = sections(machine.modules / OURS[1:])
    assert ".modinfo" in installed and ".debug_info" not in installed


def test_a_package_gets_no_index(machine, tmp_path):
    """A package must not have an index, as it would replace that of the machine."""
    machine.make("install", tmp_path / "package")
    assert files(tmp_path / "package") == {f"lib/modules/{RELEASE}{OURS}", PAGE, *(f"usr/lib/{x}" for x in CONFIGURED)}
    assert not list((tmp_path / "package").rglob("modules.*"))


@pytest.mark.parametrize("folder", ("updates", "updates/dkms", "extra"))
def test_uninstall_from_one_of_two_kernels(folder, machine):
    """The other kernel still needs the files that both use."""
    machine.make("install")
    other = machine.root / "lib/modules/7.3.99" / folder / "rds_rust.ko"
    machine.module(other)
    assert "another kernel has the module" in machine.make("uninstall")
    assert files(machine.root) == {str(other.relative_to(machine.root)), f"lib/modules/{RELEASE}/updates/other.ko",
                                   PAGE, *(f"usr/lib/{x}" for x in CONFIGURED)}


def test_uninstall_without_headers(machine):
    """The path of a kernel's headers identifies the kernel, even if they have been removed."""
    machine.make("install")
    machine.make("uninstall", KDIR=f"/lib/modules/{RELEASE}/build")
    assert files(machine.root) == {f"lib/modules/{RELEASE}/updates/other.ko"}


def test_module_for_another_kernel(machine):
    machine.module(machine.built / "rds_rust.ko", "vermagic=7.1.0-other SMP")
    done = machine.tried("install")
    assert done.returncode != 0 and "rds_rust.ko is for Linux 7.1.0-other: make modules KDIR=" in done.stderr


@pytest.mark.parametrize("variable, value, told", (
    ("KDIR", "/nowhere", "error: KDIR=/nowhere is not a configured kernel tree"),
    ("BUILD", "/nowhere", "error: there is no /nowhere/rds_rust.ko: make modules KDIR="),
    ("DESTDIR", "somewhere", "error: DESTDIR=somewhere is not an absolute path"),
    ("DESTDIR", "/some where", "error: DESTDIR=/some where has a space in it"),
))
def test_wrong_directory(variable, value, told, machine):
    done = machine.tried("install", **{variable: value})
    assert done.returncode != 0 and told in done.stderr, str(done)


@pytest.mark.parametrize("c_rds", (False, True), ids=("alone", "beside-c-rds"))
class TestNames:
    @pytest.fixture(autouse=True)
    def installed(self, machine, c_rds):
        if c_rds:
            machine.c_rds()
        machine.make("install")

    def test_names_of_c_rds(self, machine):
        assert machine.final("rds") == OURS
        assert machine.final("rds_rdma") == OURS
        assert machine.final("rds_rust") == OURS

    def test_opened_sockets_load_nothing(self, machine):
        assert machine.load("net-pf-21") == []

    @pytest.mark.parametrize("name", ("allow.conf", "zzz.conf"))
    def test_opened_sockets_load_it_if_an_administrator_says_so(self, name, machine):
        machine.administrator(name, "alias net-pf-21 rds_rust\n")
        assert machine.final("net-pf-21") == OURS

    @pytest.mark.parametrize("name, command", (
        ("60-hardening.conf", "/bin/true"), ("rds.conf", "/bin/false"), ("uncommon.conf", "/usr/bin/false")))
    def test_hardening_stays_in_force(self, name, command, machine):
        machine.administrator(name, f"install rds {command}\nblacklist rds\n")
        assert machine.final("rds") == machine.final("rds_rdma") == f"install {command}"
        assert machine.load("net-pf-21") == []
        # The name of this module itself still loads it.
        assert machine.final("rds_rust") == OURS


def test_c_rds_for_once(machine):
    machine.c_rds()
    machine.make("install")
    assert machine.load("--ignore-install", "rds") == [f"insmod {machine.modules}{THEIRS}"]


def test_kernel_without_the_module(machine):
    """Such a kernel has C RDS by its names, as if nothing were installed."""
    machine.c_rds()
    machine.make("install")
    (machine.modules / OURS[1:]).unlink()
    machine.index()
    assert machine.final("rds") == THEIRS
    assert machine.load("--ignore-install", "rds_rdma")[-1].endswith("/rds_rdma.ko")


@pytest.mark.parametrize("name", ("rds", "rds_rdma"))
def test_names_are_good_for_removal(name, machine):
    machine.make("install")
    line = re.search(rf"^remove {name} (.*)$", (machine.root / "usr/lib" / CONFIGURED[0]).read_text(), re.M)[1]
    assert line == (f"if [ -d /sys/module/rds_rust ]; then exec /sbin/modprobe -r rds_rust; "
                    f"else exec /sbin/modprobe -r --ignore-remove {name}; fi")
    assert subprocess.run(["sh", "-nc", line]).returncode == 0


def test_without_the_names(machine):
    """Without the files C RDS is loaded for its names, and for a socket."""
    machine.c_rds()
    machine.alone()
    assert machine.final("rds") == machine.final("net-pf-21") == THEIRS


def test_aliases_of_the_module(machine):
    """An alias of a module is followed after the commands of administrators."""
    machine.alone()
    assert machine.final("rds") == machine.final("rds_rdma") == OURS
    assert machine.load("rds_tcp") == machine.load("net-pf-21") == []
    machine.administrator("rds.conf", "install rds /bin/false\n")
    assert machine.final("rds") == "install /bin/false"
    machine.administrator("allow.conf", "alias net-pf-21 rds_rust\n")
    assert machine.final("net-pf-21") == OURS


@pytest.mark.parametrize("name", CONFIGURED[1:])
def test_examples_change_nothing(name):
    lines = (TOP / "dist" / name).read_text().splitlines()
    assert lines and all(x.startswith("#") for x in lines)


def test_examples_of_settings_are_documented():
    """The examples have the defaults of the documentation."""
    documented = (TOP / "Documentation/abi.md").read_text()
    settings = [x for x in (TOP / "dist/sysctl.d/rds_rust.conf").read_text().splitlines() if x.startswith("#net.rds.")]
    assert settings
    for line in settings:
        name, default = line.removeprefix("#net.rds.").split(" = ")
        assert f"| `{name}` | {default} |" in documented or f"| `{name}` | {default}; " in documented, line
