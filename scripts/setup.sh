#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# Installs what the build and the tests need, and says exactly what is missing where it cannot.
# Does nothing, in well under a second, when all is there.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# That of Debian's own python3, which guests run, and which may be yet to come.
python=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo 3.11)
PACKAGES=(clang-19 lld-19 llvm-19 libclang-19-dev coccinelle flex bison libelf-dev libssl-dev bc kmod cpio
	rsync qemu-system-x86 busybox-static iproute2 rdma-core ibverbs-utils perftest
	rdmacm-utils strace tcpdump iputils-ping udev gcc make xz-utils python3 python3-venv
	libibverbs-dev "libpython$python-testsuite" librdmacm-dev shellcheck git linux-perf
	trace-cmd)

missing=()
for p in "${PACKAGES[@]}"; do
	dpkg-query -W -f '${db:Status-Abbrev}' "$p" 2>/dev/null | grep -q '^ii' || missing+=("$p")
done

# Debian 12 has too old a one.
rust=
version=$(rustc -V 2>/dev/null || true)
if [ -z "$version" ] || ! command -v cargo >/dev/null; then
	rust="rustc and cargo (1.85 or newer) are missing: install rustup and run 'rustup default stable'"
elif ! [[ $version =~ ^rustc\ ([0-9]+)\.([0-9]+) ]] || ((BASH_REMATCH[1] * 1000 + BASH_REMATCH[2] < 1085)); then
	rust="$version is too old, 1.85 or newer is needed: run 'rustup update stable'"
else
	for tool in rustfmt clippy-driver; do
		command -v "$tool" >/dev/null ||
			rust="$tool is missing: 'rustup component add rustfmt clippy', or install the packages of rustc's version"
	done
fi

if [ ${#missing[@]} -gt 0 ]; then
	command -v apt-get >/dev/null ||
		die "these Debian packages are missing and there is no apt-get here: ${missing[*]}${rust:+; and $rust}"
	[ "$(id -u)" = 0 ] ||
		die "these packages are missing; as root: apt-get install ${missing[*]}${rust:+; and $rust}"
fi
[ -z "$rust" ] || die "$rust"
if [ ${#missing[@]} -gt 0 ]; then
	say "installing ${#missing[@]} Debian packages: ${missing[*]}"
	run_logged apt-index apt-get update -q
	run_logged apt-install env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -q --no-install-recommends "${missing[@]}"
fi

if [ ! -f "$(rustc --print sysroot)/lib/rustlib/src/rust/library/core/src/lib.rs" ]; then
	command -v rustup >/dev/null ||
		die "the Rust library source is missing: install the rust-src package of rustc $(rustc -V)"
	say "adding the Rust library source"
	run_logged rust-src rustup component add rust-src
fi

if [ "$("$CACHE/cargo/bin/bindgen" --version 2>/dev/null)" != "bindgen $BINDGEN_VERSION" ]; then
	say "installing bindgen $BINDGEN_VERSION (about a minute)"
	run_logged bindgen cargo install --locked --root "$CACHE/cargo" bindgen-cli \
		--version "$BINDGEN_VERSION"
fi

# One for each list of requirements, as checkouts that share the cache may differ in them.
venv=$(venv_dir)
if [ ! -f "$venv/.complete" ]; then
	say "installing the test tools"
	rm -rf "$venv"
	run_logged venv python3 -m venv "$venv"
	run_logged pip "$venv/bin/pip" install --disable-pip-version-check -r "$TOP/scripts/requirements.txt"
	touch "$venv/.complete"
fi
