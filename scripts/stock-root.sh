#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# stock-root.sh: prints the path of a root of Debian 13 with Debian's own kernels of each series, their headers, and
# what the packages of this project depend on. It is made once, in the cache; "make test-stock" lays its changes over it.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

SUITE=trixie
SERIES=(7.2 7.3)
# What the packages of this project need, and what the programs of the tests do.
PACKAGES=(dkms gcc-14 make rustc rust-src bindgen xz-utils kmod python3 busybox-static iproute2 procps man-db bpftrace)

key=$(sha256sum "$0" | cut -c1-12)
root=$CACHE/stock-root-$SUITE-$key
exec {lock}>"$root.lock"
flock "$lock"
if [ -f "$root/.complete" ]; then
	echo "$root"
	exit 0
fi
[ "$(id -u)" = 0 ] || die "only root can make a root of another Debian: run this as root"
uri=$(mirror_of_debian "")

# inside COMMAND...: in the root, where no service may start.
inside() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"; }

say "making a root of Debian's $SUITE with its own kernels (600 MB to fetch)"
rm -rf "$root"
include=$(IFS=,; echo "${PACKAGES[*]}")
run_logged stock-root mmdebstrap --mode=root --variant=minbase --include="$include" \
	--aptopt='APT::Install-Recommends "false"' "$SUITE" "$root" \
	"deb $uri $SUITE main" "deb $uri $SUITE-backports main"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
run_logged stock-root-index env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$root" apt-get update -q

# The image itself would have an initramfs made, which no test boots.
wanted=()
for series in "${SERIES[@]}"; do
	release=$(inside apt-cache pkgnames "linux-headers-$series." | sed -n 's/^linux-headers-\(.*-amd64\)$/\1/p' |
		grep -v -e cloud -e rt- | sort -V | tail -n 1)
	[ -n "$release" ] || die "$SUITE-backports has no kernel of the series $series any more: change SERIES in $0"
	wanted+=("linux-headers-$release" "linux-binary-$release" "linux-modules-$release")
	releases+=("$release")
done
run_logged stock-root-kernels env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
	chroot "$root" apt-get install -y -q --no-install-recommends "${wanted[@]}"
for release in "${releases[@]}"; do
	inside depmod "$release"
done
inside apt-get clean
printf '%s\n' "${releases[@]}" >"$root/.kernels"
touch "$root/.complete"
echo "$root"
