# SPDX-License-Identifier: GPL-2.0
"""memory.py: prints the memory that is in use, by its kind, as JSON, in KiB.

Only differences are meaningful: the numbers of free memory are negative.
"""

import json


def memory():
    """Returns KiB by kind, after caches were dropped."""
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("3\n")
    fields = dict(line.split(":") for line in open("/proc/meminfo"))
    kib = {name: int(text.split()[0]) for name, text in fields.items()}
    return {"free": -kib["MemFree"] - kib["Cached"] - kib["Buffers"],
            "available": -kib["MemAvailable"], "slab": kib["Slab"],
            "vmalloc": kib["VmallocUsed"], "percpu": kib["Percpu"],
            "stacks": kib["KernelStack"]}


if __name__ == "__main__":
    print(json.dumps(memory()))
