#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# stock-kernel.sh [--check] KDIR: prints a build tree for the kernel whose headers are in KDIR. With
# --check it prints no tree and creates nothing: it only prints the reason if there can be no tree.
# KDIR itself is printed if it has the metadata of the kernel's Rust crates. Debian's header
# packages lack them. So this script builds rust/ once, from the source package of exactly that
# version and with the compiler of that kernel. Nothing is printed unless the result has the symbols
# that the kernel exports. The files of the system are only read.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

only_check=''
if [ "${1:-}" = --check ]; then
	only_check=y
	shift
fi
kdir=$(realpath -e "${1:?usage: stock-kernel.sh [--check] KDIR}" 2>/dev/null) ||
	die "there is no $1: the kernel's headers are missing"
conf=$kdir/include/config/auto.conf
[ -f "$conf" ] || die "$kdir is not a configured kernel tree: install the headers of the kernel that runs"
setting() { setting_of "$kdir" "$1"; }

# answer TREE: prints the tree and ends the script.
answer() {
	[ -n "$only_check" ] || echo "$1"
	exit 0
}

release=$(cat "$kdir/include/config/kernel.release" 2>/dev/null || true)
if [ -f "$kdir/rust/libkernel.rmeta" ]; then
	[ -z "$only_check" ] || rustc_of "$kdir" >/dev/null ||
		die "Linux $release was built with $(setting CONFIG_RUSTC_VERSION_TEXT), which is not in PATH"
	answer "$kdir"
fi
[ "$(setting CONFIG_RUST)" = y ] ||
	die "Linux $release was built without Rust (CONFIG_RUST): no module in Rust can be loaded into it"
common=$(sed -n 's/^include \(.*\)\/Makefile$/\1/p' "$kdir/Makefile" 2>/dev/null || true)
package=linux-headers-$release
version=$(dpkg-query -W -f '${Version}' "$package" 2>/dev/null || true)
{ [ -n "$version" ] && [ -d "$common" ]; } || die "$kdir lacks the metadata of the kernel's Rust crates" \
	"(rust/libkernel.rmeta). Of a tree of your own, build the kernel first. It is not of Debian's package $package;" \
	"another distribution may have a package with them, such as linux-lib-rust-$release"

# other_version PACKAGE SETTING PROGRAM: fails for a tool of another version, whose symbols or
# layouts would differ.
other_version() {
	local here
	here=$("$3" --version 2>/dev/null | head -n 1) || true
	die "Linux $release was built with $(setting "$2"), and here is ${here:-none}." \
		"Install the package $1 from the suite of the kernel: apt-cache policy $1"
}

rustc=$(rustc_of "$kdir") || other_version rustc CONFIG_RUSTC_VERSION_TEXT "${RUSTC:-rustc}"
bindgen=$(tool_of_version "$(setting CONFIG_BINDGEN_VERSION_TEXT)" "${BINDGEN:-}" bindgen /usr/bin/bindgen) ||
	other_version bindgen CONFIG_BINDGEN_VERSION_TEXT "${BINDGEN:-bindgen}"
cc=$(setting CONFIG_CC_VERSION_TEXT)
cc=${cc%% *}
command -v "$cc" >/dev/null || die "Linux $release was built with $cc, which is missing: install the package ${cc##*-linux-gnu-}"
[ -f "$("$rustc" --print sysroot)/lib/rustlib/src/rust/library/core/src/lib.rs" ] ||
	die "the source of Rust's library is missing: install the package rust-src of $("$rustc" --version)"

series=$(cut -d. -f1,2 <<<"$release")
key=$(printf '%s\n' "$version" "$("$rustc" --version)" | sha256sum | cut -c1-12)
out=$CACHE/stock-$release-$key
source=linux-source-$series
installed=/usr/src/$source.tar.xz

# is_installed: succeeds if the source is installed on this machine and need not be fetched.
is_installed() { [ -f "$installed" ] && [ "$(dpkg-query -W -f '${Version}' "$source" 2>/dev/null)" = "$version" ]; }

if [ -f "$out/.complete" ]; then
	answer "$out/obj"
fi
is_installed || apt-cache show "$source=$version" >/dev/null 2>&1 ||
	die "apt does not offer $source $version, the source of $package: add the suite that the kernel is from," \
		"run 'apt-get update', or upgrade the kernel and its headers"
[ -z "$only_check" ] || exit 0

mkdir -p "$out"
exec {lock}>"$out/.lock"
flock "$lock"
if [ -f "$out/.complete" ]; then
	answer "$out/obj"
fi

# source_archive: writes the archive with the source to stdout.
source_archive() {
	if is_installed; then
		cat "$installed"
	else
		dpkg-deb --fsys-tarfile "$out/download/${source}_"*.deb | tar -xOf - --wildcards './usr/src/linux-source-*.tar.xz'
	fi
}

get_source() {
	if ! is_installed; then
		say "fetching the source of Linux $release (164 MB)"
		mkdir -p "$out/download"
		(cd "$out/download" && run_logged "stock-download-$release" \
			apt-get -o APT::Sandbox::User=root download "$source=$version") ||
			die "$source $version, the source of $package, could not be fetched. Without a network: install that package"
	fi
	rm -rf "$out/src" "$out/obj"
	mkdir "$out/src"
	source_archive | tar -xJf - -C "$out/src" --strip-components=1 --wildcards \
		"$source/rust" "$source/scripts" "$source/drivers/base" "$source/drivers/android"
	rm -rf "$out/download"
}

# make_tree: creates a separate tree: the headers, with the missing parts. Links would lead to the
# system's files.
make_tree() {
	local part
	for part in Makefile arch include; do
		cp -a "$common/$part" "$out/src/"
	done
	cp -aL "$kdir/tools" "$out/src/tools"
	cp -a "$kdir" "$out/obj"
	for part in scripts tools; do
		rm -rf "$out/obj/${part:?}"
		cp -aL "$kdir/$part" "$out/obj/$part"
	done
	printf 'KBUILD_OUTPUT=%s\ninclude %s/Makefile\n' "$out/obj" "$out/src" >"$out/obj/Makefile"
	sed -i "s|$kdir|$out/obj|" "$out/obj/.kernelvariables" 2>/dev/null || true
	# A goal with this name makes the kernel's build use the configuration without changes.
	# shellcheck disable=SC2016 # they are variables of make
	printf 'include %s/Makefile\nrust-install:\n\t%s scripts scripts/target.json\n\t%s rust\n' "$out/src" \
		'$(Q)$(MAKE) $(build)'= '$(Q)$(MAKE) $(build)'= | sed 's/= /=/' >"$out/rust.mk"
}

# compare_symbols: compares the exported symbols of the kernel's Rust code: those of this tree, and
# those of the kernel.
compare_symbols() {
	cat "$out"/obj/rust/exports_{core,helpers,bindings,kernel}_generated.h |
		grep -oE '\((_R|rust_helper_)\w*' | tr -d '(' | sort -u >"$out/symbols.built"
	awk '$2 ~ /^(_R|rust_helper_)/ { print $2 }' "$kdir/Module.symvers" | sort -u >"$out/symbols.kernel"
	local differ
	differ=$(comm -3 "$out/symbols.built" "$out/symbols.kernel" | wc -l)
	{ [ "$differ" = 0 ] && [ -s "$out/symbols.kernel" ]; } || die "of $(wc -l <"$out/symbols.kernel") Rust symbols of Linux" \
		"$release, $differ differ from those that were built. A module would be refused as it has unknown symbols:" \
		"is $("$rustc" --version) the package of the kernel's own suite?"
}

[ "${SETUP:-}" != check ] ||
	die "the Rust crates of Linux $release have not been built yet: make modules without SETUP=check builds them"
unset MAKEFLAGS MAKEOVERRIDES MFLAGS MAKELEVEL
get_source
make_tree
say "building the Rust crates of Linux $release, once for this kernel: 2 to 4 minutes"
run_logged "stock-rust-$release" make -C "$out/obj" -rR --no-print-directory -f "$out/rust.mk" -j"$(nproc)" need-compiler=1 \
	"srctree=$out/src" objtree=. "RUSTC=$rustc" "BINDGEN=$bindgen" rust-install
compare_symbols
touch "$out/.complete"
echo "$out/obj"
