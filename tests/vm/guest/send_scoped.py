# SPDX-License-Identifier: GPL-2.0
"""send_scoped.py HOST PEER DEVICE PORT: sends a message from an IPv6 address to a link-local
one."""

import socket
import sys

from rds import Sock

host, peer, device, port = *sys.argv[1:4], int(sys.argv[4])
with Sock((host, 0)) as s:
    s.send(b"x", (peer, port, socket.if_nametoindex(device)))
