#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# dkms-build.sh [--check] KDIR: builds the module for dkms; with --check, only says why that cannot be, if it cannot.
# No package is installed, as this may run while the system's package manager installs a kernel. What a kernel's headers
# lack of its Rust code is built from its source package, which is fetched if it is not installed.
set -euo pipefail
cd "$(dirname "$0")/.."

# Who installs packages may have no home, or another one each time.
export RDS_CACHE=${RDS_CACHE:-/var/cache/rds_rust}
if [ "${1:-}" = --check ]; then
	exec scripts/stock-kernel.sh --check "${2:?usage: dkms-build.sh [--check] KDIR}"
fi
# Of kernels that have gone: 0.3 GB each.
for tree in "$RDS_CACHE"/stock-[0-9]*; do
	release=${tree##*/stock-}
	[ -e "/lib/modules/${release%-*}/build" ] || rm -rf "$tree"
done
kdir=$(scripts/stock-kernel.sh "${1:?usage: dkms-build.sh [--check] KDIR}")
exec make modules "KDIR=$kdir" BUILD=build/dkms SETUP=check
