#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# install.sh install|uninstall KDIR BUILD: installs the module in BUILD for the kernel of KDIR, with
# the files of dist/ and the manual page, below DESTDIR if that is set; or removes them.
# install.sh WHAT...: installs parts for packages. files: those of dist/, and the page; programs:
# the tools, with their pages, completions and examples; source: the files from which DKMS builds
# the module. Programs and pages go below PREFIX. Nothing is built.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
# The folder of depmod in Debian, for a user who became root without a new environment.
PATH=$PATH:/usr/sbin:/sbin

usage='usage: install.sh install|uninstall KDIR BUILD, or install.sh files|programs|source...'
root=${DESTDIR:-}
root=${root%/}
[ -z "$root" ] || [[ $root = /* ]] || die "DESTDIR=$root is not an absolute path"

[[ $root != *[[:space:]]* ]] || die "DESTDIR=$root has a space in it, which the kernel's build cannot have"

prefix=${PREFIX:-/usr/local}
programs=(rds-info rds-ping rds-stress rds-verify)
page=share/man/man7/rds_rust.7
# The output of "make programs".
made=${PROGRAMS:-$TOP/build}
binaries=$made/tools/release
share=$made/share
# Files for other programs, below the prefix's share/rds-rust/, and their folders here.
extras=(tools/two-hosts.sh tools/wireshark/rds.lua examples/monitoring/{rds.rules.yml,rds-metrics.service,rds-metrics.timer,sos_rds.py}
	tools/bpftrace/rds-{congestion,cpus,drops,latency,rdma-latency,rdma-rate,sizes,stalls,steps,throughput}.bt)

# dist_files: lists the paths below dist/, which are also those below /usr/lib.
dist_files() { (cd "$TOP/dist" && find . -name '*.conf' -printf '%P\n'); }

# share_files: lists the paths below build/share, which are also those below the prefix's share/.
share_files() { [ ! -d "$share" ] || (cd "$share" && find . -type f -printf '%P\n'); }

install_files() {
	dist_files | while read -r file; do
		install -D -m 644 "$TOP/dist/$file" "$root/usr/lib/$file"
	done
	install -D -m 644 "$TOP/Documentation/rds_rust.7" "$root$prefix/$page"
}

# copy FILE TO: installs a file of the source tree, as executable as it is there.
copy() { install -D -m "$([ -x "$TOP/$1" ] && echo 755 || echo 644)" "$TOP/$1" "$2"; }

install_programs() {
	local program file
	for program in "${programs[@]}"; do
		[ -x "$binaries/$program" ] || die "there is no $binaries/$program: make programs"
		install -D -m 755 -s "$binaries/$program" "$root$prefix/bin/$program"
	done
	share_files | while read -r file; do
		install -D -m 644 "$share/$file" "$root$prefix/share/$file"
	done
	for file in "${extras[@]}"; do
		copy "$file" "$root$prefix/share/rds-rust/${file##*/}"
	done
}

# install_source: installs the files that a build of the module reads, and no tests or tools.
install_source() {
	local to path
	to=$root/usr/src/rds-rust-$(<"$TOP/VERSION")
	rm -rf "$to"
	while read -r path; do
		copy "$path" "$to/$path"
	done < <(cd "$TOP" && find COPYING Kbuild Kconfig LICENSES Makefile VERSION af_rds bindings cm cong conn dist dkms.conf \
		ib_transport kapi loop_transport msg namespaces.rs params.rs proto rdma_mem rds_core.rs recv_pool \
		socket stats tcp_transport trace.rs uapi \
		scripts/{dkms-build,install,kmake,lib,setup,stock-kernel}.sh \
		-type f -not -name '*.o' -not -name '.*' -not -path '*/generated.rs' -not -name trace_names.h)
	[ -n "$root" ] || say "to build the module: dkms install rds-rust/$(<"$TOP/VERSION")"
}

case ${1:?$usage} in
files | programs | source)
	for what; do
		case $what in
		files | programs | source) "install_$what" ;;
		*) die "$usage" ;;
		esac
	done
	exit 0
	;;
esac

what=$1 kdir=${2:?$usage} build=${3:?$usage}
if [ -f "$kdir/include/config/kernel.release" ]; then
	release=$(<"$kdir/include/config/kernel.release")
# The headers may be removed before the module is.
elif [ "$what" = uninstall ] && [[ $kdir =~ ^/lib/modules/([^/]+)/build/?$ ]]; then
	release=${BASH_REMATCH[1]}
else
	die "KDIR=$kdir is not a configured kernel tree"
fi
modules=$root/lib/modules/$release

# index: runs depmod. A package's folder has no kernel: installing the package runs depmod later.
index() {
	[ -z "$root" ] || [ -e "$modules/modules.builtin" ] || return 0
	depmod ${root:+-b "$root"} "$release"
}

case $what in
install)
	[ -f "$build/rds_rust.ko" ] || die "there is no $build/rds_rust.ko: make modules KDIR=$kdir"
	made=$(modinfo -F vermagic "$build/rds_rust.ko")
	[ "${made%% *}" = "$release" ] ||
		die "$build/rds_rust.ko is for Linux ${made%% *}: make modules KDIR=$kdir"
	# The kernel's own target, which also compresses and signs modules if the kernel is configured so.
	"$TOP/scripts/kmake.sh" "$kdir" M="$TOP" MO="$build" INSTALL_MOD_PATH="$root" INSTALL_MOD_DIR=updates \
		INSTALL_MOD_STRIP=1 DEPMOD=true modules_install
	install_files
	[ ! -d "$share" ] || install_programs
	index
	if modinfo -F alias "$build/rds_rust.ko" | grep -qx rds_rdma; then
		say "installed for Linux $release; to load it: modprobe rds_rust"
	else
		say "installed for Linux $release, without RDMA; to load it: modprobe rds_rust tcp=1"
	fi
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
		rm -f "$root$prefix/$page"
		# Other packages may have programs of these names there.
		[ ! -d "$share" ] || rm -f "${programs[@]/#/$root$prefix/bin/}"
		share_files | while read -r file; do
			rm -f "$root$prefix/share/$file"
		done
		for file in "${extras[@]}"; do
			rm -f "$root$prefix/share/rds-rust/${file##*/}"
		done
		rmdir "$root$prefix/share/rds-rust" 2>/dev/null || true
	fi
	say "removed from Linux $release"
	;;
*) die "$usage" ;;
esac
