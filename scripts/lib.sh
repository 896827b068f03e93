# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2034 # the scripts that source this use what it sets
# Shared by the set-up scripts: where the cache is, and how to talk to people.

CACHE=${RDS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rds_rust}
TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
LLVM_BIN=/usr/lib/llvm-19/bin
BINDGEN_VERSION=0.72.1
KERNEL_SERIES=7.2
export PATH="$LLVM_BIN:$CACHE/cargo/bin:$PATH"
mkdir -p "$CACHE"

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
	( while sleep "${RDS_TICK:-60}" >/dev/null 2>&1 && kill -0 $$; do
		say "still at $name: $(progress "$log")"
	done ) &
	ticker=$!
	"$@" >"$log" 2>&1 </dev/null || status=$?
	kill "$ticker" 2>/dev/null || true
	wait "$ticker" 2>/dev/null || true
	[ "$status" != 0 ] || return 0
	printf 'error: %s failed; the end of %s:\n' "$name" "$log" >&2
	tail -n 40 "$log" >&2
	return 1
}

# venv_dir: where the Python tools of this checkout are.
venv_dir() { echo "$CACHE/venv-$(sha256sum "$TOP/scripts/requirements.txt" | cut -c1-12)"; }

# cache_key: a name for what these compilers make of what is read.
cache_key() {
	{
		cat
		rustc -V
		clang-19 --version | head -n 1
	} | sha256sum | cut -c1-12
}
