# SPDX-License-Identifier: GPL-2.0
"""Tests of the virtual machines that the other tests use."""

import pytest
from rdsvm import cluster, node
from rdsvm.node import Node

pytestmark = pytest.mark.flavors("release")


class Stopped(Node):
    """A guest whose processors do not run at its first boots."""

    def __init__(self, *args, monkeypatch, times):
        super().__init__(*args)
        self.monkeypatch, self.times = monkeypatch, times

    def _spawn(self, *args):
        stopped, self.times = self.times > 0, self.times - 1
        self.qemu = ["-S"] if stopped else []
        self.monkeypatch.setattr(node, "BOOT_SECONDS", 2 if stopped else 180)
        return super()._spawn(*args)


def test_marks_are_no_older_than_their_lines(tmp_path, monkeypatch):
    machine = make(tmp_path, monkeypatch, 0)
    for _ in range(2):
        machine.boot()
        try:
            for line in ("first", "second"):
                mark = machine.mark("here")
                machine.write_file("/dev/kmsg", f"{line}\n")
                machine.mark("there")
                assert [x for x in machine.log(mark) if x in ("first", "second")] == [line]
        finally:
            machine.kill()


def make(tmp_path, monkeypatch, times):
    where = [cluster.make_print(x, "release") for x in ("kdir", "mods")]
    return Stopped("n", *where, tmp_path, monkeypatch=monkeypatch, times=times)


def test_a_guest_that_stops_is_booted_again(tmp_path, monkeypatch):
    machine = make(tmp_path, monkeypatch, 1)
    with pytest.warns(UserWarning, match=r"booted a second time: n: waited 2 s in vain[^$]*EIP="):
        machine.boot()
    try:
        assert machine.run("echo here").out == "here\n"
        assert "MemTotal" in machine.read_file("/proc/meminfo")
    finally:
        machine.kill()


def test_a_guest_that_ends_is_booted_again(tmp_path, monkeypatch):
    machine = make(tmp_path, monkeypatch, 0)
    wait = machine._await

    def end_first(*args):
        monkeypatch.setattr(machine, "_await", wait)
        machine._qemu.kill()
        return wait(*args)

    monkeypatch.setattr(machine, "_await", end_first)
    with pytest.warns(UserWarning, match=r"second time: n: the machine ended .* exit status is -9:"):
        machine.boot()
    try:
        assert machine.run("echo here").out == "here\n"
    finally:
        machine.kill()


def test_once(tmp_path, monkeypatch):
    with pytest.warns(UserWarning), pytest.raises(node.BootFailed):
        make(tmp_path, monkeypatch, 2).boot()
