# SPDX-License-Identifier: GPL-2.0
"""Verified traffic that runs during the whole of another test."""


# An ordinary user, but not that of guest/hogs.py.
USER = 1002


class Bystander:
    """Two addresses of a node that exchange verified messages, with each of several types of
    service, until finish() is called. The program belongs to an ordinary user."""

    def __init__(self, node, guest, local, peer, *values, user=USER):
        self.process = node.start(["python3", guest / "bystander.py", user, local, peer, *values])
        self.asked = 0
        self._rounds()

    def _rounds(self):
        return int(self.process.expect(rf"\A(?:\d+\n){{{self.asked}}}(\d+)\n")[1])

    def go_on(self):
        """Waits for the end of another round. Returns the number of rounds so far."""
        self.process.write("\n")
        self.asked += 1
        return self._rounds()

    def finish(self):
        self.process.finish()
