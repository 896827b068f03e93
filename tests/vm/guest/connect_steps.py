# SPDX-License-Identifier: GPL-2.0
"""connect_steps.py FOLDER HOST PEER EVERY: makes steps of a connection fail, one at a time.

A step is an event that this folder of fault injection counts while a connection between two
addresses of this node is made. It may be at the active or the passive side. Every EVERYth step
fails once, from a random one on. After each failure a message must arrive, and one in the other
direction.

The fault injection of the kernel has to be limited to this module.
"""

import random
import socket
import sys

from cases import eventually, need, outcome
from rds import Sock


class Faults:
    """A folder of fault injection."""

    def __init__(self, name):
        self.name = name

    def write(self, **knobs):
        for knob, value in knobs.items():
            with open(f"/sys/kernel/debug/{self.name}/{knob}", "w", encoding="ascii") as f:
                f.write(str(value))

    def left(self):
        with open(f"/sys/kernel/debug/{self.name}/times", encoding="ascii") as f:
            return int(f.read())

    def arm(self, number, spare):
        """Makes the NUMBERth step from here on fail.

        `spare` is a socket whose calls use up steps.
        """
        self.write(times=1, probability=100)
        if self.name != "failslab":
            # The kernel spares one step less than `space`.
            self.write(space=number)
            return
        # `space` of failslab counts bytes. `interval` counts steps, but from the last one that
        # failed: so one fails first.
        self.write(interval=number)
        while self.left():
            outcome(spare.send, b"x", spare.name())
            outcome(spare.recv, 1, socket.MSG_DONTWAIT)
        self.write(times=1)


def there_and_back(s, r, text):
    """Sends in both directions.

    If a call of a program itself fails, the program sees the error and tries again.
    """
    for one, other in ((s, r), (r, s)):
        eventually("a message to go", lambda x=one, y=other.name(): outcome(x.send, text, y) == len(text))
        data, _ = other.recv(100)
        need(data == text, f"{data} comes instead of {text}")


def main(folder, host, peer, every):
    faults, first = Faults(folder), random.randint(1, int(every))
    with Sock(("127.0.0.1", 0)) as spare:
        # The first round has no fault: it makes what each type of service finds. Each has its own
        # connection.
        for tos, number in enumerate((0, *range(first, 250 * int(every), int(every)))):
            with Sock((host, 0), 60) as s, Sock((peer, 0), 60) as r:
                for x in (s, r):
                    x.set_tos(tos)
                if number:
                    faults.arm(number, spare)
                there_and_back(s, r, b"%d" % number)
                left = faults.left()
                faults.write(probability=0)
            if number and left:
                break
    print(f"{number - int(every)} steps, every {every}th from {first} on", flush=True)
    need(left and number > max(3, first), "no step, or too many")


if __name__ == "__main__":
    main(*sys.argv[1:])
