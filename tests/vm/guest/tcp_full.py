# SPDX-License-Identifier: GPL-2.0
"""tcp_full.py HOST PEER TCP_PORT PORT: four connections to a node that has no room for them. One
sends nothing, one the congestion map of C RDS, one also its question for the number of paths, and
one two messages to PORT.

The first one ends after a time, the next two at once. The last one stays; the program prints
"refused" then, and ends with its input.
"""

import sys

from tcp_peer import congestion_map, connect, header, probe, refused

host, peer, tcp_port, port = *sys.argv[1:3], *map(int, sys.argv[3:])
for prelude in b"", congestion_map(), congestion_map() + probe(1):
    s = connect(host, peer, tcp_port)
    s.sendall(prelude)
    # The node's own congestion map would be an answer.
    refused(s)
delivered = connect(host, peer, tcp_port)
# One segment, of which the node cannot have a part.
delivered.sendall(b"".join(header(n, 7, dport=port) + f"hello {n}".encode() for n in (1, 2)))
print("refused", flush=True)
sys.stdin.read()
