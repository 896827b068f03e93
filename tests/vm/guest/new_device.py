# SPDX-License-Identifier: GPL-2.0
"""new_device.py DEVICE TYPE NETDEV ADDRESS: each step of this module fails once when a device is
added.

Then either the device works, or it does not and nothing of it is left.

The fault injection of the kernel has to be limited to this module.
"""

import os
import subprocess
import sys

from cases import need, outcome
from rds import Sock


def add(number, device, kind, netdev):
    """Makes `rdma` add the device, and the NUMBERth step of this fail.

    Returns how many more steps were needed to reach it.
    """
    child = os.fork()
    if not child:
        try:
            with open("/proc/thread-self/fail-nth", "w", encoding="ascii") as f:
                f.write(str(number))
            os.execvp("rdma", ["rdma", "link", "add", device, "type", kind, "netdev", netdev])
        finally:
            os._exit(1)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    with open(f"/proc/{child}/fail-nth", encoding="ascii") as f:
        left = int(f.read())
    need(os.waitpid(child, 0)[1] == 0, "the device is not made")
    return left


def bind(address):
    Sock((address, 0)).sock.close()


def main(device, kind, netdev, address):
    refused = left = number = 0
    while not left:
        number += 1
        subprocess.run(["rdma", "link", "del", device], check=True)
        left = add(number, device, kind, netdev)
        told = outcome(bind, address)
        need(told in ("ok", "EADDRNOTAVAIL"), told)
        refused += told != "ok"
    need(told == "ok", "it does not work without a fault")
    print(f"{number - 1} steps, {refused} of them needed")
    need(refused > 5, "hardly any step was needed")


if __name__ == "__main__":
    main(*sys.argv[1:])
