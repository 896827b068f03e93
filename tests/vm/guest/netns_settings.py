#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""netns_settings.py FILE: opens the settings of the network namespace of this file, and writes them
until they have gone. It is not in that namespace then. Prints "writing", and at the end the error.
"""

import errno
import os
import sys

from rds import call

CLONE_NEWNET = 0x40000000
SETTINGS = "/proc/sys/net/rds"
# Each with two values.
FILES = {"ping_enable": (b"0", b"1"), "keepalive_secs": (b"20", b"30"), "tcp/rds_tcp_sndbuf": (b"0", b"20000"),
         "tcp/rds_tcp_rcvbuf": (b"0", b"20000")}


def enter(fd):
    call("setns", fd, CLONE_NEWNET)


home = os.open("/proc/self/ns/net", os.O_RDONLY)
there = os.open(sys.argv[1], os.O_RDONLY)
enter(there)
files = {os.open(f"{SETTINGS}/{name}", os.O_RDWR): values for name, values in FILES.items()}
enter(home)
# The namespace may end from here on.
os.close(there)
print("writing", flush=True)
try:
    while True:
        for fd, values in files.items():
            for value in values:
                os.pwrite(fd, value, 0)
            os.pread(fd, 100, 0)
except OSError as e:
    print(errno.errorcode[e.errno], flush=True)
