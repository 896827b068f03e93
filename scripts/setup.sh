#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# Installs the requirements of the build and the tests. If it cannot, or if SETUP=check is in the
# environment, it prints exactly what is missing. If nothing is missing, it ends in well under a
# second.
# setup.sh --build KDIR: only the requirements of a build of the module for this kernel.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# choose_llvm: selects the newest clang of a suite without the version of the tests. An installed
# clang suffices.
choose_llvm() {
	local package newest=0 wanted=''
	[ ! -x "$LLVM_BIN/clang" ] && command -v apt-cache >/dev/null || return 0
	while read -r package; do
		[[ $package =~ ^clang-([0-9]+)$ ]] || continue
		if ((BASH_REMATCH[1] == LLVM_VERSION)); then wanted=y; fi
		if ((BASH_REMATCH[1] > newest)); then newest=${BASH_REMATCH[1]}; fi
	done < <(apt-cache pkgnames clang- 2>/dev/null)
	if [ -z "$wanted" ] && [ "$newest" -gt 0 ]; then LLVM_VERSION=$newest; fi
}

# packages: lists the missing Debian packages.
packages() {
	local python names p
	# The version of Debian's own python3, which guests run, and which may not be installed yet.
	python=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo 3.11)
	names=("clang-$LLVM_VERSION" "lld-$LLVM_VERSION" "llvm-$LLVM_VERSION" "libclang-$LLVM_VERSION-dev"
		coccinelle flex bison libelf-dev libssl-dev bc kmod cpio
		rsync qemu-system-x86 busybox-static iproute2 rdma-core ibverbs-utils perftest
		rdmacm-utils strace tcpdump iputils-ping udev gcc make xz-utils python3 python3-venv
		libibverbs-dev "libpython$python-testsuite" librdmacm-dev shellcheck git linux-perf
		trace-cmd bpftrace tshark python3-yaml python3-prometheus-client dkms debhelper dh-dkms dpkg-dev lintian mandoc man-db mmdebstrap)
	missing=()
	for p in "${names[@]}"; do
		dpkg-query -W -f '${db:Status-Abbrev}' "$p" 2>/dev/null | grep -q '^ii' || missing+=("$p")
	done
}

# build_packages: the same for a build of the module. Tools from other packages suffice.
build_packages() {
	local candidate
	missing=() other=''
	command -v make >/dev/null || missing+=(make)
	if grep -qs '^CONFIG_CC_IS_CLANG=y' "$kdir/include/config/auto.conf"; then
		command -v clang >/dev/null || missing+=("clang-$LLVM_VERSION")
		command -v ld.lld >/dev/null || missing+=("lld-$LLVM_VERSION")
		command -v llvm-objcopy >/dev/null || missing+=("llvm-$LLVM_VERSION")
	else
		command -v gcc >/dev/null || missing+=(gcc)
	fi
	! can_bind "$(bindgen_path)" || return 0
	candidate=$(apt-cache policy bindgen 2>/dev/null | sed -n 's/^ *Candidate: //p' || true)
	if new_enough "$candidate"; then
		missing+=(bindgen)
	elif ! command -v cargo >/dev/null; then
		other="bindgen $BINDGEN_LEAST or newer is missing: put it into PATH, or cargo, to build it"
	elif [ -n "$check" ]; then
		other="bindgen $BINDGEN_LEAST or newer is missing: cargo install --locked bindgen-cli"
	# The library that bindgen loads when it runs.
	elif ! [ -e "$LLVM_BIN/../lib/libclang.so.1" ]; then
		missing+=("libclang-$LLVM_VERSION-dev")
	fi
}

# rust_complaint: prints an error about the compiler, if any. That of Debian 12 is too old.
rust_complaint() {
	local version tool needed
	version=$(rustc -V 2>/dev/null || true)
	if [ -n "$kdir" ]; then
		needed=$(sed -n 's/^CONFIG_RUSTC_VERSION_TEXT=//p' "$kdir/include/config/auto.conf")
		needed=${needed//\"/}
		if ! grep -q '^CONFIG_RUST=y' "$kdir/include/config/auto.conf"; then
			echo "the kernel of KDIR=$kdir has no support for Rust (CONFIG_RUST)"
		elif ! rustc_of "$kdir" >/dev/null; then
			echo "the kernel was built by $needed, and a module has to be by the same: here is" \
				"${version:-no rustc}; that of a distribution's kernel is its own package of rustc"
		fi
	elif [ -z "$version" ] || ! command -v cargo >/dev/null; then
		echo "rustc and cargo (1.85 or newer) are missing: install rustup and run 'rustup default stable'"
	elif ! [[ $version =~ ^rustc\ ([0-9]+)\.([0-9]+) ]] || ((BASH_REMATCH[1] * 1000 + BASH_REMATCH[2] < 1085)); then
		echo "$version is too old, 1.85 or newer is needed: run 'rustup update stable'"
	else
		for tool in rustfmt clippy-driver; do
			command -v "$tool" >/dev/null || {
				echo "$tool is missing: 'rustup component add rustfmt clippy'," \
					"or install the packages of rustc's version"
				break
			}
		done
	fi
}

# install_packages COMPLAINT: reports all that is missing before anything is installed.
install_packages() {
	local complaint=$1 id
	if [ ${#missing[@]} = 0 ]; then
		[ -z "$complaint" ] || die "$complaint"
		return 0
	fi
	# shellcheck disable=SC2153
	id=$(sed -n 's/^ID=//p' "${OS_RELEASE:-/etc/os-release}" 2>/dev/null || true)
	[ "${id//\"/}" = debian ] ||
		die "what these Debian packages have is missing, and this system is not Debian:" \
			"${missing[*]}${complaint:+; and $complaint}"
	command -v apt-get >/dev/null ||
		die "these Debian packages are missing and there is no apt-get here:" \
			"${missing[*]}${complaint:+; and $complaint}"
	if [ "$(id -u)" != 0 ] || [ -n "$check" ]; then
		die "these packages are missing; as root: apt-get install ${missing[*]}${complaint:+; and $complaint}"
	fi
	[ -z "$complaint" ] || die "$complaint"
	say "installing ${#missing[@]} Debian packages: ${missing[*]}"
	run_logged apt-index apt-get update -q
	# If the index of packages was empty, the available versions are known only now.
	choose_llvm
	"$list"
	run_logged apt-install env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -q --no-install-recommends "${missing[@]}"
}

install_bindgen() {
	say "installing bindgen $BINDGEN_VERSION (about a minute)"
	run_logged bindgen cargo install --locked --root "$CACHE/cargo" bindgen-cli \
		--version "$BINDGEN_VERSION"
}

kdir='' check='' other='' list=packages
case ${SETUP:-} in
'' | install) ;;
check) check=y ;;
*) die "SETUP is check or install, not '$SETUP'" ;;
esac
case ${1:-} in
'') ;;
--build)
	kdir=${2:?usage: setup.sh [--build KDIR]} list=build_packages
	[ -f "$kdir/include/config/auto.conf" ] || die "KDIR=$kdir is not a configured kernel tree"
	;;
*) die "usage: setup.sh [--build KDIR]" ;;
esac

choose_llvm
"$list"
complaint=$(rust_complaint)
install_packages "$complaint${complaint:+${other:+; and }}$other"

if [ -n "$kdir" ]; then
	can_bind "$(bindgen_path)" || install_bindgen
	exit 0
fi

if [ ! -f "$(rustc --print sysroot)/lib/rustlib/src/rust/library/core/src/lib.rs" ]; then
	command -v rustup >/dev/null ||
		die "the Rust library source is missing: install the rust-src package of rustc $(rustc -V)"
	[ -z "$check" ] || die "the Rust library source is missing: rustup component add rust-src"
	say "adding the Rust library source"
	run_logged rust-src rustup component add rust-src
fi

if [ "$("$CACHE/cargo/bin/bindgen" --version 2>/dev/null)" != "bindgen $BINDGEN_VERSION" ]; then
	[ -z "$check" ] || die "bindgen $BINDGEN_VERSION is missing in $CACHE/cargo: run without SETUP=check"
	install_bindgen
fi

# A venv for each list of requirements, as checkouts that share the cache may have different lists.
venv=$(venv_dir)
if [ ! -f "$venv/.complete" ]; then
	[ -z "$check" ] || die "the Python packages of the tests are missing in $venv: run without SETUP=check"
	say "installing the test tools"
	rm -rf "$venv"
	run_logged venv python3 -m venv "$venv"
	run_logged pip "$venv/bin/pip" install --disable-pip-version-check -r "$TOP/scripts/requirements.txt"
	touch "$venv/.complete"
fi
