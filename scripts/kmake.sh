#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# kmake.sh KDIR ARGS...: the kernel's make in a configured tree, with the compilers that built it.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

kdir=$1
shift
# Variables of the outer make, such as KDIR, mean nothing to the kernel's build.
unset MAKEFLAGS MAKEOVERRIDES MFLAGS MAKELEVEL
args=(--no-print-directory -j"$(nproc)" "BINDGEN=$(bindgen_path)")
if rustc=$(rustc_of "$kdir"); then
	args+=("RUSTC=$rustc")
fi
if grep -qs '^CONFIG_CC_IS_CLANG=y' "$kdir/include/config/auto.conf"; then
	args+=("LLVM=${LLVM:-1}")
fi
exec make -C "$kdir" "${args[@]}" "$@"
