# SPDX-License-Identifier: GPL-2.0
"""Each of the project's own rules finds the mistakes that it is for, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

import checks  # noqa: E402
import lint  # noqa: E402
from rdsvm import klog  # noqa: E402

HEAD = "// SPDX-License-Identifier: GPL-2.0\n//! A sample.\n"


def complaints(check, path, text):
    return [number for number, _ in check(path, text)]


@pytest.mark.parametrize("path, code", [
    ("proto/a.rs", "use crate::kapi::net;"),
    ("proto/a.rs", "use crate::conn::Path;"),
    ("proto/a.rs", "use crate::uapi::info::Record;"),
    ("uapi/a.rs", "use crate::kapi::net;"),
    ("kapi/a.rs", "use crate::uapi::SOL_RDS;"),
    ("kapi/a.rs", "use crate::trace;"),
    ("conn/a.rs", "use crate::bindings;"),
    ("kapi/net.rs", "use crate::proto::header;"),
    ("conn/mod.rs", "use crate::af_rds::Socket;"),
    ("msg/a.rs", "fn f() { crate::ib_transport::go() }"),
    ("cm/a.rs", "use crate::ib_transport::Ib;"),
    ("msg/a.rs", "use crate::conn::Connection;"),
    ("socket/a.rs", "use crate::conn::Node;"),
    ("socket/a.rs", "use crate::msg::Message;"),
    ("cong/a.rs", "use crate::socket::Socket;"),
    ("cong/a.rs", "use crate::stats::Counter;"),
    ("stats/mod.rs", "use crate::trace;"),
    ("ib_transport/a.rs", "use super::super::loop_transport::Destination;"),
    ("cm/mod.rs", "use crate::{\n    conn::{self, af_rds},\n    af_rds::Family,\n};"),
    ("cm/a.rs", "use super::super::af_rds::Family;"),
    ("cm/mod.rs", "use super::af_rds::Family;"),
    ("af_rds/a.rs", "use crate::rds_core::Module;"),
])
def test_upward_use_is_found(path, code):
    assert complaints(checks.layers, path, HEAD + code)


@pytest.mark.parametrize("path, code", [
    ("proto/a.rs", "use crate::proto::header;"),
    ("uapi/a.rs", "use crate::{proto::header, uapi::info};"),
    ("trace.rs", "use crate::bindings;"),
    ("conn/mod.rs", "use crate::{kapi::{net, sync}, msg::Message, proto};"),
    ("cm/a.rs", "use super::af_rds::Thing;"),
    ("af_rds/mod.rs", "use crate::ib_transport::Endpoint;"),
    ("conn/a.rs", "// use crate::af_rds::Socket;\nconst S: &str = \"crate::af_rds\";"),
    ("conn/a.rs", "use crate::Error;"),
    ("tests/host/src/lib.rs", "use crate::af_rds::Socket;"),
    ("rds_core.rs", "use crate::af_rds::Socket;"),
])
def test_downward_use_is_allowed(path, code):
    assert not complaints(checks.layers, path, HEAD + code)


@pytest.mark.parametrize("path, code", [
    ("conn/a.rs", "use crate::{a, b};\n"),
    ("tests/kunit/a.rs", "use crate::a::{b, c};\n"),
    ("conn/a.rs", "use crate::{\n    a,\n    b::{c, d},\n    e, //\n};\n"),
    ("conn/a.rs", "pub(crate) use a::{\n    B,\n    C,\n};\n"),
    ("conn/a.rs", "mod a {\n    use super::{b, c};\n}\n"),
    ("conn/a.rs", "use crate::a;\nuse crate::b;\n"),
])
def test_import_in_another_style_is_found(path, code):
    assert complaints(checks.imports, path, HEAD + code)


@pytest.mark.parametrize("path, code", [
    ("conn/a.rs", "use crate::{\n    a,\n    b::{\n        c,\n        d, //\n    }, //\n};\nuse core::ptr;\n"),
    ("conn/a.rs", "use crate::a;\n#[cfg(rds_kunit)]\nuse crate::b;\n"),
    ("conn/a.rs", "use crate::a;\npub(crate) use crate::b;\n"),
    ("conn/a.rs", "#[cfg(rds_kunit)]\nuse crate::a;\nuse crate::b;\n"),
    ("conn/a.rs", "/// A number.\npub(crate) use crate::a;\npub(crate) use crate::b;\n"),
    ("conn/a.rs", "use crate::a;\n\nfn f() {\n    use crate::b;\n}\n"),
    ("tools/a.rs", "use a::{b, c};\n"),
])
def test_vertical_import_is_allowed(path, code):
    assert not complaints(checks.imports, path, HEAD + code)


def test_type_name_that_the_module_has_twice_is_found():
    sources = {"conn/a.rs": "pub(crate) struct Table<T>(T);", "msg/b.rs": "\nenum Table {}", "tools/c.rs": "struct Table;",
               "af_rds/d.rs": "// struct Table;\nstruct Tables;"}
    told, = checks.types_defined_twice(sources)
    assert told.startswith("msg/b.rs:2: Table is defined in conn/a.rs:1, too")
    sources["msg/absent.rs"] = sources["msg/b.rs"]
    assert checks.types_defined_twice(sources) == [told]


@pytest.mark.parametrize("path, code", [
    ("conn/a.rs", "// SAFETY: No.\nunsafe { f() };"),
    ("rds_core.rs", "// SAFETY: No.\nunsafe impl Send for A {}"),
    ("conn/a.rs", "unsafe fn f() {}"),
    ("kapi/a.rs", "unsafe { f() };"),
    ("kapi/a.rs", "// Why not.\nunsafe { f() };"),
    ("kapi/a.rs", "// SAFETY: For this one.\nunsafe { f() };\nunsafe { g() };"),
    ("kapi/a.rs", "unsafe impl Sync for A {}"),
    ("tools/a/src/main.rs", "let x = unsafe { f() };"),
])
def test_unsafe_is_found(path, code):
    assert complaints(checks.unsafe_code, path, HEAD + code)


@pytest.mark.parametrize("path, code", [
    ("kapi/a.rs", "// SAFETY: The caller holds the lock.\nunsafe { f() };"),
    ("kapi/a.rs", "// SAFETY: The caller holds the\n// lock.\nlet x =\n    g(unsafe { f() });"),
    ("kapi/a.rs", "/// # Safety\n///\n/// Never.\nunsafe fn f() {}"),
    ("kapi/a.rs", "type F = unsafe extern \"C\" fn();"),
    ("conn/mod.rs", "#![deny(unsafe_code)]\n// unsafe { }\nconst S: &str = \"unsafe {\";"),
    ("conn/a.rs", "const C: char = '\"'; // unsafe { f() }\nconst D: char = '\"';"),
])
def test_sound_unsafe_is_allowed(path, code):
    assert not complaints(checks.unsafe_code, path, HEAD + code)


def test_layers_deny_unsafe():
    check = checks.module_denies_unsafe
    assert complaints(check, "conn/mod.rs", HEAD)
    assert complaints(check, "proto/mod.rs", HEAD + "#![deny(unsafe_code)]")
    assert complaints(check, "trace.rs", HEAD)
    assert complaints(check, "conn/mod.rs", HEAD + "// #![deny(unsafe_code)]")
    assert not complaints(check, "conn/mod.rs", HEAD + "#![deny(unsafe_code)]")
    assert not complaints(check, "proto/mod.rs", HEAD + "#![forbid(unsafe_code)]")
    assert not complaints(check, "conn/path.rs", HEAD)


@pytest.mark.parametrize("path, code", [
    ("conn/a.rs", "fn f() { workqueue::system().enqueue(work) }"),
    ("kapi/a.rs", "use kernel::workqueue::system_unbound;"),
    ("bindings/helpers.c", "queue_work(system_wq, work);"),
    ("bindings/helpers.c", "schedule_delayed_work(work, 1);"),
])
def test_system_work_queues_are_found(path, code):
    assert complaints(checks.work_queues, path, HEAD + code)


@pytest.mark.parametrize("path, code", [
    ("conn/a.rs", "// Not workqueue::system().\nqueue.enqueue(work);"),
    ("tests/vm/a.py", "system_wq"),
    ("bindings/helpers.c", "queue_work(wq, work);"),
])
def test_other_work_queues_are_allowed(path, code):
    assert not complaints(checks.work_queues, path, HEAD + code)


@pytest.mark.parametrize("trait", ["WorkItem", "WorkItem<1>"])
def test_work_items_with_io_are_found(trait):
    def found(path, body):
        code = f"impl {trait} for A {{\n    type Pointer = Arc<Self>;\n\n    fn run(this: Arc<Self>) {{\n{body}\n    }}\n}}\n"
        return complaints(checks.work_items, path, HEAD + code + "fn run() {\n    without_io(|| ());\n}\n")

    assert not found("conn/a.rs", "        without_io(|| {\n            this.sweep();\n        });")
    assert not found("conn/a.rs", "        // Why.\n        without_io(|| this.sweep());")
    assert found("conn/a.rs", "        this.sweep();")
    assert found("conn/a.rs", "        this.sweep();\n        without_io(|| this.wake());")
    assert not found("tests/kunit/a.rs", "        (this.run)();")


def test_softirq_cqs_are_found():
    """The queue may be freed under its handler: seen on soft-RoCE, with a device that lost a WR."""
    assert complaints(checks.softirq_cqs, "bindings/helpers_mr.c", HEAD + "ib_alloc_cq(a, b, 1, 0, IB_POLL_SOFTIRQ);")
    assert not complaints(checks.softirq_cqs, "bindings/helpers_mr.c", HEAD + "ib_alloc_cq(a, b, 1, 0, IB_POLL_WORKQUEUE);")


def test_spdx():
    for path in ("a.rs", "scripts/a.py", "Makefile", "a/b.c"):
        assert complaints(checks.spdx, path, "\n")
    assert not complaints(checks.spdx, "a.rs", HEAD)
    assert not complaints(checks.spdx, "a.sh", "#!/bin/sh\n# SPDX-License-Identifier: GPL-2.0\n")
    assert not complaints(checks.spdx, "a.h", "/* SPDX-License-Identifier: GPL-2.0 */\n")
    assert not complaints(checks.spdx, "README.md", "# Title\n")


@pytest.mark.parametrize("path, licence, good", [
    ("tools/rds-socket/src/lib.rs", "GPL-2.0-only OR BSD-2-Clause", True),
    ("tools/rds-socket/src/lib.rs", "BSD-2-Clause OR GPL-2.0-only", False),
    ("tools/rds-socket/src/lib.rs", "GPL-2.0-only", False),
    ("tools/rds-socket/src/lib.rs", "GPL-2.0", False),
    ("tools/rds-info/src/main.rs", "GPL-2.0-only OR BSD-2-Clause", False),
    ("tools/rds-info/src/main.rs", "GPL-2.0-or-later", False),
    ("tools/rds-info/src/main.rs", "GPL-2.0", True),
])
def test_each_folder_has_one_licence(path, licence, good):
    assert (not complaints(checks.spdx, path, f"// SPDX-License-Identifier: {licence}\n//! A sample.\n")) == good


def test_length():
    assert complaints(checks.length, "a.rs", "\n" * 600)
    assert not complaints(checks.length, "a.rs", "\n" * 599)
    assert not complaints(checks.length, "conn/a.rs", "use crate::{\n    a,\n    b, //\n};\n" + "\n" * 599)


def test_purpose():
    assert complaints(checks.purpose, "a.rs", "// SPDX-License-Identifier: GPL-2.0\nfn f() {}\n")
    assert complaints(checks.purpose, "a.rs", "fn f() {}\n//! Late.\n")
    assert not complaints(checks.purpose, "a.rs", HEAD)


def bad_tree(tmp_path, files):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(files)


@pytest.mark.parametrize("step, files", [
    ("the project's rules", {"conn/mod.rs": HEAD + "use crate::af_rds::A;\n"}),
    ("rustfmt", {"a.rs": HEAD + "fn f( ) { }\n"}),
    ("shellcheck", {"a.sh": "#!/bin/sh\n# SPDX-License-Identifier: GPL-2.0\nrm $1\n"}),
    ("python", {"a.py": "# SPDX-License-Identifier: GPL-2.0\ndef f(:\n"}),
])
def test_linters_are_run(monkeypatch, tmp_path, step, files):
    """The linters run through lint.py itself, because a step that it omits would report nothing."""
    names = bad_tree(tmp_path, files)
    monkeypatch.setattr(lint, "TOP", tmp_path)
    steps = dict(lint.steps(names))
    assert steps[step]()


CRATE = """[package]
name = "sample"
version = "0.0.0"
edition = "2021"
[workspace]
"""


@pytest.mark.parametrize("crate", lint.HOST_CRATES)
def test_clippy_is_run(monkeypatch, tmp_path, crate):
    names = bad_tree(tmp_path, {
        f"{crate}/Cargo.toml": CRATE,
        f"{crate}/src/lib.rs": HEAD + "pub fn f(x: u32) -> bool {\n    return x == x;\n}\n",
    })
    monkeypatch.setattr(lint, "TOP", tmp_path)
    assert "clippy" in dict(lint.steps(names))[f"clippy on {crate}"]()


LOCK = """version = 4
[[package]]
name = "%s"
version = "0.0.0"
"""


def test_old_rust_is_run(monkeypatch, tmp_path):
    """The compiler knows this function, and the oldest supported one does not."""
    names = bad_tree(tmp_path, {
        "tools/Cargo.toml": CRATE,
        "tools/Cargo.lock": LOCK % "sample",
        "tools/src/lib.rs": HEAD + "pub fn f(x: u32) -> bool {\n    x.is_multiple_of(2)\n}\n",
    })
    monkeypatch.setattr(lint, "TOP", tmp_path)
    assert "is_multiple_of" in dict(lint.steps(names))["the tools, with Rust 1.85"]()


def test_documentation_is_made(monkeypatch, tmp_path):
    """A broken link in the documentation is found."""
    names = bad_tree(tmp_path, {
        "tools/Cargo.toml": CRATE.replace("sample", "rds-socket"),
        "tools/Cargo.lock": LOCK % "rds-socket",
        "tools/src/lib.rs": HEAD + "//! See [`Nothing`].\n",
    })
    monkeypatch.setattr(lint, "TOP", tmp_path)
    assert "unresolved link" in dict(lint.steps(names))["documentation of rds-socket"]()


def test_documentation_of_the_module_is_made(tmp_path):
    """rustdoc gets the arguments of the compiler, but for those about its output and its lints."""
    (tmp_path / "a.rs").write_text(HEAD + "//! See [`Nothing`].\n")
    build = tmp_path / ".a.o.cmd"
    build.write_text(f"savedcmd_a.o := OBJTREE={tmp_path} clippy-driver --edition=2021 -Wclippy::all -D warnings "
                     f"--crate-type rlib --out-dir ./ --emit=obj=a.o {tmp_path}/a.rs  \n\nsource_a.o := a.rs\n")
    assert "unresolved link" in lint.rustdoc(build)
    (tmp_path / "a.rs").write_text(HEAD)
    assert not lint.rustdoc(build)


C_HEAD = "/* SPDX-License-Identifier: GPL-2.0 */\n"


@pytest.mark.parametrize("step, code", [
    ("checkpatch", "int rds_rust_f(int a)\n{\n\tif(a)\n\t\treturn 1;\n\treturn 0;\n}\n"),
    ("checkpatch", f"int rds_rust_{'f' * 90}(int a);\n"),
    ("kernel-doc", "/**\n * rds_rust_f() - return a number\n * @b: the number\n */\nint rds_rust_f(int a);\n"),
])
def test_c_is_checked_by_the_kernels_scripts(monkeypatch, tmp_path, step, code):
    scripts = {name: lint.kernel_script(name) for name in ("checkpatch.pl", "kernel-doc")}
    names = bad_tree(tmp_path, {"bindings/a.h": C_HEAD + code})
    monkeypatch.setattr(lint, "TOP", tmp_path)
    monkeypatch.setattr(lint, "kernel_script", scripts.get)
    assert "bindings/a.h" in dict(lint.steps(names))[step]()


def test_module_warning_is_an_error():
    """The flags of make modules WERROR=y reach the compiler."""
    line = subprocess.run(["make", "-n", "-C", TOP, "modules", "WERROR=y", "KDIR=/none"],
                          env={**os.environ, "BINDGEN": "bindgen"}, capture_output=True,
                          text=True, check=True).stdout
    assert "CLIPPY=1" in line and "KRUSTFLAGS='-D warnings'" in line and "KCFLAGS=-Werror" in line


@pytest.mark.parametrize("line", [
    "WARNING: CPU: 0 PID: 1 at net/core/sock.c:1 f+0x1/0x2 [rds_rust]",
    "WARNING: possible circular locking dependency detected",
    "WARNING: suspicious RCU usage",
    "BUG: KASAN: slab-use-after-free in f+0x1/0x2",
    "BUG: unable to handle page fault for address: ffff",
    "BUG: sleeping function called from invalid context at kernel/locking/mutex.c:1",
    "BUG: scheduling while atomic: a/1/0x2",
    "Oops: Oops: 0000 [#1] SMP KASAN",
    "UBSAN: array-index-out-of-bounds in a.c:1:2",
    "DMA-API: rxe0: device driver frees DMA memory with different size",
    "ODEBUG: free active (active state 0) object: 0 object type: timer_list",
    "refcount_t: underflow; use-after-free.",
    "INFO: task a:1 blocked for more than 120 seconds.",
    "kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
    "rust_kernel: panicked at rds_core.rs:1:2:",
    "infiniband rxe0: restrack: leaked 1 CM_ID object",
    "workqueue: work func f enqueued on deprecated workqueue. Use system_percpu_wq instead.",
    "list_add corruption. prev->next should be next",
    "INFO: trying to register non-static key.",
    "turning off the locking correctness validator.",
    "kmemleak: Kernel memory leak detector disabled",
])
def test_report_in_the_kernel_log_is_found(line):
    assert klog.complaints(["before", line, "after"]) == [f"{line}\nafter"]


@pytest.mark.parametrize("line", [
    "RDS/IB: rxe0: added",
    "DMA-API: preallocated 65536 debug entries",
    "DMA-API: debugging enabled by kernel config",
    "kmemleak: Kernel memory leak detector initialized (mem pool available: 3)",
    "rcu: \tRCU debug extended QS entry/exit.",
    "random: crng init done",
    "workqueue: work func _RNvXs8_NtCs1EKtwoKEMO2_6kernel9workqueueINtNtNtNtBH_4lock8spinlock5tests4TestE3runB7_ "
    "enqueued on deprecated workqueue. Use system_{percpu|dfl}_wq instead.",
])
def test_ordinary_line_is_no_report(line):
    assert not klog.complaints([line])


def warning(*trace):
    return ["WARNING: drivers/infiniband/sw/rxe/rxe_verbs.c:1017 at rxe_post_recv+0xa3c/0xbb0 [rdma_rxe], CPU#0: k/1",
            "Modules linked in: rds_rust(O) rdma_rxe", "Workqueue: ib-comp-unb-wq ib_cq_poll_work", "Call Trace:",
            *(f" {x}+0x1/0x2" for x in trace), "---[ end trace 0000000000000000 ]---"]


def test_known_defect_of_the_kernel_is_no_complaint():
    """A device is removed while the CM's next message arrives."""
    of_mad = warning("ib_mad_recv_done", "__ib_process_cq")
    assert not klog.complaints(of_mad)
    assert len(klog.complaints(warning("rds_rust_ib_post_recv"))) == 1
    # Not if the trace has a function of the module. Reports that follow count as well.
    assert klog.complaints([*of_mad[:4], " f+0x1/0x2 [rds_rust]", *of_mad[4:]])
    assert len(klog.complaints([*of_mad, *warning("f"), "BUG: KASAN: x"])) == 2
    assert klog.complaints([*warning("f"), *of_mad])


def freed(*trace):
    return ["BUG: KASAN: slab-use-after-free in rxe_pool_get_index+0xc4/0x200 [rdma_rxe]", "Call Trace:", *trace, "",
            "Allocated by task 1:", " f+0x1/0x2 [rds_rust]", "Freed by task 2:", " g+0x1/0x2 [rds_rust]"]


def test_known_defect_of_soft_roce_is_no_complaint(monkeypatch):
    """A packet arrives for a queue pair that is being destroyed; its creator does not matter.

    The devices that tests use do not have the defect."""
    monkeypatch.delenv("KSRC", raising=False)
    monkeypatch.delenv("UNPATCHED", raising=False)
    assert klog.complaints(freed(" rxe_rcv+0x1/0x2 [rdma_rxe]"))
    monkeypatch.setenv("UNPATCHED", "1")
    assert not klog.complaints(freed(" rxe_rcv+0x1/0x2 [rdma_rxe]"))
    assert klog.complaints(freed(" rxe_rcv+0x1/0x2 [rdma_rxe]", " h+0x1/0x2 [rds_rust]"))
    assert klog.complaints(freed(" rxe_requester+0x1/0x2 [rdma_rxe]"))


def test_known_defect_of_soft_iwarp_is_no_complaint(monkeypatch):
    """A process that handles received data is the first to take the lock with softirqs enabled."""
    report = ["WARNING: inconsistent lock state", "inconsistent {IN-SOFTIRQ-W} -> {SOFTIRQ-ON-R} usage.",
              "ffff8880130076a8 (clock-AF_INET){++-?}-{3:3}, at: siw_qp_llp_data_ready+0x91/0x210 [siw]", "mark: end"]
    monkeypatch.delenv("KSRC", raising=False)
    monkeypatch.delenv("UNPATCHED", raising=False)
    assert klog.complaints(report)
    monkeypatch.setenv("UNPATCHED", "1")
    assert not klog.complaints(report)
    assert klog.complaints([x.replace("siw_qp_llp_data_ready", "siw_run_sq") for x in report])
    assert klog.complaints([*report[:3], " f+0x1/0x2 [rds_rust]", report[3]])


def test_report_is_whole():
    """A report ends where the kernel ends it, however long it is."""
    trace = [f" f{i}+0x1/0x2" for i in range(90)]
    lines = ["BUG: KASAN: x", *trace, "=" * 66, "after"]
    assert klog.reports(lines) == ["\n".join(["BUG: KASAN: x", *trace])]
    lines = ["WARNING: a.c:1 at f", *trace, "---[ end trace 0000000000000000 ]---", "after"]
    assert klog.reports(lines) == ["\n".join(lines[:-1])]
    assert klog.reports(["INFO: task a:1 blocked for more than 20 seconds.", "mark: end of test", "after"]) == [
        "INFO: task a:1 blocked for more than 20 seconds."]
    assert len(klog.reports(["BUG: x", *999 * ["y"]])[0].splitlines()) == klog.LONGEST


@pytest.mark.parametrize("line", [
    "alloc_tag: bindings/helpers_rdma.c:233 module rds_rust func:rds_alloc_pages has 65536 allocated at module unload",
    "BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 31s!",
    "watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [rmmod:99]",
    "INFO: task rmmod:99 blocked for more than 20 seconds.",
])
def test_report_of_a_detector_is_found(line):
    assert klog.complaints([line])


@pytest.mark.parametrize("where, found", [("default_idle+0xd/0x20", 0), ("rds_cm_event+0x1/0x2 [rds_rust]", 1)])
def test_lockup_of_an_idle_processor_is_the_hosts(where, found):
    lines = ["watchdog: CPU0: Watchdog detected hard LOCKUP on cpu 1", "NMI backtrace for cpu 1", f" {where}"]
    assert len(klog.complaints(lines)) == found


@pytest.mark.parametrize("where, found", [
    ("rds_queue_reconnect+0xd5/0x190 [rds]", 0),
    ("rds_queue_reconnect+0xd5/0x190 [rds_rust]", 1),
    ("rds_connect_worker+0x1/0x2 [rds]", 1),
])
def test_division_by_zero_of_c_rds_is_known(where, found):
    lines = ["Oops: divide error: 0000 [#1] SMP", f"RIP: 0010:{where}", "---[ end trace 0000000000000000 ]---"]
    assert len(klog.complaints(lines)) == found


@pytest.mark.parametrize("symbol, found", [
    ("_RNvNtNtCs1_4core9panicking11panic_const23panic_const_div_by_zero", 1),
    ("_RNvNtNtCs1_4core9panicking11panic_const23panic_const_rem_by_zero", 1),
    ("_RNvNtNtCs1_4core9panicking11panic_const24panic_const_add_overflow", 0),
])
def test_division_that_can_panic_is_found(symbol, found):
    assert len(lint.panics_among(["U", symbol])) == found


@pytest.mark.parametrize("symbol, found", [
    ("ib_register_client", 1),
    ("__ib_alloc_pd", 1),
    ("rdma_listen", 1),
    ("__rdma_create_kernel_id", 1),
    ("irq_poll_sched", 1),
    ("rds_rust_ib_name", 0),
    ("kmalloc", 0),
])
def test_symbols_of_rdma_are_found(symbol, found):
    assert len(lint.of_rdma_among(["U", symbol])) == found


@pytest.mark.parametrize("symbol,found", [
    ("rds_sock_put", 1),
    ("rds_rust_sock_put", 0),
    ("init_module", 0),
    ("__traceiter_rds_drop", 0),
    ("_RNvNtCs1_8rds_core4conn4tend", 0),
])
def test_names_that_others_may_have_are_found(symbol, found):
    assert len(lint.foreign_among([symbol])) == found


RELOCATION = "0000000000000000  0000012c00000105 R_AARCH64_PREL64       0000000000000000 __tracepoint_{} + 8\n"


@pytest.mark.parametrize("section,points,found", [
    (".rela__jump_table", ("rds_drop", "rds_drop", "rds_error", "rds_error"), []),
    # Only the key in C.
    (".rela__jump_table", ("rds_drop", "rds_error", "rds_error"), ["rds_drop"]),
    (".rela__jump_table", ("rds_drop", "rds_drop"), ["rds_error"]),
    # Code that reads a key.
    (".rela.text", ("rds_drop", "rds_drop", "rds_error", "rds_error"), ["rds_drop", "rds_error"]),
])
def test_keys_that_are_read_are_found(section, points, found):
    head = "\nRelocation section '{}' at offset 0x40 contains 2 entries:\n    Offset  Info  Type  Symbol's Value\n"
    listing = "".join([head.format(section), *(RELOCATION.format(x) for x in points), head.format(".rela.debug_info"),
                       RELOCATION.format("rds_error") * 2])
    assert lint.keys_without_patches_among(["rds_drop", "rds_error"], listing) == found


JUMP_TABLE = """
Relocation section '.rela.text' at offset 0x40 contains 1 entry:
0000000000000000  0000012c00000105 R_AARCH64_PREL64       0000000000000000 __tracepoint_rds_drop + 8

Relocation section '.rela__jump_table' at offset 0x80 contains 6 entries:
    Offset             Info             Type               Symbol's Value  Symbol's Name + Addend
0000000000000000  0000000100000105 R_AARCH64_PREL32       0000000000000000 .text + 4
0000000000000004  0000000100000105 R_AARCH64_PREL32       0000000000000000 .text + 40
0000000000000008  0000000200000104 R_AARCH64_PREL64       00000000000004c8 __tracepoint_rds_drop + 8
0000000000000010  0000000100000105 R_AARCH64_PREL32       0000000000000000 .text + 0
0000000000000014  0000000100000105 R_AARCH64_PREL32       0000000000000000 .text + 40
0000000000000018  0000000200000104 R_AARCH64_PREL64       00000000000004c8 {} + 8
"""
SECTIONS = "  [ 2] .text             PROGBITS        0000000000000000 000010 000100 00  AX  0   0  4\n"


@pytest.mark.parametrize("key,found", [
    ("descriptor", []),
    ("__tracepoint_rds_error", ["rds_error is not a nop at .text+0x0 while it is off"]),
])
def test_tests_of_tracepoints_are_nops(key, found):
    """The first instruction of the module is a branch, the second one does nothing."""
    module = bytes(16) + bytes.fromhex("05000014") + lint.ARM64_NOP
    assert lint.work_of_disabled_among(JUMP_TABLE.format(key), SECTIONS, module) == found


def test_a_module_without_tests_of_tracepoints_is_noticed():
    table = JUMP_TABLE.format("descriptor").replace("__tracepoint_", "")
    assert lint.work_of_disabled_among(table, SECTIONS, bytes(64)) == ["the module has no tests of tracepoints"]
