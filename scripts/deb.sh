#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# deb.sh: builds the Debian packages in build/deb, from a copy of the files that are committed or would be. Says what
# lintian finds, if that is installed, and fails if it is an error or a warning.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

version=$(<"$TOP/VERSION")
out=$TOP/build/deb
tree=$out/rds-rust-$version

# files: those of a checkout, whoever owns it, or all of an archive.
files() {
	if [ -e "$TOP/.git" ]; then
		git -C "$TOP" -c "safe.directory=$TOP" ls-files -z --cached --others --exclude-standard
	else
		find . -type f -not -path './build/*' -not -path '*/target/*' -print0
	fi
}

# The version is in VERSION alone, and what has changed in CHANGELOG.md. The date: that of the last change.
changelog() {
	local when=${SOURCE_DATE_EPOCH:-}
	[ -n "$when" ] || when=$(git -C "$TOP" -c "safe.directory=$TOP" log -1 --format=%ct 2>/dev/null) ||
		when=$(stat -c %Y "$TOP/VERSION")
	printf 'rds-rust (%s) UNRELEASED; urgency=medium\n\n  * See /usr/share/doc/*/changelog.gz.\n\n -- %s  %s\n' "$version" \
		"$(sed -n 's/^Maintainer: //p' "$TOP/debian/control")" "$(LC_ALL=C date -u -R -d "@$when")"
}

rm -rf "$out"
mkdir -p "$tree"
# A file may be gone that is still known to git.
(cd "$TOP" && files | while IFS= read -r -d '' file; do [ ! -f "$file" ] || printf '%s\0' "$file"; done |
	tar -c --null -T -) | tar -x -C "$tree"
changelog >"$tree/debian/changelog"
say "building the packages (about two minutes)"
# What cargo and rustc are here may not be of a package, as with rustup.
unset MAKEFLAGS MAKEOVERRIDES MFLAGS MAKELEVEL
(cd "$tree" && run_logged deb dpkg-buildpackage -b -d -us -uc)
if command -v lintian >/dev/null; then
	lintian --fail-on error,warning --suppress-tags bad-distribution-in-changes-file \
		"$out/rds-rust_${version}_"*.changes >&2 || die "lintian has found what is above in $out"
fi
rm -rf "$tree"
say "built:"
find "$out" -name '*.deb' | sort
