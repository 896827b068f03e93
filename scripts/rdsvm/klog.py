# SPDX-License-Identifier: GPL-2.0
"""What in a kernel log is a report of a defect."""

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
    | blocked\ for\ more\ than | soft\ lockup | hard\ LOCKUP | detected\ stall
    | refcount_t
    | \bleaked?\b
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
)


def complaints(lines):
    """The lines that report a defect, each with the few lines that follow it."""
    hits = []
    for i, line in enumerate(lines):
        if COMPLAINT.search(line) and not HARMLESS.search(line):
            hits.append("\n".join(lines[i : i + 40]))
    return hits
