# SPDX-License-Identifier: GPL-2.0
"""The flags of a kernel's compiler that Kbuild passes to bindgen."""

import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
# The clang that the project's scripts select.
CLANG = ["bash", "-c", f'. {TOP}/scripts/lib.sh; exec clang "$@"', "clang"]
# Flags of Debian's kernel 7.2.12+deb13, built with gcc 14; clang does not know all of them.
GCC = """
-nostdinc -I/src/include -I./include -include /src/include/linux/kconfig.h -D__KERNEL__ -DCC_USING_FENTRY -UNDEBUG
-O2 -falign-jumps=1 -falign-loops=1 -fcf-protection=branch -fconserve-stack -fmacro-prefix-map=/root/= -fmin-function-alignment=16
-fms-extensions -fno-PIE -fno-allow-store-data-races -fno-asynchronous-unwind-tables -fno-builtin-wcslen -fno-common
-fno-delete-null-pointer-checks -fno-jump-tables -fno-stack-check -fno-stack-clash-protection -fno-strict-aliasing
-fno-strict-overflow -fpatchable-function-entry=16,16 -fsanitize=bounds-strict -fsanitize=shift -fshort-wchar
-fstack-protector-strong -fstrict-flex-arrays=3 -ftrivial-auto-var-init=zero -funsigned-char -g -m64 -march=x86-64
-mcmodel=kernel -mfentry -mfunction-return=thunk-extern -mharden-sls=all -mindirect-branch-cs-prefix
-mindirect-branch-register -mindirect-branch=thunk-extern -mno-3dnow -mno-80387 -mno-avx -mno-fp-ret-in-387 -mno-mmx
-mno-red-zone -mno-sse -mno-sse2 -mno-sse4a -mpreferred-stack-boundary=3 -mrecord-mcount -mskip-rax-setup
-mstack-protector-guard-reg=gs -mstack-protector-guard-symbol=__ref_stack_chk_guard -mtune=generic -pg -std=gnu11
--param=asan-stack=1
""".split()
# Flags that decide on the declarations of a header, or on their size.
NEEDED = ("-nostdinc -I/src/include -I./include -include /src/include/linux/kconfig.h -D__KERNEL__ -DCC_USING_FENTRY -UNDEBUG "
          "-O2 -fms-extensions -fno-PIE -fshort-wchar -funsigned-char -m64 -std=gnu11").split()


def handed(tmp_path, flags, compiler="cc"):
    makefile = tmp_path / "Makefile"
    makefile.write_text(f"src := {TOP}\nobj := {tmp_path}\nCC := {compiler}\nc_flags := {' '.join(flags)}\ninclude {TOP}/Kbuild\n"
                        "print:\n\t@echo $(rds-bindgen-cflags)\n"
                        # Definitions of the kernel's build.
                        "if_changed = @:\nFORCE:\n")
    done = subprocess.run(["make", "-s", "-f", makefile, "print"], check=True, capture_output=True, text=True)
    return done.stdout.split()


def understood(flags):
    """Returns the messages of clang about flags, except those that name files."""
    flags = [x for x in flags if x != "-include" and not x.endswith(".h")]
    done = subprocess.run([*CLANG, *flags, "-fsyntax-only", "-x", "c", "/dev/null"], capture_output=True, text=True)
    return done.stderr


def test_clang_knows_them(tmp_path):
    assert "unknown argument" in understood(GCC), "the sample shows nothing"
    assert understood(handed(tmp_path, GCC)) == ""


@pytest.mark.parametrize("more", ([], ["-fms-anonymous-structs"], ["-mnew-in-some-gcc", "-fnew=1"]))
def test_no_other_is_handed_on(tmp_path, more):
    own = ["-w", f"--target={target_of('cc')}", "-fno-builtin", "-D__BINDGEN__", "-DMODULE"]
    kept = [x for x in more if x.startswith("-fms-")]
    assert sorted(handed(tmp_path, GCC + more)) == sorted(NEEDED + kept + own)


def target_of(*command):
    return subprocess.run([*command, "-dumpmachine"], check=True, capture_output=True, text=True).stdout.strip()


def test_target_is_that_of_a_cross_compiler(tmp_path):
    compiler = tmp_path / "some-gcc"
    compiler.write_text("#!/bin/sh\n[ \"$*\" = -dumpmachine ] && echo aarch64-linux-gnu\n")
    compiler.chmod(0o755)
    assert "--target=aarch64-linux-gnu" in handed(tmp_path, ["-mlittle-endian"], compiler)


def test_target_is_that_of_clang(tmp_path):
    compiler = tmp_path / "some-clang"
    compiler.write_text(" ".join(["#!/bin/bash\nexec", *CLANG[:2], f"'{CLANG[2]}'", CLANG[3], '"$@"\n']))
    compiler.chmod(0o755)
    target = handed(tmp_path, ["--target=aarch64-linux-gnu"], compiler)
    assert target.count("--target=aarch64-unknown-linux-gnu") == 1
    assert "--target=aarch64-linux-gnu" not in target
