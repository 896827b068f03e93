# SPDX-License-Identifier: GPL-2.0
"""Machines with more hardware than a Node has, or with another clock."""

# With one CPU, the clock advances a nanosecond for each instruction, and jumps to the next timer when there
# is nothing to do.
COUNTING_CLOCK = ("-icount", "shift=0,sleep=off")
# What all numbers in Documentation/ were counted on: it copies byte by byte.
COUNTED_CPU = "max"
# All numbers in Documentation/ were counted with the MTU that Ethernet has by default.
COUNTED_MTU = 1500
# Kernel parameters that turn the detectors of base.config off: their timers would be counted with what is measured.
NO_DETECTORS = ("nowatchdog", "workqueue.watchdog_thresh=0", "sysctl.kernel.hung_task_timeout_secs=0",
                "sysctl.vm.mem_profiling=never")


def with_iommu(memory_mib=2048, strict=False):
    """Arguments of a Machine that has two NUMA nodes and a PCI device behind an IOMMU. strict: a mapping
    that ends is taken out of the IOTLB at once, not with others a little later. Who is not behind the IOMMU, as
    devices that KUnit suites make, has bounce buffers for all memory."""
    half = memory_mib // 2
    qemu = ["-device", "intel-iommu", "-device", "e1000,romfile="]
    for node in (0, 1):
        qemu += ["-object", f"memory-backend-ram,id=m{node},size={half}M",
                 "-numa", f"node,nodeid={node},memdev=m{node}"]
    return {"qemu": qemu, "memory": f"{2 * half}M",
            "cmdline": ["intel_iommu=on", "iommu.passthrough=0", "swiotlb=force", f"iommu.strict={int(strict)}"]}
