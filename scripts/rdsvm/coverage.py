# SPDX-License-Identifier: GPL-2.0
"""Lists the lines of a module that were reached, from the addresses that KCOV reports.

The compiler inserts a call into each basic block; KCOV reports the address behind the call. A line
counts if it has such a call, and as reached if one of its calls ran.
"""

import collections
import re
import subprocess

CALLEE = "__sanitizer_cov_trace_pc"
# Kernel address without randomization. KCOV subtracts the offset from addresses of modules, too.
TEXT = 0xffffffff81000000


def run(*command, text=None):
    return subprocess.run([str(x) for x in command], input=text, check=True, capture_output=True, text=True).stdout


def places(module):
    """Returns {section: offsets behind the calls} of an object file."""
    found, section = {}, None
    for line in run("readelf", "-rW", module).splitlines():
        if begin := re.match(r"Relocation section '\.rela(\S+)'", line):
            section = begin[1]
        elif re.search(rf"R_X86_64_P(LT|C)32 .* {CALLEE} ", line):
            # The relocation is for the last four bytes of the call.
            found.setdefault(section, []).append(int(line.split()[0], 16) + 4)
    return found


def lines_of(module, section, offsets):
    """Returns file and line of each offset: those of the innermost inlined function."""
    told = run("addr2line", "-e", module, "-j", section, text="".join(f"{x - 1:#x}\n" for x in offsets))
    return [tuple(x.split(" (")[0].rsplit(":", 1)) for x in told.splitlines()]


def lines(module, starts, reached):
    """Returns {file: {line: True if it was reached}}. starts: the address of each section."""
    found = collections.defaultdict(dict)
    for section, offsets in places(module).items():
        # Sections of the module's initialization have been freed.
        if section not in starts:
            continue
        for offset, (path, line) in zip(offsets, lines_of(module, section, offsets), strict=True):
            if line.isdigit():
                seen = found[path].get(int(line), False)
                found[path][int(line)] = seen or starts[section] + offset in reached
    return found


def starts(node, name):
    """Returns the addresses of a loaded module's sections, in KCOV's terms."""
    text = int(node.run("grep ' _text$' /proc/kallsyms").out.split()[0], 16)
    at = node.run(f"cd /sys/module/{name}/sections && grep -H . .text*").out.splitlines()
    return {section: int(address, 16) - (text - TEXT) for section, address in (x.split(":") for x in at)}


def table(found, top):
    """Returns rows of text for the files in a folder, with the lines that were not reached."""
    rows = []
    total = [0, 0]
    for path in sorted(found):
        if path.startswith(f"{top}/"):
            hit, all_ = sum(found[path].values()), len(found[path])
            missed = " ".join(str(x) for x in sorted(found[path]) if not found[path][x])
            rows.append(f"{path.removeprefix(f'{top}/'):28} {hit:5} of {all_:5} {hit * 100 // all_:4} %   {missed}")
            total = [total[0] + hit, total[1] + all_]
    return [*rows, f"{'all':28} {total[0]:5} of {total[1]:5} {total[0] * 100 // max(total[1], 1):4} %"]
