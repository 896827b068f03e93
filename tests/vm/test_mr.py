# SPDX-License-Identifier: GPL-2.0
"""Memory regions that are registered, used by peers and freed, and peers that serve no operations
on theirs."""

from contextlib import contextmanager

import pytest
from faults import EVERYWHERE, faults_within
from probes import Probes
from test_rogue import add_rogue

pytestmark = pytest.mark.impls("rust")


def play(program, node, tools, guest):
    """Runs a program with a peer over verbs."""
    add_rogue(node, guest)
    node.run(["python3", guest / program, tools.parent / "verbs.so", int(node.kind == "rxe")], timeout=600)


@pytest.mark.on_siw("release")
def test_regions(node, tools, guest):
    play("mr.py", node, tools, guest)


@pytest.mark.parametrize("case", (
    "processes", "stress", "forked", "flushed", "at_once",
    # These make many operations, which take a minute on the debug kernel.
    *(pytest.param(x, marks=pytest.mark.flavors("release")) for x in ("unread", "unasked"))))
def test_pinning(case, node, guest):
    node.run(["python3", guest / "pinning.py", case], timeout=300)


@pytest.mark.on_siw("debug")
@pytest.mark.flavors("debug")
def test_memory_that_cannot_be_pinned(node, guest):
    with faults_within(node, EVERYWHERE, "rds_faults/fail_pin", probability=0):
        node.run(["python3", guest / "pinning.py", "refused"], timeout=300)


def test_pins_are_long_term(node, guest):
    """Pins are long-term, so that the kernel first moves the memory that it may have to move
    later."""
    foll_longterm = 1 << 8
    with Probes(node, "pin_user_pages_fast flags=%dx:u32") as probes:
        node.run(["python3", guest / "pinning.py", "flushed"])
        flags = [int(what.removeprefix("flags=")) for _, what in probes.calls()]
    assert flags and all(x & foll_longterm for x in flags), flags


@contextmanager
def file_system(node):
    """Mounts a file system that has to be notified of each written page. Yields its folder."""
    folder = "/run/files"
    node.run(f"mkdir -p {folder} && mount -t 9p -o trans=virtio,version=9p2000.L,cache=mmap files {folder}")
    try:
        yield folder
    finally:
        node.run(["umount", folder])


@pytest.mark.parametrize("case", (pytest.param("writable", marks=pytest.mark.long), "read_only", "refused", "truncated"))
def test_kinds(case, node, guest):
    """Programs may use several kinds of memory. Written data goes there and nowhere else, and
    memory that cannot be used is refused."""
    with file_system(node) as folder:
        node.run(["python3", guest / "kinds.py", int(node.kind == "rxe"), folder, case], timeout=300)


@contextmanager
def huge_pages(node):
    """Reserves some huge pages, and lets the kernel make others on request."""
    aside, made = "/proc/sys/vm/nr_hugepages", "/sys/kernel/mm/transparent_hugepage/enabled"
    node.run(f"echo 8 >{aside} && echo madvise >{made} && [ $(cat {aside}) = 8 ]")
    try:
        yield
    finally:
        node.run(f"echo 0 >{aside}; echo never >{made}")


# The release kernel has no huge pages: see configs/debug.config.
@pytest.mark.flavors("debug")
def test_huge_pages(node, guest):
    """Huge pages work, as in Oracle's buffers."""
    with huge_pages(node):
        node.run(["python3", guest / "kinds.py", int(node.kind == "rxe"), "/", "huge"], timeout=300)


# On iWARP this cannot be detected, as drivers report different values for what was negotiated.
@pytest.mark.kinds("rxe")
@pytest.mark.long
def test_peer_that_serves_nothing(node, tools, guest):
    play("unserved.py", node, tools, guest)
