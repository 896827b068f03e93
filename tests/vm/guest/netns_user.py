#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""netns_user.py SIZE...: a user without privileges makes two network namespaces, and changes their
settings. They exchange messages over RDS.

Prints as JSON the ports on which the first one listens before and after its first socket of RDS.
Also prints the transport of an address there, and the scale of the listener's window. Keeps the
connection until the standard input ends.

Before that it reads from one TCP socket of root for each SIZE. It has a receive buffer of this
size, and a send buffer of 2 bytes more. The last one bypasses the accounts of protocols.
"""

import errno
import json
import re
import socket
import subprocess
import sys

from rds import Sock
from user_namespace import become_root_of_a_namespace, enter, enter_new, hold, ip, present, set_up

# Of the two namespaces. The first one connects, as its address is lower.
HOST, PEER = "10.81.0.1", "10.81.0.2"
PORT, RDS_PORT = 16385, 4000
LARGEST = 0x7FFFFFFF
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
# For the send buffer RDS has no wish, so that of TCP would decide.
SETTINGS = {"net/rds/tcp/rds_tcp_rcvbuf": LARGEST, "net/ipv4/tcp_rmem": f"4096 {LARGEST} {LARGEST}",
            "net/ipv4/tcp_wmem": f"4096 {LARGEST} {LARGEST}", "net/core/bypass_prot_mem": 1}


def set_to(setting, value):
    with open(f"/proc/sys/{setting}", "w", encoding="ascii") as f:
        f.write(str(value))


def read_known(size, bypasses):
    """Reads in vain from a TCP socket with buffers of known sizes."""
    set_to("net/core/bypass_prot_mem", int(bypasses))
    with socket.socket() as s:
        # The kernel doubles them.
        s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, size // 2)
        s.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, size // 2 + 1)
        try:
            s.recv(1, socket.MSG_DONTWAIT)
        except OSError as e:
            assert e.errno == errno.ENOTCONN, e
    set_to("net/core/bypass_prot_mem", 0)


def listening():
    """Returns the ports on which the namespace listens."""
    found = subprocess.run(["ss", "-Htln"], check=True, capture_output=True, text=True).stdout
    return sorted(set(re.findall(r":(\d+)\s", found)))


def scale_of_listener():
    """Returns the logarithm by which TCP scales windows of the listener."""
    with socket.create_connection((HOST, PORT)) as s:
        # In struct tcp_info, before the scale of the own window.
        return s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[6] & 15


def configure(netdev, host):
    """Sets up the present namespace."""
    set_up(netdev, host)
    for setting, value in SETTINGS.items():
        set_to(setting, value)


sizes = [int(x) for x in sys.argv[1:]]
for size in sizes:
    read_known(size, size == sizes[-1])
become_root_of_a_namespace()
first, holder = present(), hold()
second = enter_new()
ip(f"link add far type veth peer name near netns {holder.pid}")
configure("far", PEER)
enter(first)
configure("near", HOST)
enter(second)
other = Sock((PEER, RDS_PORT))
enter(first)
told = {"before": listening()}
with Sock((HOST, RDS_PORT), timeout=60) as s:
    told["transport"] = s.transport()
    told["after"] = listening()
    told["scale"] = scale_of_listener()
    s.send(b"there", (PEER, RDS_PORT))
    _, sender = other.recv()
    other.send(b"back", sender)
    s.recv()
    print(json.dumps(told), flush=True)
    sys.stdin.read()
other.sock.close()
holder.communicate()
