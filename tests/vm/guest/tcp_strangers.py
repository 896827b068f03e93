# SPDX-License-Identifier: GPL-2.0
"""tcp_strangers.py PEER PORT HOST...: connects to an RDS node without speaking RDS. Prints "ready"
when the node knows all connections; a line on the input ends them."""

import sys

from tcp_peer import connect, refused

peer, port, hosts = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
# No host has more than the node lets wait of one, but all together have. The last one has more.
EACH, LAST = 7, 12
bad = connect(hosts[0], peer, port, timeout=30)
# A header for a message that is too long.
bad.sendall(bytes(16) + b"\xff" * 4 + bytes(28))
refused(bad)
silent = [connect(host, peer, port, timeout=30) for host in hosts for _ in range(LAST if host == hosts[-1] else EACH)]
print("ready", flush=True)
sys.stdin.readline()
for s in silent:
    s.close()
# The node may have refused the others by now.
connect(hosts[0], peer, port, timeout=30).close()
