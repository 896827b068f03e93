#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# kunit-intree.sh [LOG]: runs the KUnit suites in a kernel tree that contains this project, by the
# tree's own kunit.py. LOG gets the log of the kernel, if it was built.
#
# The shared source tree stays unchanged: in a separate mount namespace, its net/ is a copy that has
# net/rds_rust, and names it in net/Kconfig and net/Makefile. The kernel is a copy of the release
# flavour with the suites added, so that little has to be built. Both copies are kept.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

src=$("$TOP/scripts/fetch-kernel.sh")
release=$("$TOP/scripts/build-kernel.sh" release)
suites=$TOP/tests/kunit/.kunitconfig
key=$({
	echo "$release $src"
	cat "$suites"
} | cache_key)
dir=$CACHE/kunit-$(basename "$release")-$key
build=$dir/build net=$dir/net

mkdir -p "$dir"
# One checkout at a time: this process owns net/rds_rust and the build until it ends.
exec 9>"$dir/lock"
flock 9

if [ ! -f "$dir/.copied" ]; then
	say "building the release kernel with the KUnit suites in it, once for this machine: 2 minutes on 2 cores"
	rm -rf "$build" "$net"
	# With time stamps, as otherwise all would be built again.
	cp -a "$src/net" "$net"
	echo 'source "net/rds_rust/Kconfig"' >>"$net/Kconfig"
	# shellcheck disable=SC2016
	echo 'obj-$(CONFIG_RDS_RUST) += rds_rust/' >>"$net/Makefile"
	cp -a "$release" "$build"
	# kunit.py creates .config from the two files of --kunitconfig.
	mv "$build/.config" "$dir/kernel.config"
	touch "$dir/.copied"
fi
ln -sfn "$TOP" "$net/rds_rust"
# Objects of another checkout may be newer than the sources of this one.
rm -rf "$build/net/rds_rust"
rm -f "$build/test.log"

status=0
options=("LLVM=1" "BINDGEN=$CACHE/cargo/bin/bindgen" KBUILD_BUILD_USER=rds KBUILD_BUILD_HOST=rds)
# Variables of the outer make mean nothing to the kernel's build.
unset MAKEFLAGS MAKEOVERRIDES MFLAGS MAKELEVEL KDIR
namespace=(--mount)
if [ "$(id -u)" != 0 ]; then
	namespace+=(--map-root-user)
fi
# shellcheck disable=SC2016
PATH="$TOP/scripts/tcg:$PATH" PYTHONDONTWRITEBYTECODE=1 unshare "${namespace[@]}" bash -c '
	set -e
	net=$1 src=$2
	shift 2
	mount --bind "$net" "$src/net"
	cd "$src"
	exec "$@"
' - "$net" "$src" tools/testing/kunit/kunit.py run --arch=x86_64 --build_dir="$build" --timeout=900 \
	--kunitconfig=net/rds_rust/tests/kunit --kunitconfig="$dir/kernel.config" \
	"${options[@]/#/--make_options=}" 'rds_*' </dev/null || status=$?
if [ -n "${1:-}" ] && [ -f "$build/test.log" ]; then
	cp "$build/test.log" "$1"
fi
exit $status
