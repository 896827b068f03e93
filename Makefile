# SPDX-License-Identifier: GPL-2.0
#
# Two readers: people, who get the targets of scripts/targets.mk ("make help"), and the kernel's
# build, which reads the part for Kbuild. In the kernel tree (net/rds_rust) only the latter counts.

ifneq ($(KERNELRELEASE),)

# Out of tree no Kconfig has been read, so the options that Kconfig would set have defaults here.
CONFIG_RDS_RUST ?= m
ifeq ($(KBUILD_EXTMOD),)
rds-kunit := $(CONFIG_RDS_RUST_KUNIT_TEST)
else
rds-kunit ?= $(CONFIG_KUNIT)
endif

obj-$(CONFIG_RDS_RUST) += rds_rust.o
rds_rust-y := rds_core.o bindings/helpers.o bindings/helpers_addr.o bindings/helpers_fault.o \
	bindings/helpers_mr.o bindings/helpers_params.o bindings/helpers_rdma.o bindings/helpers_trace.o

KCOV_INSTRUMENT := $(rds-kcov)

# For scripts/decode_stacktrace.sh, and for profiles by line, if the kernel was built without.
ifneq ($(KBUILD_EXTMOD),)
ifeq ($(CONFIG_DEBUG_INFO),)
ccflags-y += -g
rustflags-y += -Cdebuginfo=1
endif
endif

rds_rust-$(rds-kunit) += bindings/helpers_fake.o bindings/helpers_fake_suite.o
rustflags-$(rds-kunit) += --cfg rds_kunit
ccflags-$(rds-kunit) += -DRDS_RUST_KUNIT
# Some suites need more hardware than the machine has that kunit.py boots.
ifneq ($(KBUILD_EXTMOD),)
rds_rust-$(rds-kunit) += bindings/helpers_kunit.o
rustflags-$(rds-kunit) += --cfg rds_kunit_iommu
ccflags-$(rds-kunit) += -DRDS_RUST_KUNIT_IOMMU
endif
ccflags-y += -I$(src)/bindings

# Rust reads the bindings with include!(env!("RDS_BINDINGS")): they depend on the kernel's
# configuration, so they are made anew for each kernel and live among the objects.
export RDS_BINDINGS := $(abspath $(obj)/bindings/generated.rs)

rds-bindgen-flags = $(shell grep -Ev '^\#|^$$|lru_status' $(srctree)/rust/bindgen_parameters) \
	$(shell grep -Ev '^\#|^$$' $(src)/bindings/bindgen_parameters)
rds-bindgen-cflags = $(filter-out -fzero-init-padding-bits=% -mrecord-mcount $(CC_FLAGS_LTO), \
	$(c_flags)) -w --target=x86_64-linux-gnu -fno-builtin -D__BINDGEN__ -DMODULE

quiet_cmd_rds_bindgen = BINDGEN $@
      cmd_rds_bindgen = $(BINDGEN) $< $(rds-bindgen-flags) --rust-target 1.85 --use-core \
	--with-derive-default --ctypes-prefix ffi --no-layout-tests --no-debug '.*' \
	--enable-function-attribute-detection -o $@ -- $(rds-bindgen-cflags)

targets += bindings/generated.rs
$(obj)/bindings/generated.rs: $(src)/bindings/bindings.h $(src)/bindings/helpers.h $(src)/bindings/helpers_addr.h \
		$(src)/bindings/helpers_fault.h $(src)/bindings/helpers_rdma.h \
		$(src)/bindings/helpers_mr.h $(src)/bindings/helpers_params.h \
		$(src)/bindings/helpers_trace.h $(src)/bindings/helpers_kunit.h \
		$(src)/bindings/helpers_fake.h \
		$(src)/bindings/bindgen_parameters FORCE
	$(call if_changed,rds_bindgen)

$(obj)/rds_core.o: $(obj)/bindings/generated.rs

else

include scripts/targets.mk

endif
