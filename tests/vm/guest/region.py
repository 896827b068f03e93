# SPDX-License-Identifier: GPL-2.0
"""region.py ADDRESS: registers a page on the device of an address, and frees it.

The first region of a device creates a queue pair.
"""

import sys

import rdma
from rds import Sock

with Sock((sys.argv[1], 0)) as s:
    memory = rdma.Memory(s, 1)
    memory.free(memory.register(0, 4096), rdma.INVALIDATE)
