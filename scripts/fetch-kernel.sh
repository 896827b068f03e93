#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# Fetches the Linux source as Debian packages it and prints the path of the unpacked tree.
# KERNEL_SERIES=7.3 in the environment selects a series. The default is the first supported series
# that the cache or the mirror has. KSRC=DIR uses an existing tree.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

if [ -n "${KSRC:-}" ]; then
	[ -f "$KSRC/Makefile" ] || die "KSRC=$KSRC is not a kernel source tree"
	realpath "$KSRC"
	exit 0
fi

wanted=("${SUPPORTED_SERIES[@]}")
if [ -n "${KERNEL_SERIES:-}" ]; then
	[[ " ${wanted[*]} " == *" $KERNEL_SERIES "* ]] ||
		die "KERNEL_SERIES=$KERNEL_SERIES is not one that this module is for: ${wanted[*]}"
	wanted=("$KERNEL_SERIES")
fi
# The package is in other suites of the mirror that apt is already set up for. So ask apt for the
# mirror's address, and keep the look-up away from the system's own lists.
apt=$CACHE/apt
opts=(-o "Dir::Etc::sourcelist=$apt/kernel.sources" -o Dir::Etc::sourceparts=/dev/null
	-o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root)

read_lists() {
	local tool uri
	for tool in apt-get dpkg-deb; do
		command -v "$tool" >/dev/null ||
			die "no $tool here to get the source of Linux ${wanted[*]} with: KSRC=DIR uses a tree that is there"
	done
	mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/download"
	uri=$(mirror_of_debian "or use KSRC=DIR with a tree that is there")
	cat >"$apt/kernel.sources" <<-SOURCES
		Types: deb
		URIs: $uri
		Suites: trixie-backports forky
		Components: main
		Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
	SOURCES
	run_logged apt-update apt-get "${opts[@]}" update
}

# offered SERIES: succeeds if the mirror has the source of a series.
offered() { [ -n "$(apt-cache "${opts[@]}" --names-only search "^linux-source-$1\$")" ]; }

known=
for series in "${wanted[@]}" ''; do
	[ -n "$series" ] || die "the mirror has the source of none of Linux ${wanted[*]} in trixie-backports and forky:" \
		"update these sources, or use KSRC=DIR with a tree of your own"
	src=$CACHE/linux-$series
	if [ -f "$src/.complete" ]; then
		echo "$src"
		exit 0
	fi
	# Not within an || list, where set -e does not apply to the commands of read_lists.
	if [ -z "$known" ]; then
		read_lists
		known=y
	fi
	! offered "$series" || break
done
say "fetching the source of Linux $series (164 MB)"
# shellcheck disable=SC2016
(cd "$apt/download" && run_logged apt-download apt-get "${opts[@]}" download \
	"linux-source-$series")
say "unpacking"
rm -rf "$CACHE/unpack" && mkdir -p "$CACHE/unpack"
dpkg-deb --fsys-tarfile "$apt"/download/linux-source-"$series"_*.deb |
	tar -xOf - --wildcards './usr/src/linux-source-*.tar.xz' | tar -xJf - -C "$CACHE/unpack"
rm -rf "$src"
mv "$CACHE/unpack/linux-source-$series" "$src"
rm -rf "$CACHE/unpack" "$apt/download"
touch "$src/.complete"
echo "$src"
