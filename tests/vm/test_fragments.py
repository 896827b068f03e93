# SPDX-License-Identifier: GPL-2.0
"""Fragmentation: the size that two nodes agree on, and messages that were cut to another size."""

import pytest
from rdsvm.cluster import must, wire_address
from traffic import exchange, ports

A, B = wire_address(0, 1), wire_address(0, 2)

pytestmark = pytest.mark.pairs("rust-rust")


@pytest.fixture
def loads(pair):
    """Loads the modules with these sizes as max_frag. At the end it loads them with the
    defaults."""
    def load(*sizes):
        for m, size in zip(pair, sizes):
            m.forget(f"max_frag={size}")

    yield load
    for m in pair:
        m.forget()


@pytest.mark.long
@pytest.mark.parametrize("ours, theirs", [
    (8192, 16384), *(pytest.param(*x, marks=pytest.mark.long("release")) for x in ((16384, 16384), (16384, 4096)))])
def test_smaller_size_is_agreed_on(pair, tools, flavor, loads, ours, theirs):
    a, b = pair
    loads(ours, theirs)
    marks = [m.mark("loaded") for m in pair]
    # The first messages are cut before the peer has answered.
    exchange(tools, (a, A), (b, B), count=64, sizes="boundary")
    exchange(tools, (a, A), (b, B), count=64, sizes="0..70000")
    agreed = f", fragments of {min(ours, theirs)} bytes"
    for m, mark in zip(pair, marks):
        m.wait_log(agreed, mark)


@pytest.mark.parametrize("before, after", [(4096, 16384), pytest.param(16384, 4096, marks=pytest.mark.long)])
def test_queued_messages_are_fragmented_again(pair, tools, guest, loads, before, after):
    """Messages wait for a peer that comes back with another fragment size."""
    a, b = pair
    loads(16384, before)
    exchange(tools, (a, A), (b, B), count=16, sizes="boundary")
    must(b.unload())
    port = ports()
    sender = a.start(["python3", guest / "queued.py", "send", A, port, B, port])
    sender.expect("queued")
    # The receiver has to be bound before the connection is up.
    a.set_loss(100)
    must(b.load(options=[f"max_frag={after}"]))
    receiver = b.start(["python3", guest / "queued.py", "recv", B, port])
    receiver.expect("ready")
    a.set_loss(0)
    result = receiver.wait(300)
    assert result.status == 0, str(result)
    sender.write("\n")
    assert sender.wait().status == 0


def test_bad_size(pair):
    """An invalid fragment size is rounded down, and the log reports it."""
    a, _ = pair
    must(a.unload())
    mark = a.mark("bad size")
    must(a.load(options=["max_frag=12288"]))
    a.wait_log("max_frag=12288.*8192", mark)
    a.forget()
