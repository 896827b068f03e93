#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# other-kernel.sh: prints a prepared tree of a kernel that differs from the test kernels in the
# options that matter for compiling the module: the older series, gcc, the oldest Rust, and
# PREEMPT_RT with checks of spinlocks. It has no vmlinux, so modpost knows no symbols:
# KBUILD_MODPOST_WARN=1 lets it continue.
# --rustc prints the compiler instead.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
unset MAKEFLAGS MAKEOVERRIDES MFLAGS MAKELEVEL

series=7.2
rust=1.85.1

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

rustc=$(find_rustc)
if [ "${1:-}" = --rustc ]; then
	echo "$rustc"
	exit 0
fi
fragments=("$TOP/configs/base.config" "$TOP/configs/realtime.config")
src=$(KSRC='' KERNEL_SERIES=$series "$TOP/scripts/fetch-kernel.sh")
version=$(make -s -C "$src" kernelversion)
key=$({
	echo "$version"
	cat "${fragments[@]}"
	"$rustc" -V
	gcc --version | head -n 1
} | sha256sum | cut -c1-12)
out=$CACHE/prepared-$version-gcc-rust-$rust-$key
mkdir -p "$out"
exec {lock}>"$out/.lock"
flock "$lock"
if [ ! -f "$out/.complete" ]; then
	say "preparing Linux $version with gcc and Rust $rust, once for this machine: 2 minutes"
	kmake=(make -C "$src" "O=$out" "RUSTC=$rustc" "BINDGEN=$(bindgen_path)")
	run_logged config-other "${kmake[@]}" allnoconfig
	run_logged merge-other env -C "$out" "$src/scripts/kconfig/merge_config.sh" -m -O "$out" \
		"$out/.config" "${fragments[@]}"
	run_logged oldconfig-other "${kmake[@]}" olddefconfig
	for option in RUST PREEMPT_RT DEBUG_SPINLOCK INFINIBAND_ADDR_TRANS; do
		grep -q "^CONFIG_$option=[ym]" "$out/.config" || die "Linux $version did not take CONFIG_$option"
	done
	run_logged prepare-other "${kmake[@]}" -j"$(nproc)" modules_prepare
	touch "$out/.complete"
fi
echo "$out"
