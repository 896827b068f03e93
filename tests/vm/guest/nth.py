# SPDX-License-Identifier: GPL-2.0
"""The kernel's own way to have one step of a thread fail, by its number."""

import os


class Nth:
    """The NUMBERth step of a thread fails, in the kernel's own way."""

    def __init__(self, thread):
        self.file = os.open(f"/proc/{thread}/fail-nth", os.O_RDWR)

    def begin(self, number):
        os.pwrite(self.file, b"%d" % number, 0)

    def end(self):
        """How many more steps it would have taken to get there."""
        left = int(os.pread(self.file, 20, 0))
        self.begin(0)
        return left

    def close(self):
        os.close(self.file)
