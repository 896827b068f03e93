#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# faulty-device.sh FLAVOR: builds soft-RoCE with the faults of tests/vm/faulty for the test kernel
# of a flavour, and prints the path of the module. The kernel and its own modules stay as they are,
# so a change of the faults costs half a minute. The key covers the driver's source and the faults.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
# Options of the calling make, such as -s, which would leave the log empty.
unset MAKEFLAGS MAKEOVERRIDES MFLAGS MAKELEVEL

flavor=${1:?usage: faulty-device.sh release|debug}
faults=$TOP/tests/vm/faulty
kernel=$("$TOP/scripts/build-kernel.sh" "$flavor")
src=$("$TOP/scripts/fetch-kernel.sh")
patched=$("$TOP/scripts/patch-kernel.sh" "$src")
driver=$patched/drivers/infiniband/sw/rxe
key=$({
	echo "$patched"
	cat "$faults"/* "$0"
} | sha256sum | cut -c1-12)
out=$kernel/faulty-$key

# Waits if another process builds it already.
exec {lock}>"$kernel/.faulty.lock"
flock "$lock"
if [ ! -f "$out/.complete" ]; then
	command -v spatch >/dev/null || die "no spatch here to build a faulty device with: install coccinelle"
	say "building soft-RoCE with faults for the $flavor kernel"
	rm -rf "$out"
	mkdir -p "$out"
	cp "$driver"/*.c "$driver"/*.h "$driver/Makefile" "$faults"/*.c "$faults"/*.h "$out"
	echo "rdma_rxe-y += rxe_faults.o rxe_guarded.o rxe_strict.o" >>"$out/Makefile"
	for file in rxe_comp.c rxe_cq.c rxe_mr.c rxe_qp.c rxe_req.c rxe_resp.c rxe_verbs.c rxe.c; do
		run_logged "faults-$file" spatch --very-quiet --no-includes --in-place --sp-file "$faults/rxe-faults.cocci" \
			"$out/$file"
	done
	# A hook without a place means that the driver's source has changed.
	sed -n 's/^[a-z].*\b\(rxe_[a-z_]*\)(.*);$/\1/p' "$faults/rxe_faults.h" |
		grep -v -e '^rxe_strict_[iev]' -e '^rxe_guarded_phys' | while read -r hook; do
		grep -q "\b$hook(" "$out"/rxe.c "$out"/rxe_c*.c "$out"/rxe_mr.c "$out"/rxe_re[qs]*.c "$out"/rxe_verbs.c ||
			die "rxe-faults.cocci no longer applies: nothing calls $hook()"
	done
	grep -q 'port.qp_gsi_index = 0' "$out/rxe_qp.c" || die "rxe-faults.cocci no longer applies to rxe_qp.c"
	run_logged "faulty-$flavor" make -C "$src" "O=$kernel" LLVM=1 "M=$out" modules
	touch "$out/.complete"
fi
echo "$out/rdma_rxe.ko"
