# SPDX-License-Identifier: GPL-2.0
"""Network namespaces that a user without privileges makes. The process can enter each of them."""

import os
import subprocess

from rds import call

NOBODY = 65534
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
PR_SET_DUMPABLE = 4


def become_root_of_a_namespace():
    """Gives all privileges up, and enters a new user namespace with a new network namespace."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    # Otherwise its files in /proc are root's.
    call("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0)
    call("unshare", CLONE_NEWUSER | CLONE_NEWNET)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {NOBODY} 1"), ("gid_map", f"0 {NOBODY} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as f:
            f.write(text)


def present():
    """Returns a descriptor of the present network namespace, for `enter`."""
    return os.open("/proc/self/ns/net", os.O_RDONLY)


def enter(fd):
    call("setns", fd, CLONE_NEWNET)


def enter_new():
    """Enters a new network namespace, and returns its descriptor."""
    call("unshare", CLONE_NEWNET)
    return present()


def hold():
    """Returns a process in the present network namespace, which others know by its ID. It ends with
    its standard input."""
    return subprocess.Popen(["cat"], stdin=subprocess.PIPE)


def ip(*commands):
    """Runs commands of ip(8)."""
    subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), text=True, check=True)


def set_up(netdev, *hosts):
    """Gives a network device addresses, and puts it up."""
    ip("link set lo up", *(f"addr add {host}/24 dev {netdev}" for host in hosts), f"link set {netdev} up")
