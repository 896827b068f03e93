# SPDX-License-Identifier: GPL-2.0
"""make bench-sharing finds the cache lines that CPUs share, from the records of its plugin."""

import struct
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

import bench_sharing  # noqa: E402
from insntrace import sharing, trace  # noqa: E402

BASE = 0xffffffff81000000
NAMES = ("entry_SYSCALL_64", "sys_send", "rds_send", "rds_rust_lock", "_raw_spin_lock", "kmalloc", "asm_timer", "tick",
         "handle_softirqs", "rds_take")
OF_RDS = {"rds_send", "rds_rust_lock", "rds_take"}
HEAP, STACK = 0xffff888000010000, 0xffffc90000010000
COUNTER = 0xffffffff82000000


def kallsyms():
    lines = [f"{BASE + 0x1000 * i:x} t {x}" + ("\t[rds_rust]" if x in OF_RDS else "") for i, x in enumerate(NAMES)]
    return "\n".join([*lines, f"{COUNTER:x} b rds_count\t[rds_rust]", f"{COUNTER + 8:x} B rds_small\t[rds_rust]",
                      f"{COUNTER + 0x100:x} B jiffies", f"{COUNTER + 4:x} A a_number"]) + "\n"


SYMBOLS = trace.Symbols(kallsyms())
DATA = sharing.Data(kallsyms())


class Trace:
    """The records of one CPU. A block has four instructions of four bytes."""

    def __init__(self, blocks):
        self.blocks, self.records = blocks, b""

    def run(self, place, kind="-"):
        if place not in self.blocks:
            name, _, offset = place.partition("+")
            start = 0 if name == "user" else BASE + 0x1000 * NAMES.index(name) + int(offset or 0)
            self.blocks[place] = f"{len(self.blocks)} {start:x} {kind} 4444\n"
        return self.record(0, int(self.blocks[place].split()[0]), 0, sharing.BLOCK)

    def record(self, address, number, size, what):
        self.records += struct.pack("=QIHH", address, number, size, what)
        return self

    def read(self, address, insn=0, size=8):
        return self.record(address, insn, size, sharing.READ)

    def write(self, address, insn=0, size=8):
        return self.record(address, insn, size, sharing.WRITE)

    def wait(self):
        return self.record(0, 0, 0, sharing.WAIT)

    def call(self):
        """A system call that has arrived in RDS."""
        return self.run("user").run("entry_SYSCALL_64", "c").run("sys_send", "c").run("rds_send")


@pytest.fixture
def round_of(tmp_path):
    """Makes the footprints of one round: of each section, a function that records on two CPUs."""

    def make(*sections):
        blocks = {}
        traces = [[Trace(blocks), Trace(blocks)] for _ in sections]
        for fill, cpus in zip(sections, traces):
            fill(*cpus)
        (tmp_path / "x.blocks").write_text("".join(blocks.values()))
        known = sharing.read_blocks(tmp_path / "x.blocks", SYMBOLS)
        for i, cpus in enumerate(traces):
            for cpu, made in enumerate(cpus):
                (tmp_path / f"x.{i}.{cpu}").write_bytes(made.records)
        return [sharing.Footprint(tmp_path / f"x.{i}", known, SYMBOLS, ("rds_rust",)) for i in range(len(sections))]

    return make


def addresses(footprints, view="own"):
    """Returns {begin of a shared line: True if both CPUs write it}."""
    return {x.line << sharing.LINE_SHIFT: x.written for x in sharing.shared(footprints, view)}


def both(first, second):
    """Returns two sections: a call on each CPU, which then does something."""
    return (lambda a, _: first(a.call())), (lambda _, b: second(b.call()))


def test_line_is_shared_if_one_cpu_writes_and_another_touches_it(round_of):
    made = round_of(*both(lambda a: a.write(HEAP).write(HEAP + 0x40).read(HEAP + 0x80).write(HEAP + 0xc0),
                          lambda b: b.write(HEAP + 0x38).read(HEAP + 0x40).read(HEAP + 0x80)))
    assert addresses(made) == {HEAP: True, HEAP + 0x40: False}


def test_one_cpu_shares_nothing_with_itself(round_of):
    made = round_of(lambda a, _: a.call().write(HEAP), lambda a, _: a.call().write(HEAP))
    assert addresses(made) == {}


def test_access_across_two_lines(round_of):
    made = round_of(*both(lambda a: a.write(HEAP + 0x3c), lambda b: b.read(HEAP + 0x40)))
    assert addresses(made) == {HEAP + 0x40: False}


def test_code_outside_of_rds_does_not_count(round_of):
    def other(t):
        t.run("user").run("entry_SYSCALL_64", "c").run("sys_send").write(HEAP)

    made = round_of(lambda a, _: other(a), lambda _, b: b.call().write(HEAP))
    assert addresses(made) == addresses(made, "callees") == {}


def test_callees_are_apart_and_helpers_belong_to_their_caller(round_of):
    def call(t):
        t.call().run("rds_send+16", "c").run("_raw_spin_lock", "r").write(HEAP)
        t.run("rds_send+32", "c").run("kmalloc", "c").write(HEAP + 0x40)
        # A helper's caller that is none makes the difference.
        t.run("_raw_spin_lock", "r").write(HEAP + 0x80)

    def callee_of_a_helper(t):
        t.call().run("rds_send+16", "c").run("_raw_spin_lock+16", "c").run("kmalloc").write(HEAP + 0xc0)

    made = round_of(*((lambda a, _, f=f: f(a)) for f in (call, callee_of_a_helper)),
                    *((lambda _, b, f=f: f(b)) for f in (call, callee_of_a_helper)))
    assert addresses(made) == {HEAP: True}
    assert addresses(made, "callees") == {HEAP + x: True for x in (0, 0x40, 0x80, 0xc0)}


def codes(footprints):
    return {(t.code.function, t.place) for x in footprints for touches in x.lines.values() for t in touches}


def test_place_is_the_call_if_a_helper_made_the_access(round_of):
    start = BASE + 0x1000 * NAMES.index("rds_send")
    made = round_of(lambda a, _: a.call().run("rds_send+16", "c").run("rds_rust_lock", "c").run("_raw_spin_lock")
                    .write(HEAP), lambda _, b: b.call().write(HEAP, insn=2))
    assert codes(made) == {("rds_send", start + 31), ("rds_send", start + 8)}


def test_wrapper_without_a_caller_of_rds_counts_itself(round_of):
    made = round_of(lambda a, _: a.run("user").run("entry_SYSCALL_64", "c").run("rds_rust_lock").write(HEAP))
    assert {function for function, _ in codes(made)} == {"rds_rust_lock"}


def test_interrupt_is_no_work_of_the_interrupted_code(round_of):
    made = round_of(lambda a, _: a.call().run("asm_timer", "c").run("tick").write(HEAP),
                    lambda _, b: b.call().write(HEAP))
    assert addresses(made, "callees") == {}


def test_softirqs_are_background(round_of):
    made = round_of(lambda a, _: a.call().run("asm_timer", "c").run("handle_softirqs", "c").run("rds_take").write(HEAP),
                    lambda _, b: b.call().write(HEAP))
    assert addresses(made) == addresses(made, "callees") == {}
    assert addresses(made, "background") == {HEAP: True}


def test_calls_of_the_program_that_waits_do_not_count(round_of):
    def waits(t):
        t.call().run("rds_send+16", "r").run("sys_send+16", "r").run("entry_SYSCALL_64+16", "i").run("user").wait()
        t.call().write(HEAP)
        t.run("handle_softirqs", "c").run("rds_take").write(HEAP + 0x40)

    made = round_of(lambda a, _: waits(a), lambda _, b: b.call().write(HEAP).write(HEAP + 0x40))
    assert addresses(made, "background") == {HEAP + 0x40: True}


def test_stacks_do_not_count(round_of):
    def call(t):
        t.run("user").run("entry_SYSCALL_64", "c").write(STACK + 0x3000, insn=3)
        t.run("sys_send", "c").run("rds_send").write(STACK + 0x100).write(HEAP)

    made = round_of(lambda a, _: call(a), lambda _, b: call(b))
    assert addresses(made) == {HEAP: True}


def test_static_data_has_names():
    assert DATA.find(COUNTER + 7) == "rds_count+0x7 [rds_rust]"
    assert DATA.find(COUNTER + 8) == "rds_small [rds_rust]"
    assert DATA.find(COUNTER + 0x100) == "jiffies"


def described(rounds):
    lines = [sharing.shared(x, "own") for x in rounds]
    return sharing.describe(lines, DATA, lambda touch: touch.code.function), sharing.count(lines)


def test_rounds_are_counted_and_described(round_of):
    rounds = [round_of(*both(lambda a, i=i: a.write(HEAP).read(COUNTER).write(COUNTER + 8).write(HEAP + 0x1000 * i),
                             lambda b, i=i: b.read(HEAP).read(COUNTER).write(COUNTER + 8).write(HEAP + 0x1000 * i)))
              for i in (1, 2, 3)]
    found, numbers = described(rounds)
    assert numbers == {"shared": {"p50": 3, "min": 3, "max": 3}, "written": {"p50": 2, "min": 2, "max": 2}}
    send = ["rds_send"]
    assert found == [
        {"name": "", "rounds": 3, "lines": 3, "written": 3, "writers": send, "readers": []},
        {"name": "rds_small [rds_rust]", "rounds": 3, "lines": 3, "written": 3, "writers": send, "readers": send},
        {"name": "", "rounds": 3, "lines": 3, "written": 0, "writers": send, "readers": send},
    ]


def test_line_of_one_round_is_no_median(round_of):
    quiet = both(lambda a: a.write(HEAP), lambda b: b.write(HEAP + 0x40))
    rounds = [round_of(*quiet), round_of(*both(lambda a: a.write(HEAP), lambda b: b.write(HEAP))), round_of(*quiet)]
    found, numbers = described(rounds)
    assert numbers["shared"] == {"p50": 0, "min": 0, "max": 1}
    assert [x["rounds"] for x in found] == [1]


def test_names_are_brief():
    assert sharing.brief("rds_send_xmit") == "rds_send_xmit"
    assert sharing.brief("conn::xmit::header_of") == "xmit::header_of"
    assert sharing.brief("<kapi::arena::Lists>::take::<<kapi::arena::Arena>::take_one::{closure#0}>") == "Lists::take"
    assert sharing.brief("<kernel::sync::arc::Arc<conn::connection::Connection> as core::ops::drop::Drop>::drop") == (
        "Arc<Connection>::drop")
    assert sharing.brief("core::ptr::drop_in_place::<kernel::sync::arc::Arc<kapi::pd::Pd>>") == "ptr::drop_in_place<Arc<Pd>>"
    assert sharing.brief("<kapi::Fifo<msg::Message>>::push_back::{closure#1}") == "Fifo::push_back"


class Source:
    """Lines of a source in place of those of a module."""

    def lines(self, places):
        return {x: f"conn/a.rs:{x & 0xff}  {'<conn::A>::push' if x & 1 else 'event_x'}" for x in places}


def test_label_has_the_line_if_it_is_known():
    code = sharing.Code("<conn::B>::send", True, 0, sharing.CALL)
    touches = [sharing.Touch(0, True, code, place, 0) for place in (BASE + 7, BASE + 8, 0)]
    label = sharing.labels(touches, Source())
    assert [label(x) for x in touches] == ["conn/a.rs:7 A::push", "conn/a.rs:8 B::send", "B::send"]
    assert sharing.labels(touches, None)(touches[0]) == "B::send"


class Made:
    """Numbers in place of a run's."""

    def __init__(self, **rows):
        self.rows = rows


def row(lines, written):
    def number(n):
        return {"p50": n, "min": n, "max": n}
    own = {"shared": number(lines), "written": number(written)}
    return {"own": own, "callees": own, "background": own,
            "lines": [{"name": "", "rounds": 16, "lines": 16, "written": 16, "writers": ["Path::push"], "readers": []}]}


def test_goals_and_table(capsys):
    found = bench_sharing.results({"c": Made(bind=row(5, 4)), "rust": Made(
        **{"bind": row(2, 2), "send-one-peer": row(9, 6), "send-two-peers": row(9, 1), "region": row(5, 1)})})
    assert {x["row"]: x["met"] for x in found} == {
        "bind": True, "send-one-peer": True, "send-two-peers": False, "region": False}
    bench_sharing.print_table(found)
    shown = capsys.readouterr().out
    assert "0 written  missed" in shown and "6 written  met" in shown and "Path::push" in shown
