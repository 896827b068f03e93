# SPDX-License-Identifier: GPL-2.0
"""The profiler reconstructs calls from a trace of blocks."""

import array
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

from insntrace import trace  # noqa: E402
from insntrace.replay import SWITCH, USER  # noqa: E402

BASE = 0xffffffff81000000
NAMES = ("entry_SYSCALL_64", "send", "copy", "wait", "schedule", SWITCH, "worker", "work",
         "asm_timer", "tick", "handle_softirqs", "wake")


def address(place):
    """"send" is the start of a function, "send+8" is further on."""
    name, _, offset = place.partition("+")
    if name == "user":
        return 0x400000 + int(offset or 0)
    return BASE + 0x1000 * NAMES.index(name) + int(offset or 0)


@pytest.fixture
def profile(tmp_path):
    """Makes a profile of blocks (place, instructions of 4 bytes each, kind of end[, times])."""
    symbols = trace.Symbols("".join(
        f"{address(x):x} t {x}{chr(9) + '[rds]' if x in ('send', 'wait') else ''}\n"
        for x in NAMES))

    def make(*blocks, operations=1):
        with open(tmp_path / "0.blocks", "w", encoding="ascii") as f:
            for i, (place, insns, kind, *_) in enumerate(blocks):
                f.write(f"{i} {address(place):x} {kind} {'4' * insns}\n")
        records = array.array("I")
        for i, (_, _, _, *times) in enumerate(blocks):
            records.extend((i, *(times or [1])))
        (tmp_path / "0.trace").write_bytes(records.tobytes())
        return trace.Profile(tmp_path / "0", symbols, operations)

    return make


def paths(profile):
    """Returns {"caller/function": (own instructions, calls)} of the code that ran."""
    found = {}

    def visit(node, path):
        for child in node.children.values():
            way = f"{path}/{child.function}" if path else child.function
            if child.own:
                found[way] = (child.own, child.calls)
            visit(child, way)

    visit(profile.root, "")
    return found


def test_calls_and_returns(profile):
    made = profile(("user", 3, "-"), ("entry_SYSCALL_64", 2, "c"), ("send", 2, "c"),
                   ("copy", 1, "-"), ("copy+4", 1, "-", 100), ("copy+8", 2, "r"),
                   ("send+8", 1, "r"), ("entry_SYSCALL_64+8", 1, "i"), ("user+12", 5, "-"))
    assert paths(made) == {
        USER: (8, 0),
        f"{USER}/entry_SYSCALL_64": (3, 1),
        f"{USER}/entry_SYSCALL_64/send": (3, 1),
        f"{USER}/entry_SYSCALL_64/send/copy": (103, 1),
    }
    assert made.total == 117
    assert made.functions()[0] == ("copy", 103, 1, {"send": 103})


def test_jump_to_another_function_has_the_same_caller(profile):
    made = profile(("send", 2, "c"), ("copy", 1, "-"), ("wake", 4, "r"), ("send+8", 1, "-"))
    assert paths(made) == {"send": (3, 0), "send/copy": (1, 1), "send/wake": (4, 1)}


def test_interrupt(profile):
    made = profile(("send", 2, "-"), ("asm_timer", 1, "c"), ("tick", 5, "r"),
                   ("asm_timer+4", 1, "i"), ("send+8", 1, "-"))
    assert paths(made) == {"send": (3, 0), "send/asm_timer": (2, 1), "send/asm_timer/tick": (5, 1)}


def test_interrupt_between_a_call_and_the_function(profile):
    made = profile(("send", 2, "c"), ("asm_timer", 1, "i"), ("copy", 4, "r"), ("send+8", 1, "-"))
    assert paths(made) == {"send": (3, 0), "send/asm_timer": (1, 1), "send/copy": (4, 1)}


def test_interrupt_between_a_return_and_the_caller(profile):
    made = profile(("send", 2, "c"), ("copy", 4, "r"), ("asm_timer", 1, "i"), ("send+8", 1, "-"))
    assert paths(made) == {"send": (3, 0), "send/copy": (4, 1), "send/copy/asm_timer": (1, 1)}


def test_softirqs_are_a_tree_of_their_own(profile):
    made = profile(("send", 2, "c"), ("handle_softirqs", 3, "r"), ("send+8", 1, "-"))
    assert paths(made) == {"send": (3, 0), "handle_softirqs": (3, 1)}


def sleep(caller, at):
    """Returns the blocks with which `caller`, at an offset, goes to sleep."""
    return [(f"{caller}+{at}", 1, "c"), ("schedule", 2, "c"), (SWITCH, 1, "r")]


def wake(caller, at):
    return [("schedule+8", 2, "r"), (f"{caller}+{at}", 1, "-")]


def test_threads_that_take_turns(profile):
    made = profile(("user", 1, "-"), ("entry_SYSCALL_64", 1, "c"), *sleep("wait", 0),
                   *wake("worker", 0), *sleep("worker", 4), *wake("wait", 4),
                   *sleep("wait", 8), *wake("worker", 8), ("worker+12", 1, "c"), ("work", 7, "r"),
                   ("worker+16", 1, "-"))
    found = paths(made)
    # The worker's first part is without callers; later on its frames are known.
    assert found[f"{USER}/entry_SYSCALL_64/wait"] == (3, 1)
    assert found["worker"] == (5, 0)
    assert found["worker/work"] == (7, 1)
    assert found[f"{USER}/entry_SYSCALL_64/wait/schedule"][0] == 6
    assert found["worker/schedule"][0] == 4
    assert made.total == sum(own for own, _ in found.values())


def test_thread_that_woke_does_not_sleep_any_more(profile):
    made = profile(("send", 1, "c"), *sleep("wait", 0), *wake("worker", 0), *sleep("worker", 4),
                   *wake("wait", 4), ("wait+8", 1, "r"), ("send+4", 1, "-"), *sleep("send", 8),
                   *wake("worker", 8))
    assert paths(made)["worker/schedule"][0] == 4


def test_thread_is_known_by_the_place_where_it_returns(profile):
    made = profile(("send", 1, "c"), *sleep("wait", 0), *wake("worker", 0), *sleep("worker", 4),
                   *wake("work", 0), *sleep("work", 4), *wake("wait", 4), ("wait+8", 1, "r"),
                   ("send+4", 9, "-"), *sleep("send", 40), *wake("worker", 8), ("worker+12", 1, "c"),
                   ("copy", 3, "r"), ("worker+16", 1, "-"), *sleep("worker", 20), *wake("work", 8),
                   ("work+12", 5, "-"))
    found = paths(made)
    assert found["send"] == (11, 0)
    assert found["send/wait"] == (3, 1)
    assert found["worker"] == (6, 0)
    assert found["worker/copy"] == (3, 1)
    assert found["work"] == (8, 0)
    assert made.total == sum(own for own, _ in found.values())


def test_threads_that_sleep_in_the_same_function(profile):
    made = profile(("user", 1, "-"), ("entry_SYSCALL_64", 1, "c"), ("send", 1, "c"),
                   *sleep("wait", 0), ("worker", 1, "c"), *sleep("wait", 0),
                   ("work", 1, "-"), *sleep("work", 4),
                   *wake("wait", 4), ("wait+8", 1, "c"), ("copy", 1, "r"), ("wait+12", 1, "r"),
                   ("send+4", 9, "r"),
                   ("entry_SYSCALL_64+4", 1, "-"))
    found = paths(made)
    assert found[f"{USER}/entry_SYSCALL_64/send"] == (10, 1)
    assert found[f"{USER}/entry_SYSCALL_64"] == (2, 1)


def test_thread_that_sleeps_for_long(profile):
    turns = [*wake("worker", 4), *sleep("worker", 0), *wake("work", 4), *sleep("work", 0)]
    made = profile(("user", 1, "-"), ("entry_SYSCALL_64", 1, "c"), *sleep("wait", 0),
                   *sleep("worker", 0), *sleep("work", 0), *100 * turns,
                   *wake("wait", 4), ("wait+8", 1, "r"), ("entry_SYSCALL_64+4", 7, "-"))
    assert paths(made)[f"{USER}/entry_SYSCALL_64"] == (8, 1)


def test_tables(profile):
    made = profile(("user", 4, "-"), ("send", 2, "c"), ("copy", 10, "r"), ("send+8", 2, "-"),
                   operations=2)
    assert made.by_module().splitlines()[1:] == [
        "         5.0  55.6%  the kernel", "         2.0  22.2%  [user space]",
        "         2.0  22.2%  rds", "         9.0 100.0%  all, mean of 2 operations"]
    assert "         5.0  55.6%      0.50  copy   (send 5)" in made.table().splitlines()
    assert "         7.0  77.8%      2.00      0.50  send" in made.tree().splitlines()


def test_source_lines_add_up(profile):
    class Source:
        def lines(self, places):
            return {x: f"a.rs:{(x - address('send')) // 8}" for x in places}

    made = profile(("send", 4, "-", 3), ("copy", 10, "-"), ("wait", 1, "-"))
    lines = made.by_line("rds", Source()).splitlines()[1:]
    assert [x.split() for x in lines[:2]] == [["6.0", "26.1%", "a.rs:0"], ["6.0", "26.1%", "a.rs:1"]]
    assert sum(float(x.split()[0]) for x in lines) == 13


def test_names_of_rust():
    assert trace.plain("<rds_core[441f939673eae616]::conn::Connection>::send") == \
        "<conn::Connection>::send"
    assert trace.plain("core[1234567890abcdef]::ptr::drop_in_place::<rds_core::msg::Message>") == \
        "core::ptr::drop_in_place::<msg::Message>"
