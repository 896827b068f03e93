#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# Builds the test kernel of one flavour (release or debug), unless the cache has it, and prints
# its build directory. The key covers all inputs: source version, configuration, tools.
# The soft RDMA devices are built twice: from the unchanged source, and with configs/patches. Tests
# use the latter unless UNPATCHED=1 is in the environment. --print-mods prints the modules' folder.
# CFI=1 in the environment adds configs/cfi.config.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
# Options of the calling make, such as -s, which would leave the log empty.
unset MAKEFLAGS MAKEOVERRIDES MFLAGS MAKELEVEL

flavor=${1:?usage: build-kernel.sh release|debug [--print|--print-mods]}
case $flavor in
release) fragments=("$TOP/configs/base.config") ;;
debug) fragments=("$TOP/configs/base.config" "$TOP/configs/debug.config") ;;
*) die "no such flavour: $flavor (release or debug)" ;;
esac

src=$("$TOP/scripts/fetch-kernel.sh")
version=$(make -s -C "$src" kernelversion)
# Options of one series have a file of their own, after the others.
[ ! -f "$TOP/configs/${version%.*}.config" ] || fragments+=("$TOP/configs/${version%.*}.config")
[ -z "${CFI:-}" ] || fragments+=("$TOP/configs/cfi.config")
key=$({
	# Another tree of the same version may be another kernel.
	echo "$version${KSRC:+ $src}"
	cat "${fragments[@]}"
} | cache_key)
out=$CACHE/kernel-$version-$flavor${CFI:+-cfi}-$key
mods=$out/mods
patches=$(cat "$TOP"/configs/patches/*.cocci | sha256sum | cut -c1-12)
# The patches may not fit the source tree of KSRC.
if [ -z "${UNPATCHED:-}${KSRC:-}" ]; then
	mods+=-$patches
fi

case ${2:-} in
--print) echo "$out"; exit 0 ;;
--print-mods) echo "$mods"; exit 0 ;;
esac
kmake=(make -C "$src" "O=$out" LLVM=1 "BINDGEN=$CACHE/cargo/bin/bindgen" KBUILD_BUILD_USER=rds
	KBUILD_BUILD_HOST=rds)

build_kernel() {
	say "building Linux $version ($flavor flavour), once for this machine: 10 to 20 minutes on 2 cores"
	run_logged "config-$flavor" "${kmake[@]}" allnoconfig
	run_logged "merge-$flavor" env -C "$out" "$src/scripts/kconfig/merge_config.sh" -m -O "$out" \
		"$out/.config" "${fragments[@]}"
	run_logged "oldconfig-$flavor" "${kmake[@]}" olddefconfig

	# merge_config.sh only warns about options that the kernel did not take; failures come much later.
	lost=$(cat "${fragments[@]}" | grep '^CONFIG_' | while IFS='=' read -r name value; do
		last=$(cat "${fragments[@]}" | grep "^$name=" | tail -n 1)
		[ "$name=$value" = "$last" ] || continue
		[ "$value" != n ] || { ! grep -q "^$name=" "$out/.config" || echo "$name=n"; continue; }
		grep -qx "$name=$value" "$out/.config" || echo "$name=$value"
	done)
	[ -z "$lost" ] || die "the kernel's Kconfig did not take: $(echo "$lost" | tr '\n' ' ')"

	progress() { echo "$(find "$out" -name '*.o' | wc -l) of about 1900 object files"; }
	run_logged "kernel-$flavor" "${kmake[@]}" -j"$(nproc)" bzImage modules
	run_logged "modinst-$flavor" "${kmake[@]}" INSTALL_MOD_PATH="$out/mods" modules_install
	touch "$out/.complete"
}

# Builds copies of two drivers against the kernel, as out-of-tree modules.
build_soft_devices() {
	local patched device
	say "building soft-RoCE and soft-iWARP with configs/patches for the $flavor kernel"
	patched=$("$TOP/scripts/patch-kernel.sh" "$src")
	rm -rf "$mods.new"
	cp -a "$out/mods" "$mods.new"
	for device in rxe siw; do
		local module=("M=$patched/drivers/infiniband/sw/$device" "MO=$out/soft-$patches/$device")
		mkdir -p "$out/soft-$patches/$device"
		run_logged "$device-$flavor" "${kmake[@]}" "${module[@]}" modules
		run_logged "$device-install-$flavor" "${kmake[@]}" "${module[@]}" "INSTALL_MOD_PATH=$mods.new" \
			INSTALL_MOD_DIR=updates modules_install
	done
	mv "$mods.new" "$mods"
}

mkdir -p "$out"
# Waits if another process builds this kernel already.
exec {lock}>"$out/.lock"
flock "$lock"
[ -f "$out/.complete" ] || build_kernel
[ -d "$mods" ] || build_soft_devices
echo "$out"
