# SPDX-License-Identifier: GPL-2.0
"""The basic blocks of a module, from its disassembly.

A block begins at the symbol of a function, and behind a jump or a return. It also begins at each
target of a jump, a jump table, a static branch or an exception. It continues behind a call. A block
counts as reached if its last instruction is within a translation block of QEMU that ran.
"""

import bisect
import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

from insntrace import trace

# Prefixes of symbols without code: padding that allows to patch the entry of a function.
NO_FUNCTIONS = ("__pfx_", "__cfi_")
HEADER = re.compile(r"^[0-9a-f]+ <(.*)>:$")
INSN = re.compile(r"^ *([0-9a-f]+):\t([^\t]*)")
RELOCATION = re.compile(r"\t[0-9a-f]+: R_X86_64_\w+\t(\S+?)(?:[-+]0x[0-9a-f]+)?$")
TARGET = re.compile(r"^\S+ +([0-9a-f]+) <")
JUMP = re.compile(r"^(?:(?:bnd|notrack|data16|cs|ds|repz?) +)*"
                  r"(?:j\w+|loop\w*|ret\w*|iret\w*|ud[12]\w*|hlt|int3)\b")
PADDING = re.compile(r"^(?:nop\w*\b|(?:(?:data16|cs|ds) +)+nop\w*\b|xchg +%ax,%ax$|int3)")
# Functions of the Rust core and the kernel that never return.
PANIC = re.compile(r"panick|rust_begin_unwind|^panic$|rust_helper_BUG|(?:option|result)\w*_failed")
# Relocations of addresses where code continues: jump tables, static branches and exceptions.
LEADERS = {"R_X86_64_64": re.compile(r"\.rela\.(?:rodata|data)"),
           "R_X86_64_PC32": re.compile(r"\.rela(?:__jump_table|__ex_table)$")}


def run(*command, text=None):
    return subprocess.run([str(x) for x in command], input=text, check=True, capture_output=True,
                          text=True).stdout


@dataclass(frozen=True)
class Block:
    """The location of a block.

    last: the offset of its last instruction
    start: the offset of its function
    kind: "panic" if the block ends in one, or "-"
    source: file:line of its start, or of its end, or "-"
    """

    section: str
    offset: int
    size: int
    last: int
    start: int
    kind: str
    function: str
    source: str = "-"

    @property
    def place(self):
        """Function and offset: the same for each load, and for each build with that function."""
        return f"{self.function}+{self.offset - self.start:#x}"

    def line(self):
        numbers = " ".join(f"{x:x}" for x in (self.offset, self.size, self.last, self.start))
        return f"{self.section} {numbers} {self.kind} {self.function} {self.source}"

    @classmethod
    def parse(cls, line):
        section, *numbers, kind, function, source = line.split(" ", 7)
        return cls(section, *(int(x, 16) for x in numbers), kind, function, source)


def leaders(relocations):
    """Returns {section: offsets where code continues}, from relocations printed by readelf."""
    found, table = defaultdict(set), ""
    for line in relocations.splitlines():
        if begin := re.match(r"Relocation section '(\S+)'", line):
            table = begin[1]
        elif m := re.search(r" (R_X86_64_\w+) +[0-9a-f]+ (\.\S*text\S*) \+ ([0-9a-f]+)$", line):
            if (tables := LEADERS.get(m[1])) and tables.match(table):
                found[m[2]].add(int(m[3], 16))
    return found


def blocks(disassembly, more):
    """Returns blocks in the order of the disassembly by objdump -dr; more: see leaders()."""
    found = []
    for part in disassembly.split("Disassembly of section ")[1:]:
        name, _, text = part.partition(":\n")
        if "text" in name:
            found += section_blocks(name, text, more.get(name, set()))
    return found


def section_blocks(section, text, more):
    insns, heads, starts = [], {}, set(more)
    function, behind_jump = None, True
    for line in text.splitlines():
        if m := HEADER.match(line):
            # Objdump names one of several aliases.
            function, behind_jump = m[1], True
        elif m := INSN.match(line):
            offset, code = int(m[1], 16), m[2].strip()
            if behind_jump:
                starts.add(offset)
            if function not in heads:
                heads[function] = offset
            called = RELOCATION.search(line)
            insns.append((offset, code, function, called[1] if called else ""))
            behind_jump = JUMP.match(code) is not None
            if behind_jump and (target := TARGET.match(code)):
                starts.add(int(target[1], 16))
    return list(cut(section, insns, heads, starts))


def cut(section, insns, heads, starts):
    """Returns the blocks of a section's instructions, without blocks that are only padding."""
    begin = 0
    for i in range(1, len(insns) + 1):
        if i < len(insns) and insns[i][0] not in starts:
            continue
        part, begin = insns[begin:i], i
        offset, function = part[0][0], part[0][2]
        # Padding at the end does not run if a call before it does not return.
        some = [x for x in part if not PADDING.match(x[1])]
        if function.startswith(NO_FUNCTIONS) or not some:
            continue
        last = some[-1][0]
        # The size of the last instruction of a section does not matter.
        end = insns[i][0] if i < len(insns) else last + 1
        panics = some[-1][1].startswith("ud") or any(PANIC.search(x[3]) for x in some)
        yield Block(section, offset, end - offset, last, heads[function],
                    "panic" if panics else "-", function)


class Image:
    """The blocks of a module, by location."""

    def __init__(self, found):
        self.blocks = list(found)
        self._lasts, self._numbers, self._cache = {}, {}, {}
        order = sorted(range(len(self.blocks)), key=lambda i: self.blocks[i].last)
        for number in order:
            block = self.blocks[number]
            self._lasts.setdefault(block.section, []).append(block.last)
            self._numbers.setdefault(block.section, []).append(number)

    @classmethod
    def of(cls, module, top):
        """Returns the image of a .ko whose sources are below top."""
        found = blocks(run("objdump", "-d", "-r", "-w", "--no-show-raw-insn", module),
                       leaders(run("readelf", "-rW", module)))
        return cls(with_sources(module, found, top))

    def reached(self, section, offset, size):
        """Returns the numbers of the blocks that end within the `size` bytes at `offset`."""
        key = section, offset, size
        if key not in self._cache:
            lasts = self._lasts.get(section, [])
            a, b = (bisect.bisect_left(lasts, x) for x in (offset, offset + size))
            self._cache[key] = self._numbers[section][a:b] if a < b else []
        return self._cache[key]


def with_sources(module, found, top):
    """Returns the blocks with their locations in the source.

    For inlined code that is the innermost line below top: code of the kernel's crates counts for
    the line that uses it."""
    by_section = defaultdict(list)
    for block in found:
        by_section[block.section].append(block)
    for section, some in by_section.items():
        # The first instruction may be generated by the compiler, and then has no line.
        told = run("addr2line", "-a", "-i", "-e", module, "-j", section,
                   text="".join(f"{x.offset:#x}\n{x.last:#x}\n" for x in some))
        answers = iter(re.split(r"^0x[0-9a-f]+\n", told, flags=re.M)[1:])
        for block, first, last in zip(some, answers, answers, strict=True):
            yield replace(block, source=own(first + last, f"{Path(top).resolve()}/"))


def own(answers, top):
    """Returns the first of the locations that is a line below top."""
    for place in answers.splitlines():
        path, _, line = place.split(" (")[0].rpartition(":")
        if path.startswith(top) and line.isdigit():
            return f"{path.removeprefix(top)}:{line}"
    return "-"


def plain(names):
    """Returns {mangled name: readable name}."""
    names = list(dict.fromkeys(names))
    return dict(zip(names, trace.demangle(names)))
