#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# kunit-intree.sh [LOG]: runs the KUnit suites as a kernel tree with this project in it does, by the
# tree's own kunit.py. LOG gets the log of the kernel, if it was built.
#
# The source tree is shared and stays as it is: the tree here is one of links to it, in the cache,
# with net/rds_rust and what names it in net/Kconfig and net/Makefile. The built kernel is kept, too.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

src=$("$TOP/scripts/fetch-kernel.sh")
version=$(make -s -C "$src" kernelversion)
config=$TOP/tests/kunit/.kunitconfig
# What the suites do not need and the build would take time for.
lean=(EXPERT=y ACPI=n AIO=n BLOCK=n COREDUMP=n CPU_MITIGATIONS=n DNOTIFY=n ETHTOOL_NETLINK=n
	FTRACE=n HID_SUPPORT=n HWMON=n HW_RANDOM=n INET_DIAG=n INOTIFY_USER=n INPUT=n IO_URING=n
	IPV6_SIT=n PERF_EVENTS_AMD_UNCORE=n SECCOMP=n SERIO=n SUSPEND=n SWAP=n THERMAL=n
	USB_SUPPORT=n VIRTUALIZATION=n VT=n WIRELESS=n)
key=$({
	echo "$version $src ${lean[*]}"
	cat "$config"
} | cache_key)
dir=$CACHE/kunit-$version-$key
tree=$dir/tree build=$dir/build

# expand DIR: makes a link to a directory of the source tree a directory of links.
expand() {
	[ ! -L "$tree/$1" ] || rm "$tree/$1"
	mkdir -p "$tree/$1"
	find "$src/$1" -mindepth 1 -maxdepth 1 -exec ln -s -t "$tree/$1" {} +
}

mkdir -p "$dir"
# One checkout at a time: net/rds_rust and the build are this one's until the end.
exec 9>"$dir/lock"
flock 9

if [ ! -f "$tree/.linked" ]; then
	rm -rf "$tree"
	expand .
	rm -f "$tree/.complete"
	expand net
	cp --remove-destination "$src/net/Kconfig" "$src/net/Makefile" "$tree/net"
	echo 'source "net/rds_rust/Kconfig"' >>"$tree/net/Kconfig"
	# shellcheck disable=SC2016
	echo 'obj-$(CONFIG_RDS_RUST) += rds_rust/' >>"$tree/net/Makefile"
	# kunit.py takes the tree in which it really is.
	expand tools
	expand tools/testing
	rm "$tree/tools/testing/kunit"
	cp -r "$src/tools/testing/kunit" "$tree/tools/testing"
	touch "$tree/.linked"
fi
ln -sfn "$TOP" "$tree/net/rds_rust"
# Objects of another checkout may be newer than the sources of this one.
rm -rf "$build/net/rds_rust"
[ -f "$build/vmlinux" ] ||
	say "building Linux $version with the KUnit suites in it, once for this machine: about 7 minutes on 2 cores"

status=0
mkdir -p "$build"
rm -f "$build/test.log"
options=("LLVM=1" "BINDGEN=$CACHE/cargo/bin/bindgen" KBUILD_BUILD_USER=rds KBUILD_BUILD_HOST=rds)
# Variables for the outer make mean nothing to the kernel's build.
unset MAKEFLAGS MAKEOVERRIDES MFLAGS MAKELEVEL KDIR
PATH="$TOP/scripts/tcg:$PATH" PYTHONDONTWRITEBYTECODE=1 \
	"$tree/tools/testing/kunit/kunit.py" run --arch=x86_64 --build_dir="$build" \
	--kunitconfig="$tree/net/rds_rust/tests/kunit" "${lean[@]/#/--kconfig_add=CONFIG_}" \
	"${options[@]/#/--make_options=}" 'rds_*' </dev/null || status=$?
if [ -n "${1:-}" ] && [ -f "$build/test.log" ]; then
	cp "$build/test.log" "$1"
fi
exit $status
