#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# install.sh install|uninstall KDIR BUILD: puts the module that is in BUILD, and the files of dist/, where the
# kernel of KDIR looks for them, below DESTDIR if that is set; or takes them away. Builds nothing.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
# Where Debian has it, for people who became root without a new environment.
PATH=$PATH:/usr/sbin:/sbin

usage='usage: install.sh install|uninstall KDIR BUILD'
what=${1:?$usage} kdir=${2:?$usage} build=${3:?$usage}
root=${DESTDIR:-}
root=${root%/}
[ -z "$root" ] || [[ $root = /* ]] || die "DESTDIR=$root is not an absolute path"

[[ $root != *[[:space:]]* ]] || die "DESTDIR=$root has a space in it, which the kernel's build cannot have"

if [ -f "$kdir/include/config/kernel.release" ]; then
	release=$(<"$kdir/include/config/kernel.release")
# The headers may go before the module does.
elif [ "$what" = uninstall ] && [[ $kdir =~ ^/lib/modules/([^/]+)/build/?$ ]]; then
	release=${BASH_REMATCH[1]}
else
	die "KDIR=$kdir is not a configured kernel tree"
fi
modules=$root/lib/modules/$release

# The directory of a package has no kernel: what installs the package calls depmod there.
index() {
	[ -z "$root" ] || [ -e "$modules/modules.builtin" ] || return 0
	depmod ${root:+-b "$root"} "$release"
}

# dist_files: as they are named below dist/, and below /usr/lib.
dist_files() { (cd "$TOP/dist" && find . -name '*.conf' -printf '%P\n'); }

case $what in
install)
	[ -f "$build/rds_rust.ko" ] || die "there is no $build/rds_rust.ko: make modules KDIR=$kdir"
	made=$(modinfo -F vermagic "$build/rds_rust.ko")
	[ "${made%% *}" = "$release" ] ||
		die "$build/rds_rust.ko is for Linux ${made%% *}: make modules KDIR=$kdir"
	# The kernel's own way, which also compresses and signs modules if the kernel was built to.
	"$TOP/scripts/kmake.sh" "$kdir" M="$TOP" MO="$build" INSTALL_MOD_PATH="$root" INSTALL_MOD_DIR=updates \
		INSTALL_MOD_STRIP=1 DEPMOD=true modules_install
	dist_files | while read -r file; do
		install -D -m 644 "$TOP/dist/$file" "$root/usr/lib/$file"
	done
	index
	say "installed for Linux $release; to load it: modprobe rds_rust"
	;;
uninstall)
	rm -f "$modules"/updates/rds_rust.ko{,.gz,.xz,.zst}
	index
	others=$(find "$root/lib/modules/" -name 'rds_rust.ko' -o -name 'rds_rust.ko.[gxz]*' 2>/dev/null || true)
	if [ -n "$others" ]; then
		say "the files in /usr/lib stay: this or another kernel has the module, too"
	else
		dist_files | while read -r file; do
			rm -f "$root/usr/lib/$file"
		done
	fi
	say "removed from Linux $release"
	;;
*) die "$usage" ;;
esac
