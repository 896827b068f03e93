# SPDX-License-Identifier: GPL-2.0
#
# The targets for users: "make help". The kernel's build reads Kbuild instead.

FLAVOR ?= release
export FLAVOR KSRC KERNEL_SERIES BINDGEN LLVM SETUP UNPATCHED CFI

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-long costs test-coverage test-miri test-stock vm vm-stop fuzz kunit modules modules-other modules-arm64 \
	kernel shell lint clean tools programs pages deb install uninstall install-source print-kdir print-mods print-ko \
	setup setup-build bench \
	bench-pool bench-scaling bench-sharing bench-traces plot

ifeq ($(filter $(FLAVOR),release debug),)
$(error FLAVOR is release or debug, not '$(FLAVOR)')
endif

# The objects of each kernel have a folder of their own. So have those with the KUnit suites
# (KUNIT=y), with coverage (KCOV=y, for the debug kernel), without tracepoints (UNTRACED=y), without a
# transport (RDMA=n, TCP=n), and with warnings as errors (WERROR=y).
# A kernel with checks of indirect calls (CFI=1) is another kernel.
BUILD = $(CURDIR)/build/$(if $(CFI),cfi/)$(if $(given-kdir),kdir-$(shell echo '$(KDIR)' | cksum | cut -d' ' -f1),$(FLAVOR))$(if $(KUNIT),-kunit)$(if $(KCOV),-kcov)$(if $(UNTRACED),-untraced)$(if $(filter n,$(RDMA)),-no-rdma)$(if $(filter n,$(TCP)),-no-tcp)$(if $(WERROR),-werror)
# Without KDIR, the module is installed for the running kernel.
ifneq ($(filter install uninstall,$(MAKECMDGOALS)),)
KDIR ?= /lib/modules/$(shell uname -r)/build
endif
given-kdir := $(KDIR)
# Variables on make's command line do not reach a shell function.
KDIR ?= $(shell KSRC='$(KSRC)' KERNEL_SERIES='$(KERNEL_SERIES)' CFI='$(CFI)' scripts/build-kernel.sh $(FLAVOR) --print)
PYTHON = $(shell scripts/tool-path.sh python)
# Rows of make bench-traces: they pass most tracepoints of messages.
TRACED_ROWS = loop-64-rtt,loop-8k,rxe-64-rtt,rxe-64k-rtt

help:
	@echo 'rds_rust: Reliable Datagram Sockets (AF_RDS) in Rust for Linux 7.2 and 7.3'
	@echo
	@echo '  make demo        boot two nodes, load the module on both, and ping over RDMA and TCP'
	@echo '  make test        all tests: host, KUnit and virtual machines, on both kernels'
	@echo '  make test-fast   the tests that need no virtual machine, KUnit, and a dozen that need one: 3 minutes'
	@echo '  make test-long   the tests that make test leaves out because they take hours; SHARD=2/4 for a part'
	@echo '  make costs       copy the costs that make test has measured to tests/vm/costs.json, to be committed'
	@echo '  make vm          the tests of one file: T=test_pair.py K="loss and rust-rust"; KEEP=1 keeps the guests'
	@echo '  make vm-stop     stop the guests that make vm has kept'
	@echo '  make test-stock  the Debian packages on the kernels of Debian itself, which are fetched'
	@echo '  make test-coverage'
	@echo '                   the tests in virtual machines on one kernel, and the code of the module that they do not reach'
	@echo '  make test-miri   host tests, and data structures with unsafe code, under Miri; needs a nightly toolchain'
	@echo '  make fuzz        random calls on sockets for SECONDS=600, on the debug kernel; SEED=N repeats those of a run'
	@echo '  make kunit       the KUnit suites in a kernel tree, run by its kunit.py'
	@echo '  make bench       the cost of operations with C RDS and with this module'
	@echo '  make bench-pool  the cost of mapping receive buffers, one by one and by shard'
	@echo '  make bench-scaling'
	@echo '                   the cost of 1 to 1,000 connections on one node'
	@echo '  make bench-sharing'
	@echo '                   the cache lines that operations on two processors share'
	@echo '  make bench-traces'
	@echo '                   the cost of tracepoints that are off, against a module without them'
	@echo '  make plot        a picture of the results of make bench or make bench-scaling: IN=results.json OUT=picture.svg'
	@echo '  make modules     build rds_rust.ko'
	@echo '  make install     install the module that was built with the same KDIR; DESTDIR=DIR to make a package'
	@echo '  make uninstall   remove it'
	@echo '  make programs    build rds-info, rds-ping and rds-stress, their manual pages and completions; make install'
	@echo '                   installs them, too, below PREFIX=/usr/local'
	@echo '  make deb         Debian packages of the module (DKMS) and of the tools, in build/deb'
	@echo '  make kernel      download and build the test kernel'
	@echo '  make shell       a prompt on one node with the module loaded'
	@echo '  make lint        formatting, lints, layers'
	@echo '  make clean       remove the build (the kernels stay in the cache)'
	@echo '  make -s print-kdir, make -s print-mods, make -s print-ko'
	@echo '                   the paths of the kernel build, of its modules and of the built module'
	@echo
	@echo '  FLAVOR=release   a lean kernel (the default)'
	@echo '  FLAVOR=debug     with KASAN, lockdep, kmemleak and other debugging aids'
	@echo '  ROWS=NAME,...    make bench: only these rows; more options in Documentation/performance.md'
	@echo '  WORKERS=3        make test, test-fast, test-long: number of jobs at a time (default: 2)'
	@echo '  RELEASE_PART=1/3, DEBUG_PART=1/8'
	@echo '                   make test: only a part of the costly cases on that kernel'
	@echo '  RDMA=n, TCP=n    make modules, install: without RDMA or without TCP. A kernel without InfiniBand has no RDMA'
	@echo '  KDIR=DIR         make modules, install, uninstall: for the kernel of this prepared tree'
	@echo '  CFI=1            a test kernel of its own with CONFIG_CFI, which checks the type of each indirect call'
	@echo '  UNPATCHED=1      the soft RDMA devices of the kernel itself, without configs/patches'
	@echo '  KERNEL_SERIES=7.2  series of the test kernel (default: the first available one of 7.3 and 7.2)'
	@echo '  KSRC=DIR         source tree of the test kernel'
	@echo '  SETUP=check      list missing dependencies, and install nothing'
	@echo '  RDS_CACHE=DIR    folder for kernels and tools (default: ~/.cache/rds_rust)'

setup:
	@scripts/setup.sh

setup-build:
	@scripts/setup.sh --build '$(KDIR)'

kernel: setup
	@scripts/build-kernel.sh $(FLAVOR)

# A build for KDIR needs nothing from the cache but bindgen, unless the system has a new one or
# BINDGEN names one.
ifeq ($(given-kdir),)
modules: kernel
else
modules: setup-build
endif
	@mkdir -p '$(abspath $(BUILD))'
	@kdir=$$(scripts/stock-kernel.sh '$(KDIR)') && scripts/kmake.sh "$$kdir" M='$(CURDIR)' MO='$(abspath $(BUILD))' rds-kunit=$(KUNIT) rds-kcov=$(KCOV) rds-untraced=$(UNTRACED) rds-rdma=$(RDMA) rds-tcp=$(TCP) \
		$(if $(WERROR),CLIPPY=1 KRUSTFLAGS='-D warnings' KCFLAGS=-Werror) modules && \
	. scripts/lib.sh && if [ "$$(setting_of "$$kdir" CONFIG_INFINIBAND_ADDR_TRANS)" != y ]; then \
		say 'without RDMA, as the kernel has no CONFIG_INFINIBAND_ADDR_TRANS'; fi
	@echo 'built $(BUILD)/rds_rust.ko'

# Uses the compilers and the kernel that the test kernels do not use. The module cannot be loaded.
modules-other: export KBUILD_MODPOST_WARN := 1
modules-other: setup
	@mkdir -p build/other
	@kdir=$$(scripts/other-kernel.sh) && RUSTC=$$(scripts/other-kernel.sh --rustc) && export RUSTC && \
	scripts/kmake.sh "$$kdir" M='$(CURDIR)' MO='$(CURDIR)/build/other' rds-kunit=y \
		KRUSTFLAGS='-D warnings' KCFLAGS=-Werror modules

# Compiles for another architecture. The clang of the test kernels can, so nothing is installed.
modules-arm64: export KBUILD_MODPOST_WARN := 1
modules-arm64: setup
	@mkdir -p build/arm64
	@kdir=$$(scripts/other-kernel.sh --arm64) && \
	scripts/kmake.sh "$$kdir" ARCH=arm64 M='$(CURDIR)' MO='$(CURDIR)/build/arm64' rds-kunit=y \
		KRUSTFLAGS='-D warnings' KCFLAGS=-Werror modules

# Does not depend on "modules": root may not have the tools that build them.
install uninstall: | $(filter modules,$(MAKECMDGOALS))
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' scripts/install.sh $@ '$(KDIR)' '$(abspath $(BUILD))'

# The source of the DKMS package.
install-source:
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' scripts/install.sh source files

# The tools for users of RDS, with the pages and completions made from their options. They need only
# cargo.
programs:
	@cargo build --quiet --locked --release --manifest-path tools/Cargo.toml --target-dir build/tools \
		-p rds-info -p rds-ping -p rds-stress -p rds-verify
	@$(MAKE) --no-print-directory pages

pages:
	@rm -rf build/share
	@cargo run --quiet --locked --release --manifest-path tools/Cargo.toml --target-dir build/tools -p rds-pages \
		build/share

deb: setup
	@scripts/deb.sh

demo: setup
	@$(PYTHON) scripts/demo.py

shell: modules tools
	@$(PYTHON) scripts/shell.py

tools: setup build/tools/insntrace.so build/tools/insnlines.so build/tools/verbs.so build/examples/ping build/examples/rdma-write
	@cargo build --quiet --locked --release --manifest-path tools/Cargo.toml --target-dir build/tools --bins --examples

# Always on the release kernel: costs on a debugging kernel mean nothing.
bench: override FLAVOR := release
bench: modules tools
	@$(PYTHON) scripts/bench.py $(if $(ROWS),--rows='$(ROWS)') $(if $(IMPLS),--impls='$(IMPLS)') \
		$(if $(OUT),--out='$(OUT)') $(if $(BASE),--base='$(BASE)') $(if $(STRICT),--strict) \
		$(if $(COUNTS),--counts='$(COUNTS)') $(if $(DMA),--dma='$(DMA)') \
		$(if $(PROFILE),--profile='$(if $(filter 1 y yes,$(PROFILE)),build/profile,$(PROFILE))')

bench-pool: override FLAVOR := release
bench-pool: override KUNIT := y
bench-pool: modules
	@$(PYTHON) scripts/bench_pool.py $(if $(STRICT),--strict) $(if $(OUT),--out='$(OUT)')

bench-scaling: override FLAVOR := release
bench-scaling: modules tools
	@$(PYTHON) scripts/bench_scaling.py $(if $(STRICT),--strict) $(if $(OUT),--out='$(OUT)') \
		$(if $(IMPLS),--impls='$(IMPLS)') $(if $(CONNECTIONS),--connections='$(CONNECTIONS)')

bench-sharing: override FLAVOR := release
bench-sharing: modules build/tools/insnlines.so
	@$(PYTHON) scripts/bench_sharing.py $(if $(ROWS),--rows='$(ROWS)') $(if $(IMPLS),--impls='$(IMPLS)') \
		$(if $(OUT),--out='$(OUT)') $(if $(STRICT),--strict)

# The counts of both modules are on the same kernel, on which no tracepoint is on.
bench-traces: override FLAVOR := release
bench-traces: modules tools
	@$(MAKE) --no-print-directory modules UNTRACED=y
	@$(PYTHON) scripts/bench.py --impls=rust --rows='$(or $(ROWS),$(TRACED_ROWS))' \
		--ko='$(CURDIR)/build/release-untraced/rds_rust.ko' --counts=build/release-untraced/counts.json
	@$(PYTHON) scripts/bench.py --impls=rust --rows='$(or $(ROWS),$(TRACED_ROWS))' \
		--base=build/release-untraced/counts.json $(if $(OUT),--out='$(OUT)')

# Without IN, draws the pictures of the documentation again.
plot: setup
	@$(PYTHON) scripts/plot.py $(if $(IN),'$(IN)' $(if $(OUT),'$(OUT)'))

# A plugin for QEMU, which records the executed instructions.
build/tools/insntrace.so: scripts/insntrace/trace.c scripts/insntrace/code.h | setup
	@mkdir -p $(@D)
	@gcc -O2 -Wall -Wextra -Wno-unused-parameter -Werror -shared -fPIC -fvisibility=hidden -o $@ $<

# A plugin for QEMU, which records accesses to memory.
build/tools/insnlines.so: scripts/insntrace/lines.c scripts/insntrace/code.h | setup
	@mkdir -p $(@D)
	@gcc -O2 -Wall -Wextra -Wno-unused-parameter -Werror -shared -fPIC -fvisibility=hidden -o $@ $< -pthread

# A plugin for QEMU, which counts blocks for the coverage.
build/tools/blockcov.so: scripts/blockcov/cover.c | setup
	@mkdir -p $(@D)
	@gcc -O2 -Wall -Wextra -Wno-unused-parameter -Werror -shared -fPIC -fvisibility=hidden -o $@ $< -pthread

# For a peer in Python that breaks the rules of the protocol.
build/tools/verbs.so: tests/vm/guest/verbs.c | setup
	@mkdir -p $(@D)
	@gcc -O2 -Wall -Wextra -Werror -shared -fPIC -o $@ $< -lrdmacm -libverbs

# The examples, built with a plain compiler call.
build/examples/%: examples/%.c | setup
	@mkdir -p $(@D)
	@gcc -O2 -Wall -Wextra -Werror -o $@ $<

workers = $(if $(WORKERS),--workers='$(WORKERS)')
parts = $(if $(RELEASE_PART),--release-part='$(RELEASE_PART)') \
	$(if $(DEBUG_PART),--debug-part='$(DEBUG_PART)')

test: setup
	@$(PYTHON) scripts/run-tests.py $(workers) $(parts)

test-fast: setup
	@$(PYTHON) scripts/run-tests.py --fast $(workers)

# More than the tests in machines: each part has its own last line, and all must pass.
test-long: setup
	@$(PYTHON) scripts/run-tests.py --long $(workers) $(if $(SHARD),--shard='$(SHARD)') $(if $(SEED),--seed='$(SEED)')

# Runs in a mount namespace, whose end removes the overlay of the root.
test-stock: deb
	@RDS_STOCK_NAMESPACE=y unshare --mount --propagation private $(PYTHON) -m pytest -v -p no:cacheprovider --tb=short \
		--at-once $(if $(K),-k '$(K)') tests/stock

# The costs that the last "make test" measured are those that later runs are held to.
costs:
	@grep -q '"total"' build/test-artifacts/costs.json || { \
		echo 'error: no total of costs in build/test-artifacts: "make test" has not run, or tests failed' >&2; exit 1; }
	@cp build/test-artifacts/costs.json tests/vm/costs.json

vm: setup
	@$(PYTHON) scripts/vm.py --flavor=$(FLAVOR) $(if $(K),-k '$(K)') $(if $(KEEP),--keep) $(if $(OPTIONS),--more='$(OPTIONS)') $(T)

vm-stop: setup
	@$(PYTHON) scripts/vm.py --flavor=$(FLAVOR) --stop

# TESTS: other arguments of pytest. The tables are written even if a test fails.
test-coverage: private dir = $(or $(OUT),build/coverage/$(FLAVOR))
test-coverage: modules tools build/tools/blockcov.so
	@rm -f '$(dir)'/{blocks,cases.jsonl}
	@status=0; \
	$(PYTHON) -m pytest -q -p no:cacheprovider --tb=short --at-once $(or $(TESTS),tests/vm -m 'not more') --impls=rust \
		--flavor=$(FLAVOR) --coverage='$(dir)' || status=$$?; \
	$(PYTHON) scripts/blockcov/report.py cover '$(dir)' --json='$(dir)/cover.json' \
		--redundant='$(dir)/redundant.txt' >'$(dir)/cover.txt' && \
	$(PYTHON) scripts/blockcov/report.py missed '$(dir)' >'$(dir)/missed.txt' && \
	sed '/^$$/,$$d' '$(dir)/missed.txt' && \
	echo 'written: $(dir)/missed.txt, $(dir)/cover.txt, $(dir)/cover.json, $(dir)/redundant.txt' && exit $$status

# Miri is added to the installed nightly toolchain if it is missing. CRATES: one of the two crates.
test-miri: export MIRIFLAGS += -Zmiri-disable-isolation -Zmiri-permissive-provenance
test-miri: export PROPTEST_CASES ?= 4
test-miri:
	@cargo +nightly miri --version >/dev/null 2>&1 || rustup component add --toolchain nightly miri rust-src
	@for crate in $(or $(CRATES),tests/miri tests/host); do \
		cargo +nightly miri test --locked --manifest-path $$crate/Cargo.toml --target-dir build/miri || exit; \
	done

# Runs on the debug kernel, which detects more defects.
fuzz: override FLAVOR := debug
fuzz: override KCOV := y
fuzz: modules tools
	@KCOV=y $(PYTHON) -m pytest -q -s -p no:cacheprovider --tb=short tests/vm/test_fuzz.py --impls=rust --flavor=debug \
		--kinds=rxe --fuzz-coverage --fuzz-seconds=$(or $(SECONDS),600) $(if $(SEED),--fuzz-seed=$(SEED))

kunit: setup
	@scripts/kunit-intree.sh

# The kernel that the linters need takes long to build the first time, and they show no progress.
lint: override FLAVOR := release
lint: kernel
	@scripts/other-kernel.sh >/dev/null
	@scripts/other-kernel.sh --arm64 >/dev/null
	@$(PYTHON) scripts/lint.py

print-kdir:
	@echo '$(KDIR)'

print-mods:
	@scripts/build-kernel.sh $(FLAVOR) --print-mods

print-ko:
	@echo '$(BUILD)/rds_rust.ko'

clean:
	rm -rf build
