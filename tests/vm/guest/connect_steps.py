# SPDX-License-Identifier: GPL-2.0
"""connect_steps.py FOLDER HOST PEER EVERY: makes steps of a connection fail, one at a time.

A step is what this folder of fault injection counts while a connection is made between two
addresses of this node, on the side that asks or the one that is asked. Every EVERYth step fails
once, from a random one on. Whatever fails, a message arrives, and one on the way back.

The kernel's fault injection has to be for this module only."""

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
        """Has the NUMBERth step from here on fail. `spare` is a socket for any."""
        self.write(times=1, probability=100)
        if self.name != "failslab":
            # How much is spared, one more than that as the kernel counts.
            self.write(space=number)
            return
        # There it is bytes that are spared. Every NUMBERth is counted in steps, but from the last one that failed.
        self.write(interval=number)
        while self.left():
            outcome(spare.send, b"x", spare.name())
            outcome(spare.recv, 1, socket.MSG_DONTWAIT)
        self.write(times=1)


def there_and_back(s, r, text):
    """A program is told if it is its own call that fails, and tries again."""
    for one, other in ((s, r), (r, s)):
        eventually("a message to go", lambda x=one, y=other.name(): outcome(x.send, text, y) == len(text))
        data, _ = other.recv(100)
        need(data == text, f"{data} comes instead of {text}")


def main(folder, host, peer, every):
    faults, first = Faults(folder), random.randint(1, int(every))
    with Sock(("127.0.0.1", 0)) as spare:
        # Without a fault: what each type of service finds. Each has a connection of its own.
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
