#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""netns_user.py: a user without privileges makes a network namespace, and changes its settings.
Prints as JSON the ports on which it listens before and after its first socket of RDS. Also prints
the transport of an address there, and the scale of the listener's window."""

import json
import os
import re
import socket
import subprocess

from rds import Sock, call

NOBODY = 65534
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
HOST, PORT = "10.81.0.1", 16385
LARGEST = 0x7FFFFFFF


def listening():
    """Returns the ports on which the namespace listens."""
    found = subprocess.run(["ss", "-Htln"], check=True, capture_output=True, text=True).stdout
    return sorted(set(re.findall(r":(\d+)\s", found)))


def become_root_of_a_namespace():
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    # Otherwise its files in /proc are root's.
    call("prctl", 4, 1, 0, 0, 0)
    call("unshare", CLONE_NEWUSER | CLONE_NEWNET)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {NOBODY} 1"), ("gid_map", f"0 {NOBODY} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as f:
            f.write(text)


def scale_of_listener():
    """Returns the logarithm by which TCP scales windows of the listener."""
    with socket.create_connection((HOST, PORT)) as s:
        # In struct tcp_info, before the scale of the own window.
        return s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[6] & 15


become_root_of_a_namespace()
for command in ("link set lo up", f"addr add {HOST}/32 dev lo"):
    subprocess.run(["ip", *command.split()], check=True)
for setting, value in (("net/rds/tcp/rds_tcp_rcvbuf", LARGEST), ("net/ipv4/tcp_rmem", f"4096 {LARGEST} {LARGEST}"),
                       ("net/ipv4/tcp_wmem", f"4096 {LARGEST} {LARGEST}"), ("net/core/bypass_prot_mem", 1)):
    with open(f"/proc/sys/{setting}", "w", encoding="ascii") as f:
        f.write(str(value))
told = {"before": listening()}
with Sock((HOST, 0)) as s:
    told["transport"] = s.transport()
    told["after"] = listening()
    told["scale"] = scale_of_listener()
print(json.dumps(told))
