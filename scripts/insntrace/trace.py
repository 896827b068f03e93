# SPDX-License-Identifier: GPL-2.0
"""Makes tables from the files of trace.c: instructions by function, by source line, by call."""

import array
import bisect
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from pathlib import Path

from .replay import USER, Replay

USER_END = 1 << 63


class Symbols:
    """The functions of a kernel and its modules, from the text of its /proc/kallsyms."""

    def __init__(self, text):
        known = {}
        for line in text.splitlines():
            address, kind, name, *module = line.split()
            if kind in "tTwW" and not name.startswith((".", "__pfx_", "__cfi_")):
                known.setdefault(int(address, 16), (name, *module))
        self.addresses = sorted(known)
        names = demangle([known[x][0] for x in self.addresses])
        self.functions = dict(zip(self.addresses, names))
        # The module of each function; none for functions of the kernel image.
        self.modules = {self.functions[x]: rest[0].strip("[]")
                        for x, (_, *rest) in known.items() if rest}

    def find(self, address):
        """Returns name and start of the function at an address."""
        if address < USER_END:
            return USER, address
        index = bisect.bisect_right(self.addresses, address) - 1
        if index < 0:
            return f"{address:#x}", address
        start = self.addresses[index]
        return self.functions[start], start


def demangle(names):
    tool = shutil.which("c++filt") or shutil.which("llvm-cxxfilt-19")
    if not tool:
        return names
    out = subprocess.run([tool], input="\n".join(names), capture_output=True, text=True, check=True)
    return [plain(x) for x in out.stdout.split("\n")[: len(names)]]


def plain(name):
    """Returns a Rust name without the hash of the crate, and without the crate of this module."""
    return re.sub(r"\brds_core(\[\w+\])?::|\[[0-9a-f]{8,}\]", "", name)


class Source:
    """The source lines of a module.

    path: its .ko with debugging information
    text: the address of its .text in the guest
    skip: folders whose code counts for the line that uses it
    """

    def __init__(self, path, text, skip=()):
        self.path, self.text, self.skip = path, text, tuple(skip)
        self.top = str(Path(path).resolve().parents[2]) + "/"

    def lines(self, addresses):
        """Returns {address: "file:line function"}, with the innermost line of the module itself.

        So inlined code of the kernel's crates counts for the line that uses it."""
        addresses = sorted(addresses)
        out = subprocess.run(
            [shutil.which("llvm-symbolizer") or "llvm-symbolizer-19", f"--obj={self.path}",
             "--inlines"], input="".join(f"{x - self.text:#x}\n" for x in addresses),
            capture_output=True, text=True, check=True).stdout
        return dict(zip(addresses, map(self._own, out.split("\n\n"))))

    def _own(self, answer):
        frames = answer.strip().split("\n")
        functions, places = frames[::2], frames[1::2]
        own = [f"{place.removeprefix(self.top).rsplit(':', 1)[0]}  {plain(function)}"
               for function, place in zip(functions, places) if place.startswith(self.top)]
        others = [x for x in own if not x.startswith(self.skip)]
        return (others or own or [f"-  {plain(functions[0])}"])[0]


class Block:
    """Code that runs from its start to its end. kind: the kind of its end, see trace.c."""

    def __init__(self, line, symbols):
        number, start, self.kind, sizes = line.split()
        self.number, self.start = int(number), int(start, 16)
        self.places = [self.start]
        for size in sizes:
            self.places.append(self.places[-1] + int(size, 16))
        self.end = self.places.pop()
        self.insns = len(self.places)
        self.function, first = symbols.find(self.start)
        self.is_first = first == self.start


class Profile:
    """The code that ran between two marks, for a number of operations.

    It is read from the files PREFIX.blocks and PREFIX.trace."""

    def __init__(self, prefix, symbols, operations):
        self.operations, self.modules = operations, symbols.modules
        with open(f"{prefix}.blocks", encoding="ascii") as f:
            self.blocks = {b.number: b for b in (Block(x, symbols) for x in f)}
        records = array.array("I")
        with open(f"{prefix}.trace", "rb") as f:
            records.frombytes(f.read())
        self.times = Counter()
        replay = Replay()
        pairs = iter(records)
        for number, times in zip(pairs, pairs):
            self.times[number] += times
            replay.step(self.blocks[number], times)
        self.root = replay.root
        self.total = self.root.total()

    def each(self, count):
        return count / self.operations

    def row(self, count, *columns):
        cells = "".join(f"{self.each(x):10.2f}" for x in columns[:-1])
        return f"{self.each(count):12.1f} {100 * count / self.total:5.1f}%{cells}  {columns[-1]}"

    def by_module(self):
        """Returns the instructions of each module's own functions."""
        sums = Counter()
        for node in self.root.walk():
            name = node.function
            sums[name if name == USER else self.modules.get(name, "the kernel")] += node.own
        lines = [self.row(n, name) for name, n in sums.most_common() if n]
        return "\n".join([f"{'instructions':>12}  share", *lines,
                          self.row(self.total, f"all, mean of {self.operations} operations")])

    def functions(self):
        """Returns [(function, own instructions, calls, {caller: own instructions})], sorted."""
        own, calls, callers = Counter(), Counter(), defaultdict(Counter)
        for node in self.root.walk():
            own[node.function] += node.own
            calls[node.function] += node.calls
            if node.parent is not None and node.parent.function:
                callers[node.function][node.parent.function] += node.own
        return [(f, n, calls[f], callers[f]) for f, n in own.most_common() if n]

    def table(self, rows=100):
        """Lists functions by own instructions, with the callers that have the largest parts."""
        lines = [f"{'instructions':>12}  share     calls  function   (called by)"]
        for function, own, calls, callers in self.functions()[:rows]:
            ways = ", ".join(f"{short(c, 50)} {self.each(n):.0f}"
                             for c, n in callers.most_common(3) if n > own / 20)
            lines.append(self.row(own, calls, short(function) + (f"   ({ways})" if ways else "")))
        return "\n".join(lines)

    def by_line(self, module, source, rows=100):
        """Lists source lines of a module by their own instructions."""
        places = Counter()
        for number, times in self.times.items():
            if self.modules.get(self.blocks[number].function) == module:
                for place in self.blocks[number].places:
                    places[place] += times
        lines, found = Counter(), source.lines(places)
        for place, times in places.items():
            lines[found[place]] += times
        return "\n".join([f"{'instructions':>12}  share  line and function of {module}",
                          *(self.row(n, x) for x, n in lines.most_common(rows))])

    def tree(self, least=0.003):
        """Lists the tree of calls, without parts smaller than `least` of the total."""
        lines = [f"{'with callees':>12}  share       own     calls  function"]

        def show(node, depth):
            total = node.total()
            if total < least * self.total:
                return
            lines.append(self.row(total, node.own, node.calls, "  " * depth + short(node.function)))
            for x in sorted(node.children.values(), key=lambda x: x.total(), reverse=True):
                show(x, depth + 1)

        for x in sorted(self.root.children.values(), key=lambda x: x.total(), reverse=True):
            show(x, 0)
        return "\n".join(lines)


def short(name, most=90):
    return name if len(name) <= most else name[: most - 3] + "..."
