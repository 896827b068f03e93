# SPDX-License-Identifier: GPL-2.0
"""What in a kernel log is a report of a defect."""

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
# Lines of a healthy boot that look like one.
HARMLESS = re.compile(
    r"Kmemleak testing|kmemleak: (Kernel memory leak detector initialized|Automatic memory scanning)"
    r"|KASAN: enabled|kasan: Kernel|BUG_ON_DATA|DEBUG_LOCKS"
    # Of a tracker whose allocation the fault injection refused.
    r"|ref_tracker: memory allocation failure"
    # Of a test of the kernel crate that 7.3 runs at each boot.
    r"|work func \S*6kernel\S*8spinlock5tests\S* enqueued on deprecated workqueue"
)

# Defects of the kernel's own that no user of RDMA can help: how the report begins, and who is in its trace.
ELSEWHERE = (
    # ib_mad_port_close() destroys the queue pairs of a device that goes before their completions are handled
    # no more. Who is amid one, with a message that has arrived, posts the next receive to what is gone.
    (re.compile(r"WARNING: .* at rxe_post_recv\+"), re.compile(r"\bib_mad_recv_done\+")),
    # A processor that idles takes interrupts: it is the host that has not run it.
    (re.compile(r"hard LOCKUP"), re.compile(r"\bdefault_idle\+")),
)
# Those of the soft devices, which configs/patches mends.
UNPATCHED = (
    # Soft-RoCE looks a queue pair up under RCU when a packet arrives, and frees it without a grace period.
    (re.compile(r"KASAN: slab-use-after-free in rxe_pool_get_index\+"), re.compile(r"\brxe_rcv\+")),
    # It schedules the task of a queue pair whose last reference may have gone with the packet.
    (re.compile(r"WARNING: .* at rxe_sched_task\+"), re.compile(r"\brxe_rcv\+")),
    # Soft-iWARP takes a socket's sk_callback_lock with softirqs enabled.
    (re.compile(r"WARNING: inconsistent lock state"),
     re.compile(r"\bsiw_(rtr|cm_llp|qp_llp)_(data_ready|write_space|state_change)\+")),
)
# The last line of a report, and a line that is not part of one any more.
LAST = re.compile(r"---\[ end trace")
BEHIND = re.compile(r"={60}|mark: ")
# Lines of the longest report: lockdep's, with the traces of all locks of a chain.
LONGEST = 200
# What follows a trace: of a warning, and of KASAN.
END = re.compile(r"---\[ end trace|^Allocated by task", re.M)


def is_elsewhere(report):
    """Whether a report is of one of those, and nothing of ours is in the trace."""
    trace = END.split(report)[0]
    known = ELSEWHERE + (UNPATCHED if is_unpatched() else ())
    return "[rds_rust]" not in trace and any(what.search(trace) and who.search(trace) for what, who in known)


def is_unpatched():
    """Whether the soft devices are those of the kernel's source: scripts/build-kernel.sh decides it in the same way."""
    return bool(os.environ.get("UNPATCHED") or os.environ.get("KSRC"))


def end_of_report(lines, start):
    """The index of the first line behind a report: it ends with its trace, with KASAN's double line, or at a mark of
    a test."""
    for i in range(start + 1, min(start + LONGEST, len(lines))):
        if BEHIND.match(lines[i]):
            return i
        if LAST.search(lines[i]):
            return i + 1
    return min(start + LONGEST, len(lines))


def reports(lines):
    """The reports of a defect, each from the line that looks like one. One in the midst of another counts, too."""
    return ["\n".join(lines[i:end_of_report(lines, i)]) for i, line in enumerate(lines)
            if COMPLAINT.search(line) and not HARMLESS.search(line)]


def complaints(lines):
    """The reports that somebody has to see."""
    return [x for x in reports(lines) if not is_elsewhere(x)]
