# SPDX-License-Identifier: GPL-2.0
FLAVOR ?= release
CACHE := $(or $(RDS_CACHE),$(HOME)/.cache/rds_rust)
export PATH := /usr/lib/llvm-19/bin:$(CACHE)/cargo/bin:$(PATH)
KDIR ?= $(shell scripts/build-kernel.sh $(FLAVOR) --print)
modules:
	mkdir -p build/$(FLAVOR)
	$(MAKE) -C $(KDIR) M=$(CURDIR) MO=$(CURDIR)/build/$(FLAVOR) LLVM=1 BINDGEN=$(CACHE)/cargo/bin/bindgen modules
