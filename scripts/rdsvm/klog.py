# SPDX-License-Identifier: GPL-2.0
"""Recognizes reports of defects in a kernel log."""

import os
import re

COMPLAINT = re.compile(
    r"""
    \bWARNING:                       # WARN*() and lockdep
    | \bBUG:? | \bkernel\ BUG\ at
    | \bOops\b
    | general\ protection\ fault
    | unable\ to\ handle
    | Kernel\ panic | rust_kernel:\ panicked
    | possible\ (circular|recursive|irq|deadlock) | possible\ unsafe\ locking
    | suspicious\ RCU
    | inconsistent\ lock\ state
    | \bKASAN\b | \bUBSAN\b | \bKFENCE\b | \bkmemleak:.*new\ suspected
    | DMA-API: (?!\ (preallocated|debugging\ enabled))
    | ODEBUG:
    | sleeping\ function\ called | scheduling\ while\ atomic
    | blocked\ for\ more\ than | soft\ lockup | hard\ LOCKUP | detected\ stall | workqueue\ lockup
    | refcount_t
    | \bleaked?\b | allocated\ at\ module\ unload
    | list_(add|del)\ corruption
    | still\ has\ .*\ objects | Objects\ remaining
    | unregister_netdevice:\ waiting
    | enqueued\ on\ deprecated\ workqueue
    | ref_tracker:
    # Those who would complain do not any more.
    | trying\ to\ register\ non-static\ key | turning\ off\ the\ locking\ correctness\ validator
    | Kernel\ memory\ leak\ detector\ disabled
    """,
    re.X,
)
# Lines of a healthy boot that look like a report.
HARMLESS = re.compile(
    r"Kmemleak testing|kmemleak: (Kernel memory leak detector initialized|Automatic memory scanning)"
    r"|KASAN: enabled|kasan: Kernel|BUG_ON_DATA|DEBUG_LOCKS"
    # Of a tracker whose allocation failed by fault injection.
    r"|ref_tracker: memory allocation failure"
    # Of a test of the kernel crate that Linux 7.3 runs at each boot.
    r"|work func \S*6kernel\S*8spinlock5tests\S* enqueued on deprecated workqueue"
)

# Defects of the kernel that no user of RDMA can avoid: start of the report, function in its trace.
ELSEWHERE = (
    # ib_mad_port_close() destroys the queue pairs of a device that is removed while their
    # completions may still be handled. A handler that has received a message then posts the next
    # receive to a destroyed queue pair.
    (re.compile(r"WARNING: .* at rxe_post_recv\+"), re.compile(r"\bib_mad_recv_done\+")),
    # An idle processor takes interrupts, so the lockup is one of the host, which did not run it.
    (re.compile(r"hard LOCKUP"), re.compile(r"\bdefault_idle\+")),
    # C RDS tests the delay before its next attempt and then divides by it. In between, a connection
    # that comes up sets it to 0.
    (re.compile(r"Oops: divide error"), re.compile(r"RIP: \S*\brds_queue_reconnect\+\S+ \[rds\]")),
)
# Defects of the soft devices, which configs/patches fixes.
UNPATCHED = (
    # Soft-RoCE finds a packet's queue pair under RCU, and frees queue pairs without a grace period.
    (re.compile(r"KASAN: slab-use-after-free in rxe_pool_get_index\+"), re.compile(r"\brxe_rcv\+")),
    # It schedules the task of a queue pair whose last reference may be gone with the packet.
    (re.compile(r"WARNING: .* at rxe_sched_task\+"), re.compile(r"\brxe_rcv\+")),
    # Soft-iWARP takes a socket's sk_callback_lock with softirqs enabled.
    (re.compile(r"WARNING: inconsistent lock state"),
     re.compile(r"\bsiw_(rtr|cm_llp|qp_llp)_(data_ready|write_space|state_change)\+")),
)
# The last line of a report, and a line that does not belong to the report any more.
LAST = re.compile(r"---\[ end trace")
BEHIND = re.compile(r"={60}|mark: ")
# Lines of the longest report: lockdep's, with the traces of all locks of a chain.
LONGEST = 200
# The line after a trace: of a warning, and of KASAN.
END = re.compile(r"---\[ end trace|^Allocated by task", re.M)


def is_elsewhere(report):
    """Returns True if a report is of a known defect, and its trace does not have this module."""
    trace = END.split(report)[0]
    known = ELSEWHERE + (UNPATCHED if is_unpatched() else ())
    return "[rds_rust]" not in trace and any(what.search(trace) and who.search(trace) for what, who in known)


def is_unpatched():
    """Returns True if the soft devices have no patches: see scripts/build-kernel.sh."""
    return bool(os.environ.get("UNPATCHED") or os.environ.get("KSRC"))


def end_of_report(lines, start):
    """Returns the index of the first line behind a report.

    A report ends with its trace, with KASAN's double line, or at a mark of a test."""
    for i in range(start + 1, min(start + LONGEST, len(lines))):
        if BEHIND.match(lines[i]):
            return i
        if LAST.search(lines[i]):
            return i + 1
    return min(start + LONGEST, len(lines))


def reports(lines):
    """Returns the reports of defects, each from its first line on, also those within others."""
    return ["\n".join(lines[i:end_of_report(lines, i)]) for i, line in enumerate(lines)
            if COMPLAINT.search(line) and not HARMLESS.search(line)]


def complaints(lines):
    """Returns the reports that are not of known defects."""
    return [x for x in reports(lines) if not is_elsewhere(x)]
