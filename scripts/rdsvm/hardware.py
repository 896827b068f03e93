# SPDX-License-Identifier: GPL-2.0
"""Machines with more hardware than a Node has, or with another clock."""

import os

# With one CPU, the clock advances a nanosecond for each instruction, and jumps to the next timer
# when the CPU is idle.
COUNTING_CLOCK = ("-icount", "shift=0,sleep=off")
# The CPU model of all numbers in Documentation/: on it the kernel copies byte by byte.
COUNTED_CPU = "max"
# The MTU of all numbers in Documentation/, which is Ethernet's default.
COUNTED_MTU = 1500
# Kernel parameters that disable the detectors of base.config: their timers would be counted, too.
NO_DETECTORS = ("nowatchdog", "workqueue.watchdog_thresh=0", "sysctl.kernel.hung_task_timeout_secs=0",
                "sysctl.vm.mem_profiling=never")


# Ways of soft-RoCE to memory, through the DMA API (configs/patches/rxe-dma-device.cocci): bounce
# buffers, or an IOMMU. STRICT: as for with_iommu().
BOUNCED, TRANSLATED, STRICT = WAYS = "bounced", "translated", "strict"
# DMA operations of a device of the tests (tests/vm/faulty/rxe_guarded.c). Only its driver has them.
GUARDED = "guarded"
# The PCI device of the DMA API. No driver binds to it.
DMA_DEVICE = "0000:00:1e.0"
# The parameter `dma` of soft-RoCE.
DMA_PARAMETER = {BOUNCED: "1", TRANSLATED: DMA_DEVICE, STRICT: DMA_DEVICE, GUARDED: "1"}
# Start of the names of the DMA API devices to check: the parameter `strict` of tests/vm/faulty.
CHECKED = {BOUNCED: "rxe_dma.", TRANSLATED: DMA_DEVICE, STRICT: DMA_DEVICE, GUARDED: "rxe_dma."}
# Its folder in debugfs, and the counters of accesses and calls that were not allowed.
FAULTS = "/sys/kernel/debug/rxe_faults"
VIOLATIONS = ("unmapped", "beyond", "direction", "owner", "call")


def way_of_environment():
    """Returns the way of all soft-RoCE devices, or None if they use memory where it is."""
    way = os.environ.get("RDS_DMA") or None
    if way not in (None, *WAYS):
        raise ValueError(f"RDS_DMA={way}: not one of {', '.join(WAYS)}")
    return way


def checking_driver(path, way):
    """Returns a shell command that loads the soft-RoCE of tests/vm/faulty in place of the other."""
    return (f"rmmod rdma_rxe && insmod {path} dma={DMA_PARAMETER[way]} strict={CHECKED[way]} "
            f"guarded={int(way == GUARDED)}")


def with_dma(way):
    """Returns arguments of QEMU and of the kernel for a way to memory. None: none."""
    if way is None:
        return [], []
    cmdline = [f"rdma_rxe.dma={DMA_PARAMETER[way]}"]
    if way == BOUNCED:
        return [], ["swiotlb=force", *cmdline]
    if way == GUARDED:
        return [], cmdline
    return (["-device", "intel-iommu", "-device", "pci-testdev,addr=1e"],
            ["intel_iommu=on", "iommu.passthrough=0", f"iommu.strict={int(way == STRICT)}", *cmdline])


def with_iommu(memory_mib=2048, strict=False):
    """Returns arguments of a Machine with two NUMA nodes and a PCI device behind an IOMMU.

    strict: a mapping that ends is removed from the IOTLB at once, and not later with others.
    Devices that are not behind the IOMMU, such as those of KUnit suites, use bounce buffers for all
    memory."""
    half = memory_mib // 2
    qemu = ["-device", "intel-iommu", "-device", "e1000,romfile="]
    for node in (0, 1):
        qemu += ["-object", f"memory-backend-ram,id=m{node},size={half}M",
                 "-numa", f"node,nodeid={node},memdev=m{node}"]
    return {"qemu": qemu, "memory": f"{2 * half}M",
            "cmdline": ["intel_iommu=on", "iommu.passthrough=0", "swiotlb=force", f"iommu.strict={int(strict)}"]}
