# SPDX-License-Identifier: GPL-2.0
"""Rules of the kernel's interfaces that no compiler checks. No test can show their violation."""

import re
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
# Functions of C in a source file: the text from a name at the start of a line to the closing brace.
FUNCTION = re.compile(r"^\w[^\n;]*\([^;{}]*\)\n\{\n(.*?)^\}", re.M | re.S)


def functions(text):
    return [x[1] for x in FUNCTION.finditer(text)]


def test_notify_signal_of_programs_stays():
    """TIF_NOTIFY_SIGNAL of a program announces work of io_uring, so only kernel threads may clear
    it. Others get a warning, and an error."""
    found = [x for path in sorted((TOP / "bindings").glob("*.c")) for x in functions(path.read_text())
             if "clear_notify_signal" in x.replace("clear_notify_signal() would", "")]
    assert len(found) == 1
    for body in found:
        guard = body.find("WARN_ON_ONCE(!(current->flags & PF_KTHREAD))")
        assert 0 <= guard < body.find("timer_setup_on_stack"), body


def test_no_slice_of_the_memory_of_a_caller():
    """A `&mut [u8]` over memory that is not initialised is undefined. Callers of callbacks pass
    such memory, for example getsockname(2). Only buffers of this module, which are zeroed when they
    are allocated, may become slices."""
    found = [path.relative_to(TOP).as_posix() for folder in ("kapi", "bindings") for path in (TOP / folder).rglob("*.rs")
             for _ in re.findall(r"\bfrom_raw_parts_mut\b|&mut \*\w+\.cast::<\[", path.read_text())]
    assert found == ["kapi/rdma/buf.rs"]
