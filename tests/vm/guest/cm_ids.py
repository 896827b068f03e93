# SPDX-License-Identifier: GPL-2.0
"""The CM ids of this kernel, as its RDMA netlink reports them: with all bytes of their addresses.
"""

import json
import socket
import struct
import subprocess

NETLINK_RDMA, NLDEV, CM_ID_GET = 20, 5, 11
NLM_F_REQUEST, NLM_F_DUMP = 1, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
# Attributes.
DEVICE, KERNEL_NAME, CM_IDS, SOURCE, TARGET = 1, 29, 30, 33, 34


def attributes(raw):
    """Yields (kind, value) of each attribute."""
    while len(raw) >= 4:
        length, kind = struct.unpack_from("=HH", raw)
        yield kind & 0x3FFF, raw[4:length]
        raw = raw[(length + 3) & ~3:]


def dump(device):
    """Yields the messages about one device, without their headers."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_RDMA) as s:
        body = struct.pack("=HHI", 8, DEVICE, device)
        s.send(struct.pack("=IHHII", 16 + len(body), NLDEV << 10 | CM_ID_GET, NLM_F_REQUEST | NLM_F_DUMP, 1, 0) + body)
        while True:
            raw = s.recv(1 << 16)
            while raw:
                length, kind = struct.unpack_from("=IH", raw)
                if kind in (NLMSG_ERROR, NLMSG_DONE):
                    return
                yield raw[16:length]
                raw = raw[(length + 3) & ~3:]


def cm_ids(name):
    """Yields (source, target) of the CM ids of a kernel module, each as a `struct
    sockaddr_storage`."""
    devices = json.loads(subprocess.run(["rdma", "-j", "dev"], check=True, capture_output=True).stdout)
    for device in devices:
        for message in dump(device["ifindex"]):
            for entry in (x for kind, table in attributes(message) if kind == CM_IDS for _, x in attributes(table)):
                one = dict(attributes(entry))
                if one.get(KERNEL_NAME) == name.encode() + b"\0" and TARGET in one:
                    yield one[SOURCE], one[TARGET]
