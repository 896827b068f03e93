# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2034 # the scripts that source this use what it sets
# Functions and variables of the set-up scripts: the paths of the cache and of tools, and messages.

# A build that the system starts may have no HOME.
CACHE=${RDS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/rds_rust}
TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# The clang of the tests. If it is not installed, the newest installed one takes its place.
LLVM_VERSION=19
for dir in "${LLVM_ROOT:=/usr/lib}"/llvm-*; do
	[ ! -x "$LLVM_ROOT/llvm-19/bin/clang" ] || break
	if [[ ${dir##*-} =~ ^[0-9]+$ ]] && [ -x "$dir/bin/clang" ] && ((${dir##*-} > LLVM_VERSION)); then
		LLVM_VERSION=${dir##*-}
	fi
done
LLVM_BIN=$LLVM_ROOT/llvm-$LLVM_VERSION/bin
BINDGEN_VERSION=0.72.1
# The oldest bindgen that can generate the module's bindings.
BINDGEN_LEAST=0.71.1
# Supported series of Linux, newest first: test kernels are of the first one that is available.
SUPPORTED_SERIES=(7.3 7.2)
export PATH="$LLVM_BIN:$CACHE/cargo/bin:$PATH"
# A package manager may have no usable HOME. A script that writes into the cache reports the error.
mkdir -p "$CACHE" 2>/dev/null || true

# Messages go to stderr: stdout is for results.
say() { printf '== %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# progress LOG: prints the progress of a command that run_logged runs.
progress() { tail -n 1 "$1" | cut -c1-100; }

# run_logged NAME COMMAND...: runs a command with a message a minute. On failure it prints the end
# of the log.
run_logged() {
	local name=$1 log=$CACHE/log/$1.log ticker status=0
	shift
	mkdir -p "$CACHE/log"
	# The ticker kills its sleep when it ends. A sleep left behind would still hold the caller's lock.
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

# mirror_of_debian HINT: prints the address of the Debian mirror that apt is set up for. If there is
# none, it fails, and prints HINT as an alternative.
mirror_of_debian() {
	local uri
	# shellcheck disable=SC2016 # it is for apt
	uri=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' | grep -v security | head -n 1 || true)
	[ -n "$uri" ] || die "apt knows no mirror of Debian; run 'apt-get update' and try again${1:+, $1}"
	echo "$uri"
}

# new_enough VERSION: succeeds if a bindgen of this version can generate the module's bindings.
new_enough() {
	[[ ${1:-} =~ ^([0-9]+)\.([0-9]+)\.([0-9]+) ]] || return 1
	local least
	IFS=. read -ra least <<<"$BINDGEN_LEAST"
	((BASH_REMATCH[1] * 1000000 + BASH_REMATCH[2] * 1000 + BASH_REMATCH[3] >=
		least[0] * 1000000 + least[1] * 1000 + least[2]))
}

# can_bind PROGRAM: succeeds if the program is such a bindgen.
can_bind() { local told; told=$("$1" --version 2>/dev/null) && new_enough "${told#bindgen }"; }

# bindgen_path: prints $BINDGEN, or the bindgen of the cache, which is first in PATH, or the
# system's.
bindgen_path() { echo "${BINDGEN:-$(command -v bindgen || echo "$CACHE/cargo/bin/bindgen")}"; }

# tool_of_version WANTED PROGRAM...: prints the path of the first program that reports this version.
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

# setting_of KDIR NAME: prints a value of a kernel's configuration, without quotes.
setting_of() { sed -n "s/\"//g; s/^$2=//p" "$1/include/config/auto.conf" 2>/dev/null; }

# rustc_of KDIR: prints the compiler that built a kernel, or nothing. In PATH, rustup's is first.
rustc_of() { tool_of_version "$(setting_of "$1" CONFIG_RUSTC_VERSION_TEXT)" "${RUSTC:-}" rustc /usr/bin/rustc; }

# venv_dir: prints the folder of this checkout's Python tools.
venv_dir() { echo "$CACHE/venv-$(sha256sum "$TOP/scripts/requirements.txt" | cut -c1-12)"; }

# cache_key: prints a key for the results of these compilers with the input on stdin.
cache_key() {
	{
		cat
		rustc -V
		"$LLVM_BIN/clang" --version | head -n 1
	} | sha256sum | cut -c1-12
}
