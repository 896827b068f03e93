#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""make lint: formatting, the linters, and the project's own rules. Fails if any of them does."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

import checks
import import_cycles

TOP = Path(__file__).resolve().parent.parent
HOST_CRATES = ("tests/host", "tests/loom", "tools")


def tracked():
    """Returns the files that are committed, or would be."""
    out = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                         cwd=TOP, check=True, capture_output=True, text=True).stdout
    return sorted(x for x in out.split("\0") if x and (TOP / x).is_file())


def command(*argv, **env):
    """Runs a linter; returns its output if it complains, else nothing."""
    done = subprocess.run([str(x) for x in argv], cwd=TOP, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, **env})
    return done.stdout + f"(exit status {done.returncode})" if done.returncode else ""


def unique(text):
    """Keeps each line once: rustfmt repeats a file for every file that has it as a module."""
    return "\n".join(dict.fromkeys(text.splitlines()))


def rules(files):
    found, sources = [], {}
    for path in files:
        try:
            sources[path] = (TOP / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            found.append(f"{path}: not UTF-8")
    for path, text in sources.items():
        found += checks.check_file(path, text)
    return "\n".join(found + checks.types_defined_twice(sources) + import_cycles.complaints(sources))


def is_shell(path):
    if path.endswith(".sh") or path == "dkms.conf":
        return True
    with open(TOP / path, "rb") as f:
        return f.readline().rstrip().endswith(b"sh")


def oldest_rust():
    return subprocess.run([Path(__file__).with_name("other-kernel.sh"), "--rustc"], check=True, capture_output=True,
                          text=True).stdout.strip()


# Variables of make for the modules that are built here.
STRICT = ("WERROR=y", "KUNIT=y", "FLAVOR=release")


@cache
def built_module(*left_out):
    """Returns the path of the module that the steps before have built. left_out: variables of make
    for one without transports."""
    module = subprocess.run(["make", "-s", "print-ko", *STRICT, *left_out], cwd=TOP, check=True,
                            capture_output=True, text=True).stdout.strip()
    if not Path(module).exists():
        raise SystemExit(f"{module} does not exist, because the module does not build")
    return module


def symbols(option, *left_out):
    """Returns the module's symbols, as nm prints them with this option."""
    return subprocess.run(["nm", option, built_module(*left_out)], check=True, capture_output=True, text=True).stdout


def hidden_panics():
    """Returns the compiler's own panics that the module could reach.

    objtool does not know that they do not return, and a panic that cannot happen is a needless
    branch."""
    return "\n".join(panics_among(symbols("--undefined-only").split()))


def foreign_names():
    """Returns the helpers whose names may collide with names of other parts of the kernel.

    When the module is built in, all are in one program."""
    defined = symbols("--extern-only").splitlines()
    return "\n".join(foreign_among(x.split()[-1] for x in defined if " T " in x))


def foreign_among(functions):
    """Returns C functions without the module's prefix.

    Names of Rust functions contain the crate, and the kernel generates the other names."""
    ours = re.compile(r"rds_rust_|_R|__|(init|cleanup)_module$")
    return [x for x in functions if not ours.match(x)]


def panics_among(symbols):
    """Returns the symbols of panics for a division whose divisor may be zero."""
    return [x for x in symbols if re.search(r"panic_const_(div|rem)_by_zero$", x)]


def arm64_module():
    """Builds the module for arm64, whose kernel has static keys."""
    if complaints := command("make", "-s", "modules-arm64"):
        return complaints
    module = TOP / "build/arm64/rds_rust.ko"
    missing = [f"{x} has no static key in Rust" for x in keys_without_patches(module)]
    return "\n".join([*missing, *work_of_disabled(module)])


def work_of_disabled(module):
    """Returns a line for each test of a tracepoint, in an arm64 module, that is not a nop while the
    tracepoint is off."""
    def listing(*options):
        return subprocess.run(["readelf", "--wide", *options, module], check=True, capture_output=True, text=True).stdout

    return work_of_disabled_among(listing("--relocs"), listing("--sections"), module.read_bytes())


def work_of_disabled_among(relocations, sections, module):
    """Does the same for the listings of relocations and sections of readelf.

    An entry of the jump table has 16 bytes: the place of the test, that of the code behind it, and
    the key."""
    starts = {name: int(start, 16) for name, start in
              re.findall(r"^ *\[ *\d+\] (\S+) +\w+ +[0-9a-f]+ ([0-9a-f]+) ", sections, re.M)}
    table = re.search(r"^Relocation section '.rela__jump_table'.*?(?=^Relocation section|\Z)", relocations, re.M | re.S)
    entries = {}
    for offset, symbol, more in re.findall(r"^([0-9a-f]{16}) +\S+ +\S+ +[0-9a-f]+ +(\S+) \+ ([0-9a-f]+)$",
                                           table[0] if table else "", re.M):
        entries.setdefault(int(offset, 16) // 16, {})[int(offset, 16) % 16] = symbol, int(more, 16)
    found, seen = [], 0
    for entry in entries.values():
        (section, offset), (key, _) = entry[0], entry[8]
        if not key.startswith("__tracepoint_"):
            continue
        seen += 1
        start = starts[section] + offset
        if module[start:start + 4] != ARM64_NOP:
            found.append(f"{key.removeprefix('__tracepoint_')} is not a nop at {section}+{offset:#x} while it is off")
    return found if seen else ["the module has no tests of tracepoints"]


# In the order of the bytes in memory.
ARM64_NOP = bytes.fromhex("1f2003d5")


def variant(*without):
    """Builds the module without transports. Without RDMA it must need none of the kernel's RDMA."""
    left_out = [f"{x}=n" for x in without]
    if complaints := command("make", "-s", "modules", *STRICT, *left_out):
        return complaints
    return "\n".join(of_rdma_among(symbols("--undefined-only", *left_out).split())) if "RDMA" in without else ""


def of_rdma_among(symbols):
    """Returns the symbols of the modules that RDMA needs."""
    return [x for x in symbols if re.match(r"(__)?(ib|rdma|irq_poll)_", x)]


def keys_without_patches(module):
    """Returns the tracepoints for which a module, built for a kernel with static keys, reads
    memory."""
    relocations = subprocess.run(["readelf", "--relocs", "--wide", module], check=True, capture_output=True, text=True)
    points = re.findall(r"=> __tracepoint_(\w+),", (TOP / "bindings/tracepoints.rs").read_text())
    return keys_without_patches_among(points, relocations.stdout)


def keys_without_patches_among(points, relocations):
    """Returns the tracepoints that have no static key in Rust. Each has one in helpers_trace.c."""
    section, found = "", Counter()
    for line in relocations.splitlines():
        if begin := re.match(r"Relocation section '(\S+)'", line):
            section = begin[1]
        elif section == ".rela__jump_table":
            found.update(re.findall(r"\b__tracepoint_(\w+)", line))
    return [x for x in points if found[x] < 2]


@cache
def kernel_script(name):
    """Returns a script of the source tree of the test kernel."""
    kdir = subprocess.run(["make", "-s", "print-kdir", "FLAVOR=release"], cwd=TOP, check=True, capture_output=True,
                          text=True).stdout.strip()
    return Path(kdir).resolve() / "source/scripts" / name


# Complaints of checkpatch.pl that do not apply to a file: macros of tracepoints and of parameters
# are lists of declarations.
NOT_FOR = {
    "bindings/rds_trace.h": ("COMPLEX_MACRO", "MULTISTATEMENT_MACRO_USE_DO_WHILE", "OPEN_ENDED_LINE",
                             "PARENTHESIS_ALIGNMENT"),
    "bindings/helpers_params.c": ("MACRO_ARG_REUSE",),
}


def checkpatch(files):
    """Returns the complaints of the kernel's checkpatch.pl about C files of the module."""
    found = [command("perl", kernel_script("checkpatch.pl"), "--strict", "--no-tree", "--terse", "--show-types",
                     "--quiet", "--no-summary", f"--max-line-length={checks.MAX_COLUMNS}",
                     *(f"--ignore={x}" for x in NOT_FOR.get(path, ())), "--file", path) for path in files]
    return "\n".join(filter(None, found))


def kernel_doc(files):
    """Returns the complaints of the kernel's kernel-doc about comments of functions in C."""
    return command(sys.executable, kernel_script("kernel-doc"), "-none", "-Wall", "-Werror", *files)


def rustdoc(command_file):
    """Returns the complaints of rustdoc about the module: links that lead nowhere, for example.

    The kernel's build makes no documentation of other modules, so rustdoc gets the arguments of the
    compiler, which this file of the build has."""
    objects = Path(command_file).parent
    line = re.search(r"^savedcmd_\S+ := (.*)$", Path(command_file).read_text(), re.M)[1]
    words = shlex.split(line)
    compiler = next(i for i, x in enumerate(words) if "=" not in x)
    env = dict(x.split("=", 1) for x in words[:compiler])
    env |= {"RUSTC_BOOTSTRAP": "1", "RDS_BINDINGS": f"{objects}/bindings/generated.rs",
            "RDS_UAPI": f"{objects}/uapi/generated.rs"}
    skipped = ("--emit", "--out-dir", "./", "--remap-path-scope", "-Wclippy", "-Aclippy", "-Wunreachable_pub")
    with tempfile.TemporaryDirectory() as out:
        return command("env", "-C", objects, "rustdoc", *(x for x in words[compiler + 1:] if not x.startswith(skipped)),
                       "--document-private-items", "--out-dir", out, "-Drustdoc::all",
                       "-Arustdoc::missing_crate_level_docs", "-Arustdoc::private_doc_tests", **env)


def steps(files):
    """Yields (name, function) of each linter."""
    c = [x for x in files if x.endswith((".c", ".h")) and x.startswith(("bindings/", "uapi/"))]
    rust = [x for x in files if x.endswith(".rs")]
    yield "the project's rules", lambda: rules(files)
    yield "rustfmt", lambda: unique(command("rustfmt", "--check", "-l", "--edition", "2021", *rust))
    for crate in HOST_CRATES:
        yield f"clippy on {crate}", lambda crate=crate: command(
            "cargo", "clippy", "--quiet", "--locked", "--all-targets", "--manifest-path",
            f"{crate}/Cargo.toml", "--target-dir", "build/clippy", "--", "-D", "warnings")
    yield "the tools, with Rust 1.85", lambda: command(
        "cargo", "check", "--quiet", "--locked", "--all-targets", "--manifest-path", "tools/Cargo.toml",
        "--target-dir", "build/oldest", RUSTC=oldest_rust())
    yield "documentation of rds-socket", lambda: command(
        "cargo", "doc", "--quiet", "--locked", "--no-deps", "--all-features", "--package", "rds-socket",
        "--manifest-path", "tools/Cargo.toml", "--target-dir", "build/clippy", RUSTDOCFLAGS="-D warnings")
    # A separate build: its flags differ, and an object that is up to date would hide its warnings.
    yield "the module, without a warning", lambda: command(
        "make", "-s", "modules", "WERROR=y", "KUNIT=y", FLAVOR="release")
    yield "documentation of the module", lambda: rustdoc(Path(built_module()).with_name(".rds_core.o.cmd"))
    yield "checkpatch", lambda: checkpatch(c)
    yield "kernel-doc", lambda: kernel_doc(c)
    yield "no division that can panic", hidden_panics
    yield "helpers in C with the module's prefix", foreign_names
    yield ("the module, with gcc, Rust 1.85 and PREEMPT_RT, for the other series",
           lambda: command("make", "-s", "modules-other"))
    yield "the module, for arm64, with static keys", arm64_module
    for without in (("RDMA",), ("TCP",), ("RDMA", "TCP")):
        yield f"the module, without {' and '.join(without)}", lambda without=without: variant(*without)
    yield "shellcheck", lambda: command(
        "shellcheck", "--external-sources", "--source-path=SCRIPTDIR", *filter(is_shell, files))
    yield "python", lambda: command(
        sys.executable, "-W", "error", "-c",
        "import sys\nfor p in sys.argv[1:]: compile(open(p, encoding='utf-8').read(), p, 'exec')",
        *(x for x in files if x.endswith(".py")))


def main():
    failed = []
    for what, run in steps(tracked()):
        print(f"== {what}", flush=True)
        if complaints := run():
            print(complaints, flush=True)
            failed.append(what)
    if failed:
        print(f"lint failed: {', '.join(failed)}")
        return 1
    print("lint: all clean")
    return 0


if __name__ == "__main__":
    sys.exit(main())
