#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# dkms-build.sh [--check] KDIR: builds the module for dkms. --check builds nothing, and prints the
# reason if a build is not possible.
# No package is installed, as this may run while the system's package manager installs a kernel.
# Rust metadata that a kernel's headers lack is built from the kernel's source package, which is
# fetched if it is not installed.
set -euo pipefail
cd "$(dirname "$0")/.."

# A package manager may run without HOME, or with another one each time.
export RDS_CACHE=${RDS_CACHE:-/var/cache/rds_rust}
if [ "${1:-}" = --check ]; then
	exec scripts/stock-kernel.sh --check "${2:?usage: dkms-build.sh [--check] KDIR}"
fi
# Removes the trees of removed kernels: 0.3 GB each.
for tree in "$RDS_CACHE"/stock-[0-9]*; do
	release=${tree##*/stock-}
	[ -e "/lib/modules/${release%-*}/build" ] || rm -rf "$tree"
done
kdir=$(scripts/stock-kernel.sh "${1:?usage: dkms-build.sh [--check] KDIR}")
exec make modules "KDIR=$kdir" BUILD=build/dkms SETUP=check
