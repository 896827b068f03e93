#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# stock-kernel.sh KDIR: prints a build tree for the kernel whose headers are in KDIR.
# KDIR itself is printed if it has the metadata of the kernel's Rust crates. The header packages of Debian lack
# them, so rust/ alone is built here, once, from the source package of exactly that version and with the compiler
# of that kernel. Nothing is printed unless the outcome has the symbols that the kernel exports. The files of the
# system are only read.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

kdir=$(realpath -e "${1:?usage: stock-kernel.sh KDIR}") || die "there is no $1: the kernel's headers are missing"
conf=$kdir/include/config/auto.conf
[ -f "$conf" ] || die "$kdir is not a configured kernel tree: install the headers of the kernel that runs"
if [ -f "$kdir/rust/libkernel.rmeta" ]; then
	echo "$kdir"
	exit 0
fi

setting() { setting_of "$kdir" "$1"; }

release=$(cat "$kdir/include/config/kernel.release")
[ "$(setting CONFIG_RUST)" = y ] ||
	die "Linux $release was built without Rust (CONFIG_RUST): no module in Rust can be loaded into it"
common=$(sed -n 's/^include \(.*\)\/Makefile$/\1/p' "$kdir/Makefile" 2>/dev/null || true)
package=linux-headers-$release
version=$(dpkg-query -W -f '${Version}' "$package" 2>/dev/null || true)
{ [ -n "$version" ] && [ -d "$common" ]; } || die "$kdir lacks the metadata of the kernel's Rust crates" \
	"(rust/libkernel.rmeta). Of a tree of your own, build the kernel first. It is not of Debian's package $package;" \
	"another distribution may have a package with them, such as linux-lib-rust-$release"

# other_version PACKAGE SETTING PROGRAM: refuses a tool of another version, which would give other symbols or layouts.
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
mkdir -p "$out"
exec {lock}>"$out/.lock"
flock "$lock"
if [ -f "$out/.complete" ]; then
	echo "$out/obj"
	exit 0
fi

get_source() {
	local source=linux-source-$series
	say "fetching the source of Linux $release (164 MB)"
	mkdir -p "$out/download"
	(cd "$out/download" && run_logged "stock-download-$release" apt-get -o APT::Sandbox::User=root download "$source=$version") ||
		die "apt does not offer $source $version, the source of $package: add the suite that the kernel is from," \
			"run 'apt-get update', or upgrade the kernel and its headers"
	rm -rf "$out/src" "$out/obj"
	mkdir "$out/src"
	dpkg-deb --fsys-tarfile "$out/download/${source}_"*.deb |
		tar -xOf - --wildcards './usr/src/linux-source-*.tar.xz' |
		tar -xJf - -C "$out/src" --strip-components=1 --wildcards \
			"$source/rust" "$source/scripts" "$source/drivers/base" "$source/drivers/android"
	rm -rf "$out/download"
}

# A tree of its own: the headers, and what they lack. Links would lead to the system's files.
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
	# With a goal of that name the kernel's build takes its configuration as it is.
	# shellcheck disable=SC2016 # they are variables of make
	printf 'include %s/Makefile\nrust-install:\n\t%s scripts scripts/target.json\n\t%s rust\n' "$out/src" \
		'$(Q)$(MAKE) $(build)'= '$(Q)$(MAKE) $(build)'= | sed 's/= /=/' >"$out/rust.mk"
}

# The names of all that Rust code of the kernel exports, as this tree would have it and as the kernel has it.
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
