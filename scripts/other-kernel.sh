#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# other-kernel.sh: prints a prepared tree of a kernel that differs from the test kernels in the
# options that matter for compiling the module: another supported series, gcc, the oldest Rust, and
# PREEMPT_RT with checks of spinlocks. It has no vmlinux, so modpost knows no symbols:
# KBUILD_MODPOST_WARN=1 lets it continue.
# --rustc prints the compiler instead.
# --arm64: the same for the test kernel's series on arm64, with the compilers of the test kernels.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
unset MAKEFLAGS MAKEOVERRIDES MFLAGS MAKELEVEL

for series in "${SUPPORTED_SERIES[@]}"; do
	[ "$series" = "${KERNEL_SERIES:-${SUPPORTED_SERIES[0]}}" ] || break
done
rust=1.85.1
fragments=("$TOP/configs/base.config")

# find_rustc: prints the system's compiler, if it is that version, or rustup's.
find_rustc() {
	local version="rustc $rust "
	if [[ "$(rustc --version 2>/dev/null || true)" == "$version"* ]]; then
		command -v rustc
		return
	fi
	command -v rustup >/dev/null ||
		die "the oldest Rust that is supported, $rust, is not here, and no rustup to get it with: install rustup"
	rustup which --toolchain "$rust" rustc 2>/dev/null || {
		run_logged "rust-$rust" rustup toolchain install "$rust" --profile minimal --component rust-src
		rustup which --toolchain "$rust" rustc
	}
}

if [ "${1:-}" = --arm64 ]; then
	rustc=$(command -v rustc)
	options=(RUST INFINIBAND_ADDR_TRANS ARM64)
	src=$(KSRC='' "$TOP/scripts/fetch-kernel.sh")
	compilers=("RUSTC=$rustc" ARCH=arm64 "LLVM=${LLVM:-1}")
	name=arm64-clang
	cc=clang
else
	rustc=$(find_rustc)
	if [ "${1:-}" = --rustc ]; then
		echo "$rustc"
		exit 0
	fi
	fragments+=("$TOP/configs/realtime.config")
	options=(RUST PREEMPT_RT DEBUG_SPINLOCK INFINIBAND_ADDR_TRANS)
	src=$(KSRC='' KERNEL_SERIES=$series "$TOP/scripts/fetch-kernel.sh")
	compilers=("RUSTC=$rustc")
	name=gcc-rust-$rust
	cc=gcc
fi
version=$(make -s -C "$src" kernelversion)
key=$({
	echo "$version"
	cat "${fragments[@]}"
	"$rustc" -V
	"$cc" --version | head -n 1
} | sha256sum | cut -c1-12)
out=$CACHE/prepared-$version-$name-$key
mkdir -p "$out"
exec {lock}>"$out/.lock"
flock "$lock"
if [ ! -f "$out/.complete" ]; then
	say "preparing Linux $version ($name), once for this machine: 2 minutes"
	kmake=(make -C "$src" "O=$out" "${compilers[@]}" "BINDGEN=$(bindgen_path)")
	run_logged config-other "${kmake[@]}" allnoconfig
	run_logged merge-other env -C "$out" "$src/scripts/kconfig/merge_config.sh" -m -O "$out" \
		"$out/.config" "${fragments[@]}"
	run_logged oldconfig-other "${kmake[@]}" olddefconfig
	for option in "${options[@]}"; do
		grep -q "^CONFIG_$option=[ym]" "$out/.config" || die "Linux $version did not take CONFIG_$option"
	done
	run_logged prepare-other "${kmake[@]}" -j"$(nproc)" modules_prepare
	touch "$out/.complete"
fi
echo "$out"
