# SPDX-License-Identifier: GPL-2.0
"""unread_statuses.py: a program requests notifications of operations and reads none of them, until
an operation is refused. After it has read some, it may operate again."""

from cases import need, outcome
from rdma import SILENT, SUCCESS, Pair, ends

# Unread notifications from which on operations are refused.
MOST = 16 << 10


def main():
    with Pair(4) as p:
        cookie, count = p.theirs.register(0, 4096), 0
        while (told := outcome(p.write, b"", cookie, [(0, 8)], 7, SILENT)) != "ENOBUFS":
            need(told in (0, "ok"), told)
            count += 1
            need(count < 2 * MOST, "any number may be unread")
        need(count >= MOST, f"only {count} may be unread")
        # Some operations were in progress when the limit was reached.
        while count >= MOST:
            found = ends(p.a)
            need(set(found) == {(7, SUCCESS)}, f"ends: {found}")
            count -= len(found)
        told = outcome(p.write, b"", cookie, [(0, 8)], 7, SILENT)
        need(told in (0, "ok"), f"{told} after reads")


main()
