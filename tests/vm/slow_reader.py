# SPDX-License-Identifier: GPL-2.0
"""The host's half of guest/slow_reader.py."""

from traffic import ports


def run_slow_reader(guest, sender, receiver, count=150, monitor=False):
    """Runs a receiver that does not read at first. Its sender is held back, continues after the
    read, and loses nothing."""
    (from_node, source), (to_node, target) = sender, receiver
    program, port = guest / "slow_reader.py", ports()
    recv = to_node.start(["python3", program, "recv", target, port, count])
    recv.expect("ready")
    send = from_node.start(["python3", program, "send", source, port + 1, target, port, count,
                            *["monitor"] * monitor])
    send.expect("ENOBUFS after")
    recv.write("read\n")
    send.expect("^unblocked$")
    send.expect(f"^sent {count}$")
    recv.wait(check=True)
    send.write("done\n")
    send.wait(check=True)
