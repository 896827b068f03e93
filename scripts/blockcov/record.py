# SPDX-License-Identifier: GPL-2.0
"""Records which blocks of the module each test reaches, from the counters that cover.c shares.

Machine (rdsvm/cluster.py) reports each boot, load and unload to a Session, and pytest reports each
test to it. The files that a Session writes are described in cases.py.
"""

import json
import mmap
import os
import re
import struct
import time
from itertools import zip_longest
from pathlib import Path
from weakref import WeakKeyDictionary

import pytest

from .cases import to_ranges, write_blocks
from .image import Image

TOP = Path(__file__).resolve().parents[2]
PLUGIN = TOP / "build/tools/blockcov.so"
# The constants of cover.c.
MAGIC = b"rdsbcov1"
ROOM = 1 << 18
FIRST_WORD = 8
SECTIONS = "/sys/module/rds_rust/sections"
# Fixtures that give a test the machines of a lab.
LENDING = ("node", "pair")


class Counters:
    """The counters of one machine, in memory that its QEMU has mapped as well."""

    def __init__(self, room=ROOM):
        size = (FIRST_WORD + 2 * room) * 8 + room * 4
        self.fd = os.memfd_create("blockcov")
        os.ftruncate(self.fd, size)
        self._map = mmap.mmap(self.fd, size)
        self._map[:16] = MAGIC + struct.pack("=Q", room)
        view = memoryview(self._map)
        self.words = view[:FIRST_WORD * 8].cast("Q")
        at = FIRST_WORD * 8
        self.starts, at = view[at:at + room * 8].cast("Q"), at + room * 8
        self.counts, at = view[at:at + room * 8].cast("Q"), at + room * 8
        self.sizes = view[at:].cast("I")
        self._seen = []

    @property
    def path(self):
        """Returns the path of the file, for a child of this process."""
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    def close(self):
        os.close(self.fd)

    def ran(self):
        """Returns [(address, size)] of the blocks that ran since the last call."""
        count, lost = self.words[2], self.words[3]
        if lost:
            raise OverflowError(f"the plugin had no room for {lost} blocks")
        now = self.counts[:count].tolist()
        ran = [i for i, (new, old) in enumerate(zip_longest(now, self._seen)) if new != (old or 0)]
        self._seen = now
        return [(self.starts[i], self.sizes[i]) for i in ran]


class Recorder:
    """The blocks that one machine reaches, from its boot to its end."""

    def __init__(self, image):
        self.image, self.counters = image, Counters()
        # {section: address} of the loaded module.
        self.sections = {}
        self.reached = set()

    def sync(self):
        """Adds the blocks that ran since the last call, located by the present sections."""
        for address, size in self.counters.ran():
            # A section's blocks are all between its start and its end.
            for name, start in self.sections.items():
                self.reached.update(self.image.reached(name, address - start, size))

    def take(self):
        """Returns the numbers of the blocks that were reached since the last call."""
        self.sync()
        taken, self.reached = self.reached, set()
        return taken

    def load(self, sections):
        """Adds the blocks that ran since unload(), including those of the initialization."""
        self.sections = sections
        self.sync()
        # The memory of the module's initialization has been freed.
        self.sections = {k: v for k, v in sections.items() if not k.startswith(".init")}

    def unload(self):
        """Adds the last blocks of a module that is unloaded, or is about to be."""
        self.sync()
        self.sections = {}


def parse_sections(text):
    """Returns {name: address} from the output of grep on /sys/module/NAME/sections."""
    found = re.findall(r"^(\S+):(0x[0-9a-f]+)$", text, re.M)
    return {name: int(address, 16) for name, address in found}


class Session:
    """A pytest plugin: writes into a folder which blocks of a module each test reaches."""

    def __init__(self, folder, module):
        if not PLUGIN.exists():
            raise pytest.UsageError(f"there is no {PLUGIN}: make test-coverage builds it")
        self.module, self.image = module, Image.of(module, TOP)
        folder.mkdir(parents=True, exist_ok=True)
        write_blocks(folder / "blocks", self.image.blocks)
        self.cases = folder / "cases.jsonl"
        # (machine, Recorder) of all machines that were booted since the last test, or still run.
        self.recorders = []
        # The remaining QEMU arguments of each machine.
        self.arguments = WeakKeyDictionary()
        self.setup, self.start, self.passed = None, 0, True

    # For Machine

    def booting(self, machine):
        if machine.module != self.module:
            return
        recorder = Recorder(self.image)
        self.recorders.append((machine, recorder))
        others = self.arguments.setdefault(machine, machine.qemu)
        machine.qemu = [*others, "-plugin", f"{PLUGIN},map={recorder.counters.path}"]

    def _current(self, machine):
        return [r for m, r in self.recorders if m is machine][-1:]

    def loading(self, machine):
        # Other modules may have been at the addresses where this one will be.
        self.unloaded(machine)

    def loaded(self, machine):
        for recorder in self._current(machine):
            told = machine.run(f"cd {SECTIONS} && grep -H . .*text*", check=False)
            # A module that refused to load has no sections, so its blocks are not known.
            recorder.load(parse_sections(told.out))

    def unloaded(self, machine):
        for recorder in self._current(machine):
            recorder.unload()

    # For pytest

    def take(self):
        taken = set().union(*(r.take() for _, r in self.recorders))
        for machine, recorder in self.recorders:
            if not machine.alive() or recorder not in self._current(machine):
                recorder.counters.close()
        self.recorders = [x for x in self.recorders if x[0].alive() and x[1] in self._current(x[0])]
        return taken

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.setup, self.start, self.passed = None, time.monotonic(), True
        try:
            return (yield)
        finally:
            self.write(item.nodeid, setup=self.setup)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        try:
            return (yield)
        finally:
            if fixturedef.argname in LENDING:
                impls, kind = request.node.callspec.params[f"{fixturedef.argname}_lab"]
                self.setup = f"[{fixturedef.argname} {'-'.join(impls)} {kind}]"
                self.write(self.setup)

    def pytest_runtest_logreport(self, report):
        self.passed = self.passed and report.passed

    def write(self, case, **more):
        """Writes the blocks that were reached since the last case."""
        now = time.monotonic()
        line = {"case": case, **more, "seconds": round(now - self.start, 2), "passed": self.passed,
                "blocks": to_ranges(self.take())}
        with open(self.cases, "a", encoding="utf-8") as f:
            f.write(json.dumps(line) + "\n")
        self.start = now
