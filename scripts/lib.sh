# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2034 # the scripts that source this use what it sets
# Shared by the set-up scripts: where the cache is, and how to talk to people.

# A build that the system starts itself may have no HOME.
CACHE=${RDS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/rds_rust}
TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# The newest clang that is installed where there is none of this version, with which the tests are run.
LLVM_VERSION=19
for dir in "${LLVM_ROOT:=/usr/lib}"/llvm-*; do
	[ ! -x "$LLVM_ROOT/llvm-19/bin/clang" ] || break
	if [[ ${dir##*-} =~ ^[0-9]+$ ]] && [ -x "$dir/bin/clang" ] && ((${dir##*-} > LLVM_VERSION)); then
		LLVM_VERSION=${dir##*-}
	fi
done
LLVM_BIN=$LLVM_ROOT/llvm-$LLVM_VERSION/bin
BINDGEN_VERSION=0.72.1
# The oldest one that makes the module's bindings.
BINDGEN_LEAST=0.71.1
# The series of Linux that the module is for, newest first: test kernels are of the first one that is to be had.
SUPPORTED_SERIES=(7.3 7.2)
export PATH="$LLVM_BIN:$CACHE/cargo/bin:$PATH"
# Who installs or packages may have no home; who writes there says what is wrong.
mkdir -p "$CACHE" 2>/dev/null || true

# Everything that people read goes to stderr: stdout is for answers.
say() { printf '== %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# progress LOG: how far a command is that run_logged runs.
progress() { tail -n 1 "$1" | cut -c1-100; }

# run_logged NAME COMMAND...: runs quietly but for a line a minute, shows the end of the log on failure.
run_logged() {
	local name=$1 log=$CACHE/log/$1.log ticker status=0
	shift
	mkdir -p "$CACHE/log"
	# Its sleep ends with it: it would keep the lock of a caller, and the next one waiting.
	(
		trap 'kill "$!" 2>/dev/null; exit' TERM
		while sleep "${RDS_TICK:-60}" >/dev/null 2>&1 & wait "$!" && kill -0 $$; do
			say "still at $name: $(progress "$log")"
		done
	) &
	ticker=$!
	"$@" >"$log" 2>&1 </dev/null || status=$?
	kill "$ticker" 2>/dev/null || true
	wait "$ticker" 2>/dev/null || true
	[ "$status" != 0 ] || return 0
	printf 'error: %s failed; the end of %s:\n' "$name" "$log" >&2
	tail -n 40 "$log" >&2
	return 1
}

# mirror_of_debian HINT: prints the address of the mirror of Debian that apt is set up for, or says that there is none,
# and what else to do.
mirror_of_debian() {
	local uri
	# shellcheck disable=SC2016 # it is for apt
	uri=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' | grep -v security | head -n 1 || true)
	[ -n "$uri" ] || die "apt knows no mirror of Debian; run 'apt-get update' and try again${1:+, $1}"
	echo "$uri"
}

# new_enough VERSION: whether a bindgen of this version makes the module's bindings.
new_enough() {
	[[ ${1:-} =~ ^([0-9]+)\.([0-9]+)\.([0-9]+) ]] || return 1
	local least
	IFS=. read -ra least <<<"$BINDGEN_LEAST"
	((BASH_REMATCH[1] * 1000000 + BASH_REMATCH[2] * 1000 + BASH_REMATCH[3] >=
		least[0] * 1000000 + least[1] * 1000 + least[2]))
}

# can_bind PROGRAM: whether it is such a bindgen.
can_bind() { local told; told=$("$1" --version 2>/dev/null) && new_enough "${told#bindgen }"; }

# bindgen_path: that of BINDGEN, or the one of the cache, which comes first in PATH, or that of the system.
bindgen_path() { echo "${BINDGEN:-$(command -v bindgen || echo "$CACHE/cargo/bin/bindgen")}"; }

# tool_of_version WANTED PROGRAM...: the path of the first of these programs that says that it is this version.
tool_of_version() {
	local wanted=$1 program
	shift
	for program in "$@"; do
		command -v "${program:-none given}" >/dev/null || continue
		[ "$("$program" --version 2>/dev/null | head -n 1)" != "$wanted" ] || {
			command -v "$program"
			return
		}
	done
	return 1
}

# setting_of KDIR NAME: a value of a kernel's configuration, without quotes.
setting_of() { sed -n "s/\"//g; s/^$2=//p" "$1/include/config/auto.conf" 2>/dev/null; }

# rustc_of KDIR: the compiler that built a kernel, or nothing. rustup's comes before the system's in PATH.
rustc_of() { tool_of_version "$(setting_of "$1" CONFIG_RUSTC_VERSION_TEXT)" "${RUSTC:-}" rustc /usr/bin/rustc; }

# venv_dir: where the Python tools of this checkout are.
venv_dir() { echo "$CACHE/venv-$(sha256sum "$TOP/scripts/requirements.txt" | cut -c1-12)"; }

# cache_key: a name for what these compilers make of what is read.
cache_key() {
	{
		cat
		rustc -V
		"$LLVM_BIN/clang" --version | head -n 1
	} | sha256sum | cut -c1-12
}
