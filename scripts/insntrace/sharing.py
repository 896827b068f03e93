# SPDX-License-Identifier: GPL-2.0
"""Finds the cache lines that two CPUs share, from the files of lines.c.

A line is shared if one CPU writes it and another one reads or writes it. Only accesses count that
code of RDS makes, or code that RDS calls. Stacks do not count.
"""

import array
import bisect
import re
from collections import Counter, defaultdict
from typing import NamedTuple

from .replay import ROOTS, USER, Replay
from .trace import USER_END, Block, demangle

BLOCK, WAIT, READ, WRITE = range(4)
RECORD_BYTES = 16
LINE_SHIFT = 6
# The size of a kernel stack, which is also its alignment.
STACK_SHIFT = 14
# The begin of the kernel image, the modules and their static data; all other memory is below.
IMAGE = 0xffffffff80000000
MODULES = {"c": ("rds", "rds_rdma", "rds_tcp"), "rust": ("rds_rust",)}
# Functions of the kernel that work only on memory of their caller. The compiler may inline others
# of the kind.
HELPER = re.compile(
    r"rust_helper_|_raw_(?:spin|read|write)_|(?:native_)?queued_|_*mutex_|down_|up_|_*rwsem_|__x86_"
    r"|percpu_(?:up|down|counter)_|refcount_|kref_|_*list_|llist_|_*rb_|rhashtable_|_*rht_|idr_|ida_|_*xa_"
    r"|_*bitmap_|_?find_(?:next|first)_|_*mem(?:cpy|set|move|cmp)|_*copy_|rep_(?:movs|stos)|clear_page"
    r"|_*wake_up|add_wait_queue|remove_wait_queue|prepare_to_wait|finish_wait")
# C functions of this module that stand for macros and inlined functions of the kernel.
WRAPPER = re.compile(r"rds_rust_")
# Context: within a system call of the marked operation, or any other.
CALL, BACKGROUND = "call", "background"


class Code(NamedTuple):
    """A function as the reason of an access.

    function: of RDS, the one that made the access or called its maker
    own: True if RDS itself made it, or a HELPER
    depth: number of calls between both
    context: see CALL
    """

    function: str
    own: bool
    depth: int
    context: str


class Touch(NamedTuple):
    """Accesses of one CPU to a line for one reason.

    place: address of the instruction of RDS, 0 if not known; at: address of the accessed memory, 0
    for the heap."""

    cpu: int
    write: bool
    code: Code
    place: int
    at: int


def classify(node, modules, names):
    """Returns the Code of a node, without the context of a call that waits; None if it is not RDS.

    modules: {function: its module}; names: modules of RDS."""
    function, wrapper, own, depth, context = None, None, True, 0, BACKGROUND
    while node.parent is not None and node.function != USER:
        if function is None:
            if modules.get(node.function) not in names:
                own = own and (node.function not in modules and HELPER.match(node.function) is not None)
                depth += 1
            elif WRAPPER.match(node.function):
                wrapper = wrapper or (node.function, own, depth)
                depth += 1
            else:
                function = node.function
        if node.function.startswith("entry_SYSCALL"):
            context = CALL
        # An interrupt is no work of the function that it interrupts.
        if node.function.startswith("asm_") or node.function in ROOTS:
            break
        node = node.parent
    if function is None and wrapper:
        function, own, depth = wrapper
    return function and Code(function, own, depth, context)


class Footprint:
    """The lines that one section of the trace touches: {line: {Touch}}.

    It is read from the files PREFIX.0, PREFIX.1 and so on, one for each CPU. blocks: see
    read_blocks(); symbols: see trace.Symbols."""

    def __init__(self, prefix, blocks, symbols, names, cpus=2):
        self.lines, self.stacks = defaultdict(set), set()
        self.blocks, self.modules, self.names = blocks, symbols.modules, names
        for cpu in range(cpus):
            with open(f"{prefix}.{cpu}", "rb") as f:
                self._follow(cpu, f.read())

    def _follow(self, cpu, data):
        words = array.array("Q", data)
        replay, known, block, waits = Replay(), {}, None, False
        for address, rest in zip(words[::2], words[1::2]):
            number, size, what = rest & 0xffffffff, rest >> 32 & 0xffff, rest >> 48
            if what == BLOCK:
                block = self.blocks[number]
                replay.step(block, 1)
                continue
            if what == WAIT:
                waits = True
                continue
            if what == WRITE and block.kind == "c" and number == block.insns - 1:
                self.stacks.add(address >> STACK_SHIFT)
            node = replay.node
            if node not in known:
                known[node] = classify(node, self.modules, self.names)
            code = known[node]
            if code is None:
                continue
            if waits and code.context == CALL:
                continue
            at = address if address >= IMAGE else 0
            touch = Touch(cpu, what == WRITE, code, place(code, block, number, replay), at)
            for line in range(address >> LINE_SHIFT, (address + size - 1 >> LINE_SHIFT) + 1):
                self.lines[line].add(touch)


def place(code, block, number, replay):
    """Returns the address of the instruction of RDS that made the access, or its call."""
    if not code.depth:
        return block.places[number]
    if code.depth <= len(replay.frames):
        node, address = replay.frames[-code.depth]
        if node.function == code.function and address is not None:
            return address - 1
    return 0


def read_blocks(path, symbols):
    """Returns {number: block} of a file of lines.c."""
    with open(path, encoding="ascii") as f:
        return {b.number: b for b in (Block(x, symbols) for x in f)}


# Views of the accesses: in system calls by RDS itself, also by what it calls, and by RDS also in
# other contexts.
VIEWS = {
    "own": lambda code: code.own and code.context == CALL,
    "callees": lambda code: code.context == CALL,
    "background": lambda code: code.own,
}


class Shared(NamedTuple):
    """A shared line. touches: the accesses; written: True if more than one CPU writes it."""

    line: int
    touches: frozenset
    written: bool


def shared(footprints, view):
    """Returns the lines that CPUs share in a round, which consists of several sections."""
    lines, stacks = defaultdict(set), set()
    for x in footprints:
        stacks |= x.stacks
        for line, touches in x.lines.items():
            lines[line] |= {t for t in touches if VIEWS[view](t.code)}
    found = []
    for line, touches in sorted(lines.items()):
        writers = {t.cpu for t in touches if t.write}
        if writers and len({t.cpu for t in touches}) > 1 and line << LINE_SHIFT >> STACK_SHIFT not in stacks:
            found.append(Shared(line, frozenset(touches), len(writers) > 1))
    return found


class Data:
    """Static data of a kernel and its modules, from the text of its /proc/kallsyms."""

    def __init__(self, text):
        known = {}
        for line in text.splitlines():
            address, kind, name, *module = line.split()
            # Absolute symbols are numbers.
            if kind not in "aA":
                known.setdefault(int(address, 16), (name, *module))
        self.symbols, self.addresses = known, sorted(known)

    def find(self, address):
        """Returns the name of what is at an address."""
        index = bisect.bisect_right(self.addresses, address) - 1
        if index < 0:
            return f"{address:#x}"
        start = self.addresses[index]
        name, *module = self.symbols[start]
        offset = f"+{address - start:#x}" if address > start else ""
        return demangle([name])[0] + offset + "".join(f" {x}" for x in module)

    def name(self, touches):
        """Returns the name of static data in a line, which is what is written most; "" on the
        heap."""
        written = Counter(t.at for t in touches if t.write and t.at)
        return self.find(top(written, 1)[0]) if written else ""


def median(values):
    return sorted(values)[len(values) // 2]


def count(rounds):
    """Returns the numbers of lines in each round, as median, least and most."""
    found = {}
    for name, of in (("shared", len), ("written", lambda lines: sum(x.written for x in lines))):
        values = [of(lines) for lines in rounds]
        found[name] = {"p50": median(values), "min": min(values), "max": max(values)}
    return found


def describe(rounds, data, label, names=3):
    """Returns one dictionary for each line, or each kind of line, that rounds share.

    A line with the same address in half of the rounds or more is described alone. Others, which are
    memory of single operations, are described together with those that the same function writes
    most. label(touch): the code of an access, as text."""
    times = Counter(x.line for lines in rounds for x in lines)
    groups = defaultdict(list)
    for number, lines in enumerate(rounds):
        for x in lines:
            writers = Counter(label(t) for t in x.touches if t.write)
            groups[x.line if 2 * times[x.line] >= len(rounds) else top(writers, 1)[0]].append((number, x))
    found = []
    for members in groups.values():
        touches = Counter(t for _, x in members for t in x.touches)
        by = {write: top(_sums((label(t), n) for t, n in touches.items() if t.write == write), names)
              for write in (True, False)}
        found.append({
            "name": data.name(touches.elements()), "rounds": len({number for number, _ in members}),
            "lines": len(members), "written": sum(x.written for _, x in members),
            "writers": by[True], "readers": by[False],
        })
    return sorted(found, key=lambda x: (-x["lines"], -x["written"], x["name"], x["writers"]))


def _sums(pairs):
    sums = Counter()
    for name, n in pairs:
        sums[name] += n
    return sums


def top(names, most):
    """Returns the most common names; equally common ones in the order of the alphabet."""
    return [name for name, _ in sorted(names.items(), key=lambda x: (-x[1], x[0]))[:most]]


def brief(name):
    """Returns a Rust name with the last two parts of its path, and almost without type
    arguments."""
    while m := re.search(r"(::|\w)?<([^<>]*)>", name):
        kept = last(m[2].split(" as ")[0])
        if m[1]:
            counted = name[: m.end(1)].endswith(("Arc", "drop_in_place::"))
            kept = ("" if m[1] == "::" else m[1]) + (f"\1{kept}\2" if counted else "")
        name = name[: m.start()] + kept + name[m.end():]
    return "::".join(parts(name)[-2:]).replace("\1", "<").replace("\2", ">")


def last(path):
    return (parts(path) or [""])[-1]


def parts(path):
    return [x for x in path.split("::") if not x.startswith("{")]


def labels(touches, source):
    """Returns a function that names the code of an access: by its line in the source, if known.

    source: a trace.Source, or None."""
    places = {t.place for t in touches if t.place >= USER_END} if source else set()
    lines = source.lines(places) if places else {}

    def label(touch):
        line, _, function = lines.get(touch.place, "-  ").partition("  ")
        # The debugging information may name a symbol of another section.
        if line == "-" or ("::" not in function and ".rs:" in line):
            function = touch.code.function
        return brief(function) if line == "-" else f"{line} {brief(function)}"

    return label
