# SPDX-License-Identifier: GPL-2.0
"""The coverage by blocks: a plugin counts, a recorder tells loads apart, reports add up."""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

from blockcov import cases, image, record, report  # noqa: E402

# Made with objdump, and shortened. At 29 is a panic, at 42 a jump table, at 61 a static branch.
DISASSEMBLY = """
it.o:     file format elf64-x86-64


Disassembly of section .text:

0000000000000000 <__cfi_once>:
   0:	nop
   1:	mov    $0x1234,%eax

0000000000000010 <once>:
  10:	cmp    $0x4,%edi
  13:	jl     24 <once+0x14>
  15:	call   1a <once+0xa>	16: R_X86_64_PLT32	ext-0x4
  1a:	mov    %eax,%ebp
  1c:	jmp    2c <once+0x1c>
  1e:	nopl   0x0(%rax)
  24:	cmp    $0x1,%edi
  27:	jne    2c <once+0x1c>
  29:	call   2e <once+0x1e>	2a: R_X86_64_PLT32	_RNvNtCs1_4core9panicking5panic-0x4
  2c:	pop    %rbp
  2d:	ret
  2e:	int3
  2f:	int3

0000000000000040 <sw>:
  40:	mov    %edi,%eax
  42:	jmp    *0x0(,%rax,8)	45: R_X86_64_32S	.rodata
  49:	mov    $0x1,%edi
  4e:	jmp    53 <sw+0x13>	4f: R_X86_64_PLT32	ext-0x4
  53:	mov    $0x2,%edi
  58:	mov    $0x3,%edi
  5d:	ud2

0000000000000060 <lab>:
  60:	push   %rbx
  61:	nopl   0x0(%rax,%rax,1)
  66:	call   6b <lab+0xb>	67: R_X86_64_PLT32	ext-0x4
  6b:	pop    %rbx
  6c:	ret
  6d:	call   72 <lab+0x12>	6e: R_X86_64_PLT32	ext-0x4
  72:	nopw   0x0(%rax,%rax,1)

Disassembly of section .init.text:

0000000000000000 <init_module>:
   0:	xor    %eax,%eax
   2:	ret

Disassembly of section .rodata:

0000000000000000 <table>:
   0:	ret
"""
RELOCATIONS = """
Relocation section '.rela.text' at offset 0x8a0 contains 1 entry:
    Offset             Info             Type               Symbol's Value  Symbol's Name + Addend
0000000000000016  0000000200000001 R_X86_64_64            0000000000000000 .text + 1a

Relocation section '.rela.rodata' at offset 0x9c0 contains 2 entries:
    Offset             Info             Type               Symbol's Value  Symbol's Name + Addend
0000000000000000  0000000200000001 R_X86_64_64            0000000000000000 .text + 49
0000000000000008  0000000200000001 R_X86_64_64            0000000000000000 .text + 58

Relocation section '.rela__jump_table' at offset 0xa50 contains 3 entries:
    Offset             Info             Type               Symbol's Value  Symbol's Name + Addend
0000000000000000  0000000200000002 R_X86_64_PC32          0000000000000000 .text + 61
0000000000000004  0000000200000002 R_X86_64_PC32          0000000000000000 .text + 6b
0000000000000008  0000000f00000018 R_X86_64_PC64          0000000000000000 g + 0
"""
PLACES = ["once+0x0", "once+0x5", "once+0x14", "once+0x19", "once+0x1c", "sw+0x0", "sw+0x9",
          "sw+0x13", "sw+0x18", "lab+0x0", "lab+0x1", "lab+0xb", "lab+0xd",
          "init_module+0x0"]
BASE, INIT = 0xffffffffa0002000, 0xffffffffa0009000


@pytest.fixture
def module():
    return image.Image(image.blocks(DISASSEMBLY, image.leaders(RELOCATIONS)))


def places(module, numbers):
    return {module.blocks[x].place for x in numbers}


def test_blocks(module):
    assert [x.place for x in module.blocks] == PLACES
    assert [x.place for x in module.blocks if x.kind == "panic"] == ["once+0x19", "sw+0x18"]
    assert [image.Block.parse(x.line()) for x in module.blocks] == module.blocks


def test_block_is_reached_if_its_end_is(module):
    assert places(module, module.reached(".text", 0x10, 5)) == {"once+0x0"}
    # The first instruction of the block ran, and the function that it calls did not return.
    assert not module.reached(".text", 0x15, 5)
    assert places(module, module.reached(".text", 0x1a, 4)) == {"once+0x5"}
    # QEMU does not end its block at the target of another jump.
    assert places(module, module.reached(".text", 0x60, 13)) == {"lab+0x0", "lab+0x1", "lab+0xb"}
    # Nothing returns to the padding behind the call.
    assert places(module, module.reached(".text", 0x6d, 5)) == {"lab+0xd"}
    assert places(module, module.reached(".init.text", 0, 3)) == {"init_module+0x0"}
    assert not module.reached(".exit.text", 0, 3)


def test_source_is_the_innermost_line_of_the_project():
    answer = "/kernel/core.rs:7\n/top/msg/a.rs:12 (discriminator 3)\n/top/sock/b.rs:90\n"
    assert image.own(answer, "/top/") == "msg/a.rs:12"
    assert image.own("/kernel/core.rs:7\n/top/msg/a.rs:?\n", "/top/") == "-"


def test_sources_of_an_object(tmp_path):
    source = tmp_path / "some/it.c"
    source.parent.mkdir()
    source.write_text("int ext(int);\nint once(int a)\n{\n\tif (a > 3)\n\t\treturn ext(a);\n"
                      "\treturn 1;\n}\n"
                      "__attribute__((section(\".init.text\"))) int first(void)\n{ return 2; }\n")
    subprocess.run(["gcc", "-g", "-O0", "-c", "-o", tmp_path / "it.o", source], check=True)
    found = {x.source for x in image.Image.of(tmp_path / "it.o", tmp_path).blocks}
    assert {"some/it.c:3", "some/it.c:5", "some/it.c:6", "some/it.c:9"} <= found, found


class Guest:
    """A recorder, with a substitute for QEMU's side of it."""

    def __init__(self, module):
        self.recorder, self.known = record.Recorder(module), {}

    def run(self, start, size):
        counters = self.recorder.counters
        index = self.known.setdefault((start, size), len(self.known))
        counters.starts[index], counters.sizes[index] = start, size
        counters.words[2] = len(self.known)
        counters.counts[index] += 1


def test_loads_are_distinguished(module):
    guest = Guest(module)
    guest.run(BASE + 0x10, 5)
    # No module is loaded.
    assert not guest.recorder.take()
    guest.run(INIT, 3)
    guest.run(BASE + 0x2c, 2)
    guest.recorder.load({".text": BASE, ".init.text": INIT})
    assert places(module, guest.recorder.take()) == {"init_module+0x0", "once+0x1c"}
    assert not guest.recorder.take()
    # Another module's initialization is at that address by now.
    guest.run(INIT, 3)
    guest.run(BASE + 0x40, 9)
    guest.recorder.unload()
    guest.run(BASE + 0x10, 5)
    assert places(module, guest.recorder.take()) == {"sw+0x0"}
    # There was another module between the two loads.
    guest.run(BASE + 0x40, 9)
    guest.recorder.unload()
    # After the next load the same address belongs to another function.
    guest.recorder.load({".text": BASE - 0x50})
    guest.run(BASE + 0x10, 13)
    assert places(module, guest.recorder.take()) == {"lab+0x0", "lab+0x1", "lab+0xb"}
    # Beyond the end, and before the start.
    guest.run(BASE + 0x2000, 5)
    guest.run(BASE - 0x60, 5)
    assert not guest.recorder.take()


def test_lost_blocks_are_no_coverage(module):
    guest = Guest(module)
    guest.recorder.counters.words[3] = 1
    with pytest.raises(OverflowError):
        guest.recorder.take()


def test_sections():
    text = ".text:0xffffffffa0002000\n.init.text:0xffffffffa0009000\ngrep: x\n"
    assert record.parse_sections(text) == {".text": BASE, ".init.text": INIT}


# A substitute for QEMU's functions. run() translates and runs a block of four-byte instructions.
QEMU = """
#include <stdint.h>
#include <stddef.h>
static void (*translate)(uint64_t, void *);
static uint64_t start, *counter, step;
static size_t count;
static int regions[64];
size_t qemu_plugin_tb_n_insns(void *tb) { return count; }
uint64_t qemu_plugin_tb_vaddr(void *tb) { return start; }
void *qemu_plugin_tb_get_insn(void *tb, size_t i) { return regions + i; }
size_t qemu_plugin_insn_size(void *insn) { return 4; }
uint64_t qemu_plugin_insn_vaddr(void *insn) { return start + 4 * ((int *)insn - regions); }
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*cb)(uint64_t, void *))
{
	translate = cb;
}
void qemu_plugin_register_vcpu_tb_exec_inline(void *tb, int op, uint64_t *p, uint64_t n)
{
	counter = p;
	step = n;
}
int run(uint64_t at, size_t insns)
{
	start = at, count = insns, counter = NULL;
	translate(0, NULL);
	if (counter)
		*counter += step;
	return counter != NULL;
}
"""


@pytest.fixture
def plugin(tmp_path):
    """Loads the plugin into this process, with arguments; returns its status and run()."""
    (tmp_path / "qemu.c").write_text(QEMU)
    cover_c = TOP / "scripts/blockcov/cover.c"
    for name, source in (("qemu", tmp_path / "qemu.c"), ("cover", cover_c)):
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / f"{name}.so", source],
                       check=True)
    qemu = ctypes.CDLL(str(tmp_path / "qemu.so"), mode=ctypes.RTLD_GLOBAL)
    qemu.run.argtypes = ctypes.c_uint64, ctypes.c_size_t

    def install(*arguments):
        cover = ctypes.CDLL(str(tmp_path / "cover.so"))
        argv = (ctypes.c_char_p * len(arguments))(*(x.encode() for x in arguments))
        return cover.qemu_plugin_install(ctypes.c_uint64(0), None, len(arguments), argv), qemu.run

    return install


def test_plugin(plugin):
    counters = record.Counters(room=3)
    status, run = plugin(f"map={counters.path}")
    assert status == 0
    assert run(BASE, 2) and run(BASE + 8, 1) and run(BASE, 2)
    assert sorted(counters.ran()) == [(BASE, 8), (BASE + 8, 4)]
    assert not counters.ran()
    # Another size at the same start is another block. The kernel and programs have no counters.
    assert run(BASE, 1)
    for outside in (0xffffffff81000000, 0x400000, 0xffffffffff000000):
        assert not run(outside, 2)
    assert counters.ran() == [(BASE, 4)]
    assert not run(BASE + 0x100, 1)
    with pytest.raises(OverflowError):
        counters.ran()


def test_plugin_wants_a_map(plugin, tmp_path):
    (tmp_path / "other").write_bytes(bytes(4096))
    assert plugin()[0] == -1
    assert plugin(f"map={tmp_path}/none")[0] == -1
    assert plugin(f"map={tmp_path}/other")[0] == -1
    assert plugin(f"map={tmp_path}/other", "more")[0] == -1


# The clock counts its reads.
CONFTEST = """
import itertools
import sys
from pathlib import Path
sys.path[:0] = [{scripts!r}, {here!r}]
import pytest
import test_blockcov
from blockcov import image, record

class Machine:
    module, qemu, up = "it.ko", ["-smp", "2"], False

    def alive(self):
        return self.up

    def boot(self):
        session.booting(self)
        assert self.qemu[:3] == ["-smp", "2", "-plugin"] and len(self.qemu) == 4
        self.up = True
        self.guest = test_blockcov.Guest(session.image)
        self.guest.recorder = session.recorders[-1][1]
        self.guest.run(test_blockcov.BASE + 0x40, 9)
        self.load()

    def load(self):
        session.loading(self)
        self.guest.run(test_blockcov.INIT, 3)
        session.loaded(self)

    def run(self, command, check):
        text = f".text:{{test_blockcov.BASE:#x}}\\n.init.text:{{test_blockcov.INIT:#x}}\\n"
        return type("Result", (), {{"out": text}})

def pytest_configure(config):
    global session
    record.PLUGIN = Path(__file__)
    image.Image.of = lambda module, top: image.Image(image.blocks(
        test_blockcov.DISASSEMBLY, image.leaders(test_blockcov.RELOCATIONS)))
    record.time.monotonic = itertools.count().__next__
    session = record.Session(Path("out"), "it.ko")
    config.pluginmanager.register(session)

@pytest.fixture(scope="session")
def node_lab(request):
    machine = Machine()
    yield machine
    machine.up = False

@pytest.fixture
def node(node_lab):
    if not node_lab.up:
        node_lab.boot()
    yield node_lab
    node_lab.guest.run(test_blockcov.BASE + 0x2c, 2)

@pytest.fixture
def own():
    return Machine()
"""
CASES = """
import pytest
from test_blockcov import BASE

labs = pytest.mark.parametrize("node_lab", [pytest.param((("rust",), "rxe"), id="rust")],
                               indirect=True, scope="session")

@labs
def test_first(node):
    node.guest.run(BASE + 0x10, 5)

@labs
def test_second(node):
    node.guest.run(BASE + 0x40, 9)
    node.up = False
    assert False

@labs
def test_third(node):
    pass

def test_own(own):
    own.boot()
    own.guest.run(BASE + 0x10, 5)
    own.up = False
"""


def test_session(tmp_path):
    (tmp_path / "conftest.py").write_text(
        CONFTEST.format(scripts=str(TOP / "scripts"), here=str(Path(__file__).parent)))
    (tmp_path / "test_it.py").write_text(CASES)
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
                          cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    assert "3 passed" in done.stdout and "1 failed" in done.stdout, done.stdout
    run = cases.Run([tmp_path / "out"])

    def places_of(case):
        return {run.blocks[x].place for x in case.blocks}

    first, second, third, own = (run.cases[f"test_it.py::test_{x}"]
                                 for x in ("first[rust]", "second[rust]", "third[rust]", "own"))
    setup, = run.setups.values()
    assert setup.name == "[node rust rxe]" and places_of(setup) == {"init_module+0x0"}
    assert places_of(first) == {"once+0x0", "once+0x1c"}
    # The machine had ended before the test did, and the blocks that it ran count.
    assert places_of(second) == {"sw+0x0", "once+0x1c"}
    assert places_of(third) == {"once+0x1c"}
    assert places_of(own) == {"init_module+0x0", "once+0x0"}
    assert [x.passed for x in (first, second, third, own)] == [True, False, True, True]
    assert [x.setup for x in (first, own)] == [setup.name, None]
    assert [x.seconds for x in (setup, first, own)] == [1, 1, 1]


@pytest.mark.parametrize("numbers, text", (
    (set(), ""), ({4}, "4"), ({0, 1, 2, 3, 7}, "0-3,7"), ({5, 6, 9, 10}, "5-6,9-10")))
def test_ranges(numbers, text):
    assert cases.to_ranges(numbers) == text
    assert cases.from_ranges(text) == numbers


@pytest.fixture
def folder(module, tmp_path):
    """Makes the folder of a run with cases: {name: (set-up, seconds, passed, blocks)}."""
    def make(told, name="run"):
        path = tmp_path / name
        path.mkdir()
        sources = ["sock/a.rs:7", "sock/a.rs:8", "msg/b.rs:3", "msg/b.rs:4", "-"]
        found = [image.replace(x, source=sources[i % 5]) for i, x in enumerate(module.blocks)]
        cases.write_blocks(path / "blocks", found)
        keys = "setup", "seconds", "passed", "blocks"
        (path / "cases.jsonl").write_text("".join(
            json.dumps({"case": case, **dict(zip(keys, values))}) + "\n"
            for case, values in told.items()))
        return path

    return make


LAB = "[node rust rxe]"
TOLD = {
    LAB: (None, 20, True, "0-1"),
    "slow": (LAB, 10, True, "2-7"),
    "fast": (LAB, 1, True, "2-4"),
    "other": (LAB, 2, True, "2,8"),
    "none": (LAB, 1, True, "0,2"),
    "own": (None, 9, True, "12"),
    "bad": (LAB, 1, False, "9"),
}


def order(found):
    return [(x["case"], x["new"], x["seconds"]) for x in found["order"]]


def test_cover(folder):
    found = report.cover(cases.Run([folder(TOLD)]), {})
    # The first test takes the time of the set-up, too, and reaches its blocks.
    assert order(found) == [("slow", 8, 30.0), ("other", 1, 32.0), ("own", 1, 41.0)]
    assert found["nothing new"] == ["fast", "none"]
    assert found["failed"] == ["bad"] and not found["no room"]
    assert found["reached"] == 11 and found["blocks"] == 14


def test_cover_with_other_times_and_a_limit(folder):
    run = cases.Run([folder(TOLD)])
    seconds = {"slow": 100, "other": 1, "own": 2, LAB: 1, "gone": 5}
    assert order(report.cover(run, seconds)) == [
        ("fast", 5, 2.0), ("other", 1, 3.0), ("own", 1, 5.0), ("slow", 3, 105.0)]
    found = report.cover(run, seconds, within=50)
    assert [x["case"] for x in found["order"]] == ["fast", "other", "own"]
    assert found["no room"] == ["slow"] and found["nothing new"] == ["none"]


def test_redundant(folder):
    """A redundant test takes long and adds nothing, or little at the end."""
    run = cases.Run([folder({"all": (None, 5, True, "0-11"), "none": (None, 3, True, "0-3"), "short": (None, 1, True, "4"),
                             "bad": (None, 9, False, "1"), "last": (None, 90, True, "12")})])
    found = report.cover(run, {})
    assert order(found) == [("all", 12, 5.0), ("last", 1, 95.0)]
    assert report.redundant(run, found) == ["none"]
    assert report.redundant(run, found | {"reached": 12}) == ["last", "none"]


def test_several_runs(folder, tmp_path):
    one = folder({"a": (None, 3, False, "0-1"), "b": (None, 1, True, "0")}, "one")
    two = folder({"a": (None, 2, True, "4"), "b": (None, 1, False, "5")}, "two")
    run = cases.Run([one, two])
    a = run.cases["a"]
    assert (a.blocks, a.seconds, a.passed) == ({0, 1, 4}, 3, False)
    assert not run.cases["b"].passed
    assert run.reached() == {0, 1, 4, 5}
    (two / "blocks").write_text((two / "blocks").read_text().replace("once", "twice"))
    with pytest.raises(cases.Mismatch):
        cases.Run([one, two])
    with pytest.raises(cases.Mismatch):
        cases.write_blocks(two / "blocks", run.blocks)


def test_missed(folder):
    lines = list(report.missed(cases.Run([folder({"a": (None, 1, True, "0-3,5")})])))
    table = {x.split()[0]: x.split()[1:] for x in lines[1:5]}
    assert table["msg/b.rs"] == ["1", "of", "4", "25", "%"]
    assert table["sock/a.rs"] == ["3", "of", "6", "50", "%"]
    assert table["all"] == ["4", "of", "12", "33", "%"]
    assert "2 more end in a panic or a trap; 1 of them were reached." in lines
    assert "\n".join(lines).split("were reached.\n\n")[1] == """\
(no line of the module)
     1 in lab (nothing of the function)
     1 in once

msg/b.rs
     1 in lab (nothing of the function): 3
     1 in sw: 3
     1 in init_module (nothing of the function): 4

sock/a.rs
     2 in lab (nothing of the function): 7-8
     1 in sw: 8"""


def test_command(folder):
    path = folder(TOLD)
    done = subprocess.run([sys.executable, TOP / "scripts/blockcov/report.py", "cover", path,
                           "--json", path / "c.json"], check=True, capture_output=True, text=True)
    assert json.loads((path / "c.json").read_text())["order"][0]["case"] == "slow"
    assert "30.0      8       8  72.7 %  slow\n" in done.stdout
