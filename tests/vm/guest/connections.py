# SPDX-License-Identifier: GPL-2.0
"""connections.py [NODE]: prints the RDS connections of this kernel as a table."""

import sys

from rds import connections

node = sys.argv[1] if len(sys.argv) > 1 else "this node"
found = connections()
if found is None:
    print(f"{node}: the kernel keeps no list of connections (RDS_INFO_CONNECTIONS)")
elif not found:
    print(f"{node} has no connections")
else:
    rows = [("node", "local", "peer", "transport", "tos", "next sent", "next received", "state")]
    rows += [(node, c.local, c.peer, c.transport, c.tos, c.next_tx, c.next_rx, c.state)
             for c in found]
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(str(x).ljust(w) for x, w in zip(row, widths)).rstrip())
