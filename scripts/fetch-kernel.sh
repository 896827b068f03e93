#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# Gets the Linux source as Debian packages it and prints the path of the unpacked tree.
# KSRC=DIR uses a tree that is already there.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

if [ -n "${KSRC:-}" ]; then
	[ -f "$KSRC/Makefile" ] || die "KSRC=$KSRC is not a kernel source tree"
	realpath "$KSRC"
	exit 0
fi

src=$CACHE/linux-$KERNEL_SERIES
if [ -f "$src/.complete" ]; then
	echo "$src"
	exit 0
fi

# The package lives in other suites of the mirror that apt is already set up for, so ask apt
# where that is and keep the look-up away from the system's own lists.
for tool in apt-get dpkg-deb; do
	command -v "$tool" >/dev/null ||
		die "no $tool here to get the Linux $KERNEL_SERIES source with: KSRC=DIR uses a tree that is there"
done
say "fetching the Linux $KERNEL_SERIES source (164 MB)"
apt=$CACHE/apt
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/download"
# shellcheck disable=SC2016
uri=$(apt-get indextargets --format '$(REPO_URI)' | grep -v security | head -n 1 || true)
[ -n "$uri" ] || die "apt knows no mirror; run 'apt-get update' and try again"
cat >"$apt/kernel.sources" <<SOURCES
Types: deb
URIs: $uri
Suites: trixie-backports forky
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCES
opts=(-o "Dir::Etc::sourcelist=$apt/kernel.sources" -o Dir::Etc::sourceparts=/dev/null
	-o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root)
run_logged apt-update apt-get "${opts[@]}" update
# shellcheck disable=SC2016
(cd "$apt/download" && run_logged apt-download apt-get "${opts[@]}" download \
	"linux-source-$KERNEL_SERIES")
say "unpacking"
rm -rf "$CACHE/unpack" && mkdir -p "$CACHE/unpack"
dpkg-deb --fsys-tarfile "$apt"/download/linux-source-"$KERNEL_SERIES"_*.deb |
	tar -xOf - --wildcards './usr/src/linux-source-*.tar.xz' | tar -xJf - -C "$CACHE/unpack"
rm -rf "$src"
mv "$CACHE/unpack/linux-source-$KERNEL_SERIES" "$src"
rm -rf "$CACHE/unpack" "$apt/download"
touch "$src/.complete"
echo "$src"
