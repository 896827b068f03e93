#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# deb.sh: builds the Debian packages in build/deb, from a copy of the files that are committed or
# would be. Prints lintian's output, if lintian is installed, and fails on errors and warnings.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

version=$(<"$TOP/VERSION")
out=$TOP/build/deb
tree=$out/rds-rust-$version

# files: lists the files of a checkout, whoever owns it, or all files of an unpacked archive.
files() {
	if [ -e "$TOP/.git" ]; then
		git -C "$TOP" -c "safe.directory=$TOP" ls-files -z --cached --others --exclude-standard
	else
		find . -type f -not -path './build/*' -not -path '*/target/*' -print0
	fi
}

# changelog: prints a Debian change log. VERSION alone has the version, and CHANGELOG.md has the
# changes. The date is that of the last commit.
changelog() {
	local when=${SOURCE_DATE_EPOCH:-}
	[ -n "$when" ] || when=$(git -C "$TOP" -c "safe.directory=$TOP" log -1 --format=%ct 2>/dev/null) ||
		when=$(stat -c %Y "$TOP/VERSION")
	printf 'rds-rust (%s) UNRELEASED; urgency=medium\n\n  * See /usr/share/doc/*/changelog.gz.\n\n -- %s  %s\n' "$version" \
		"$(sed -n 's/^Maintainer: //p' "$TOP/debian/control")" "$(LC_ALL=C date -u -R -d "@$when")"
}

rm -rf "$out"
mkdir -p "$tree"
# Git may still list a file that has been removed.
(cd "$TOP" && files | while IFS= read -r -d '' file; do [ ! -f "$file" ] || printf '%s\0' "$file"; done |
	tar -c --null -T -) | tar -x -C "$tree"
changelog >"$tree/debian/changelog"
say "building the packages (about two minutes)"
# cargo and rustc may come from rustup and not from packages, so -d skips the check of dependencies.
unset MAKEFLAGS MAKEOVERRIDES MFLAGS MAKELEVEL
(cd "$tree" && run_logged deb dpkg-buildpackage -b -d -us -uc)
if command -v lintian >/dev/null; then
	lintian --fail-on error,warning --suppress-tags bad-distribution-in-changes-file \
		"$out/rds-rust_${version}_"*.changes >&2 || die "lintian has found what is above in $out"
fi
rm -rf "$tree"
say "built:"
find "$out" -name '*.deb' | sort
