# SPDX-License-Identifier: GPL-2.0
"""Reconstructs the calls of functions from the order in which blocks of code ran.

The trace has no stack pointer. The thread that continues after a switch is recognized by the
addresses to which it returns.
"""

USER = "[user space]"
# Pseudo-function for the end of a switch, until the thread that continues is known.
SWITCHING = "[switch of threads]"
SWITCH = "__switch_to_asm"
# First functions of an interrupt, an exception or a system call; no function calls these.
ENTRIES = ("asm_", "entry_")
# Functions that only happen to run on the stack of another thread. Each has a tree of its own.
ROOTS = ("handle_softirqs",)
# Number of sleeping threads that are remembered.
SLEEPERS = 64


class Node:
    """A function as called by its callers: the chain of parents is the path of calls."""

    __slots__ = ("function", "parent", "children", "own", "calls")

    def __init__(self, function, parent=None):
        self.function, self.parent = function, parent
        self.children, self.own, self.calls = {}, 0, 0

    def child(self, function):
        node = self.children.get(function)
        if node is None:
            node = self.children[function] = Node(function, self)
        return node

    def total(self):
        return self.own + sum(x.total() for x in self.children.values())

    def walk(self):
        yield self
        for x in self.children.values():
            yield from x.walk()


class Replay:
    """Follows the threads of a trace.

    frames: the calls of the running thread that have not returned, as (node of the caller, return
    address). The address is None if the caller was interrupted."""

    def __init__(self):
        self.root = Node("")
        self.node, self.frames = self.root.child(USER), []
        self.asleep = []
        # After a switch: the frames of the threads that may be awake; the frames of the thread that
        # is awake, once only one is left; the number of returns since the switch; the number of
        # frames that are older than the switch.
        self.maybe, self.awake, self.returned, self.known = [], None, 0, 0
        self.previous = None

    def step(self, block, times):
        """Accounts for `block`, which ran `times` times in a row."""
        previous, self.previous = self.previous, block
        if block.function == USER:
            # User space is one function, and its system calls have all returned.
            self.resume(self.root.child(USER), [])
        elif previous is None:
            self.resume(self.root.child(block.function), [])
        elif block.is_first and block.function.startswith(ENTRIES):
            if previous.kind == "c":
                self.frames.append((self.node, previous.end))
            self.call(block, None)
        elif previous.kind == "c" and block.start != previous.end:
            self.call(block, previous.end)
        elif previous.kind == "r":
            self.ret(block)
        elif previous.kind == "i":
            self.interrupt_ends(block)
        if self.node.function != block.function:
            # A jump to another function, which returns in place of this one.
            self.node = (self.node.parent or self.root).child(block.function)
            self.node.calls += 1
        self.node.own += block.insns * times
        if block.function == SWITCH and block.is_first:
            self.switch()

    def resume(self, node, frames):
        """Sets the position of the running thread, which is known."""
        self.node, self.frames = node, frames
        self.settle()

    def settle(self):
        """Removes the running thread from the sleeping ones."""
        self.asleep = [x for x in self.asleep if x is not self.awake]
        self.maybe, self.awake, self.known, self.returned = [], None, 0, 0

    def call(self, block, address):
        self.frames.append((self.node, address))
        parent = self.root if block.function in ROOTS else self.node
        self.node = parent.child(block.function)
        self.node.calls += 1

    def ret(self, block):
        """Handles a return to `block`: to the caller, or in another thread than assumed."""
        top = len(self.frames) - 1
        if top >= 0 and self.frames[top][1] == block.start:
            self.node = self.frames.pop()[0]
            if top < self.known:
                self.known = top
                self.rule_out(block.start)
        elif self.rule_out(block.start):
            self.guess()
        else:
            if top < self.known:
                # The running thread is none of the sleeping ones.
                self.awake = None
            self.resume(*self.deeper(block))

    def rule_out(self, address):
        """Keeps the threads that may be awake and would have returned to `address`.

        Returns False if there are none."""
        self.returned += 1
        self.maybe = [x for x in self.maybe
                      if len(x) >= self.returned and x[-self.returned][1] == address]
        rest = [[a for _, a in x[: -self.returned]] for x in self.maybe]
        if self.maybe and all(x == rest[0] for x in rest):
            self.awake = self.maybe[0]
            self.maybe = self.maybe[:1]
        return bool(self.maybe)

    def guess(self):
        frames = self.maybe[0]
        self.node, self.frames = frames[-self.returned][0], frames[: -self.returned]
        self.known = len(self.frames)

    def deeper(self, block):
        """Returns node and frames for a return that skips callers in between."""
        for i in range(len(self.frames) - 1, -1, -1):
            if self.frames[i][1] == block.start:
                return self.frames[i][0], self.frames[:i]
        return self.root.child(block.function), []

    def interrupt_ends(self, block):
        while self.frames:
            self.node, address = self.frames.pop()
            if address is None:
                break
        else:
            self.resume(self.root.child(block.function), [])
            return
        if self.node.function == block.function:
            return
        # The interrupt came between a call or a return and the next instruction.
        if self.frames and self.frames[-1][1] == block.start:
            self.node = self.frames.pop()[0]
        elif self.frames and self.frames[-1][0] is self.node:
            self.node = self.node.child(block.function)
            self.node.calls += 1

    def switch(self):
        """The running thread goes to sleep, and another one wakes; the newest is tried first."""
        self.settle()
        self.maybe = self.asleep[::-1]
        self.asleep = [*self.asleep[1 - SLEEPERS :], self.frames]
        self.node, self.frames = self.root.child(SWITCHING).child(SWITCH), []
