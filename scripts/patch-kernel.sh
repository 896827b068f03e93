#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# patch-kernel.sh SOURCE [PATCHES]: prints the path of a copy of a kernel source tree with the
# semantic patches of configs/patches (or PATCHES) applied. Creates it if it does not exist. SOURCE
# stays unchanged.
#
# Each patch names the files that it changes, with the number of lines that it adds and removes:
#   // Changes: drivers/infiniband/sw/rxe/rxe_pool.c +3 -0
# A patch with another result no longer fits the source, and nothing is built with a part of it.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

src=$(realpath "${1:?usage: patch-kernel.sh SOURCE [PATCHES]}")
patches=$(realpath "${2:-$TOP/configs/patches}")
files=("$patches"/*.cocci)
[ -f "${files[0]}" ] || die "no semantic patches in $patches"

version=$(make -s -C "$src" kernelversion)
key=$({
	echo "$version"
	cat "${files[@]}"
} | sha256sum | cut -c1-12)
out=$src-patched-$key
if [ -f "$out/.complete" ]; then
	echo "$out"
	exit 0
fi
command -v spatch >/dev/null ||
	die "no spatch here to patch the kernel source with: install coccinelle, or set UNPATCHED=1 to do without"

# Waits if another process patches it already.
exec {lock}>"$out.lock"
flock "$lock"
if [ -f "$out/.complete" ]; then
	echo "$out"
	exit 0
fi
say "patching the kernel source"
rm -rf "$out" "$out.new"
cp -al "$src" "$out.new"
# The hard links share their content with SOURCE, so each changed file is created again.
rm -f "$out.new/.complete"

# lines SIDE OLD NEW: prints the number of lines that only one of two files has. Lines without a
# word do not count, as versions of spatch place braces differently.
lines() { diff "$2" "$3" | grep -c "^$1.*[[:alnum:]]" || true; }

mkdir -p "$CACHE/log"

apply() {
	local patch=$1 name log file want found before
	name=$(basename "$patch")
	log=$CACHE/log/$name.log
	grep -q '^// Changes: ' "$patch" || die "$name does not say what it changes"
	while read -r file want; do
		[ -f "$out.new/$file" ] || die "$name: this kernel source has no $file"
		before=$out.new/$file.before
		mv "$out.new/$file" "$before"
		cp -p "$before" "$out.new/$file"
		if ! spatch --very-quiet --no-includes --in-place --sp-file "$patch" "$out.new/$file" >"$log" 2>&1 </dev/null
		then
			tail -n 40 "$log" >&2
			die "$name: spatch failed on $file"
		fi
		found="+$(lines '>' "$before" "$out.new/$file") -$(lines '<' "$before" "$out.new/$file")"
		[ "$found" != "+0 -0" ] || die "$name no longer applies: it changes nothing in $file"
		[ "$found" = "$want" ] ||
			die "$name no longer applies: it should change $want lines of $file, and changes $found"
		rm "$before"
	done < <(sed -n 's|^// Changes: *||p' "$patch")
}
for patch in "${files[@]}"; do
	apply "$patch"
done
# The file is only for readers.
(cd "$(dirname "$src")" && diff -urN "$(basename "$src")" "$(basename "$out").new" -x '.*') \
	>"$out.new/.patches.diff" || true
touch "$out.new/.complete"
mv "$out.new" "$out"
echo "$out"
