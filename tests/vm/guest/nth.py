# SPDX-License-Identifier: GPL-2.0
"""The fault injection of the kernel for one step of a thread, by its number."""

import os


class Nth:
    """A fault in the NUMBERth step of a thread."""

    def __init__(self, thread):
        self.file = os.open(f"/proc/{thread}/fail-nth", os.O_RDWR)

    def begin(self, number):
        os.pwrite(self.file, b"%d" % number, 0)

    def end(self):
        """Removes the fault. Returns how many more steps were needed to reach it."""
        left = int(os.pread(self.file, 20, 0))
        self.begin(0)
        return left

    def close(self):
        os.close(self.file)
