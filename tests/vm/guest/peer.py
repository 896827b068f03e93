# SPDX-License-Identifier: GPL-2.0
"""The other end of an RDS connection, played with RDMA verbs by a program that keeps to no rule.

It runs in a network namespace of its own, with a device and addresses for which the node has no
RDS. From there it reads the counters and the log of the node.
"""

import contextlib
import ctypes
import os
import re
import select
import time

import frames
import rds
from rds import libc, sockaddr

CLONE_NEWNET = 0x40000000
PORTS = {False: 18634, True: 16385}
# Events of the RDMA CM.
(CONNECT_REQUEST, CONNECT_RESPONSE, CONNECT_ERROR, UNREACHABLE, REJECTED, ESTABLISHED,
 DISCONNECTED) = range(4, 11)
# Operations of verbs.
(WRITE, WRITE_WITH_IMM, SEND, SEND_WITH_IMM, READ, COMPARE_AND_SWAP, FETCH_AND_ADD) = range(7)
SEND_WITH_INVALIDATE = 9
# Timeout of every wait, in seconds: only what hangs takes longer.
PATIENCE = 60
PING_FROM = 77
# Receives of a peer. Its private data has the same number, for versions in which credits count.
RECEIVES = 64

verbs = None


class PeerError(Exception):
    """Error: the node, or the verbs, did not do what they should."""


def load(path):
    global verbs
    verbs = ctypes.CDLL(path, use_errno=True)
    for name in ("end_new",):
        getattr(verbs, name).restype = ctypes.c_void_p


def checked(what, result):
    if result < 0:
        raise PeerError(f"{what}: {os.strerror(-result)}")
    return result


def raw_address(host, port):
    return sockaddr(host, port).ljust(28, b"\0")


class Home:
    """The node as seen from the rogue's namespace: its counters and its log."""

    def __init__(self, namespace):
        self.ours = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.theirs = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
        self.kmsg = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self.kmsg, 0, os.SEEK_END)
        self.enter(self.theirs)

    @staticmethod
    def enter(namespace):
        if libc.setns(namespace, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")

    @contextlib.contextmanager
    def at_home(self):
        self.enter(self.ours)
        try:
            yield
        finally:
            self.enter(self.theirs)

    def counters(self):
        with self.at_home():
            return rds.counters()

    def connections(self):
        with self.at_home():
            return rds.connections()

    def wait_for(self, what, condition):
        """Reads the counters until the condition is true. There is no event to wait for."""
        deadline = time.monotonic() + PATIENCE
        while not condition(seen := self.counters()):
            if time.monotonic() > deadline:
                raise PeerError(f"waited in vain for {what}; the counters are {seen}")
            time.sleep(0.05)
        return seen

    def records(self):
        """Returns what the kernel has logged since the last call: (seconds of its clock, line)."""
        found = []
        while True:
            try:
                about, line = os.read(self.kmsg, 8192).decode("utf-8", "replace").split(";", 1)
            except BlockingIOError:
                return found
            except BrokenPipeError:
                continue  # overwritten records are lost
            found.append((int(about.split(",")[2]) / 1e6, line))

    def log(self):
        return [line for _, line in self.records()]

    def said(self, pattern):
        return any(re.search(pattern, line) for line in self.log())

    def few_lines(self, pattern):
        """Returns the number of such lines in the log. Ten may be logged in five seconds of the
        kernel's clock. Any five seconds can contain 20: the last ones of one interval, and the
        first ones of the next."""
        at = [seconds for seconds, line in self.records() if re.search(pattern, line)]
        for first, last in zip(at, at[20:]):
            if last - first <= 5:
                raise PeerError(f"21 lines in {last - first:.1f} s say {pattern!r}")
        return len(at)


class End:
    """One end over verbs: a listener, or one side of a connection."""

    def __init__(self, handle=None):
        self.handle = ctypes.c_void_p(handle or verbs.end_new())
        if not self.handle:
            raise PeerError(f"no CM id: {os.strerror(ctypes.get_errno())}")
        self.buffer = ctypes.create_string_buffer(20 << 10)
        self.has_qp = self.gone = self.heard = False
        self.failure = None
        self.inbox = []
        self.untold = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.free()

    def free(self):
        if self.handle:
            verbs.end_free(self.handle)
            self.handle = None

    def call(self, name, *args):
        return checked(name, getattr(verbs, "end_" + name)(self.handle, *args))

    def resolve(self, source, target, port=None, tos=0):
        port = PORTS[":" in target] if port is None else port
        self.call("resolve", raw_address(source, 0), raw_address(target, port), tos)

    def qp(self, receives=RECEIVES):
        self.call("qp", receives)
        self.has_qp = True

    def adopt(self, other):
        """Takes the queue pair of an end that has disconnected, instead of qp()."""
        self.call("adopt", other.handle)
        self.has_qp, other.has_qp = True, False

    def last_event(self):
        """Returns (event, status, private data) of the last event."""
        status, data = ctypes.c_int(), ctypes.create_string_buffer(256)
        event = verbs.end_last_event(self.handle, ctypes.byref(status), data)
        return event, status.value, data.raw[:verbs.end_data_len(self.handle)]

    def event(self, seconds=PATIENCE):
        """Returns the next event of the CM in the form of last_event(), or None."""
        if not self.call("event", int(seconds * 1000)):
            return None
        found = self.last_event()
        self.gone |= found[0] in (DISCONNECTED, REJECTED, UNREACHABLE, CONNECT_ERROR)
        return found

    def connect(self, data):
        """Requests a connection and returns the answer: an event."""
        self.ask(data)
        answer = self.event()
        if answer is None:
            raise PeerError("the node did not answer a request")
        return answer

    def ask(self, data):
        self.call("connect", data or None, len(data))

    def disconnect(self):
        with contextlib.suppress(PeerError):
            self.call("disconnect")

    # Frames

    def pump(self, seconds):
        """Handles what has arrived, or waits. Returns False if nothing arrived in that time."""
        value = ctypes.c_int()
        kind = self.call("poll", self.buffer, ctypes.byref(value)) if self.has_qp else 0
        if kind == 1:
            self.inbox.append(self.buffer.raw[:value.value])
            self.heard = True
            self.untold += 1
        elif kind == 3:
            self.failure = value.value
        if kind or self.event(0):
            return True
        poll = select.poll()
        poll.register(verbs.end_cm_fd(self.handle), select.POLLIN)
        if self.has_qp:
            poll.register(verbs.end_cq_fd(self.handle), select.POLLIN)
        return bool(poll.poll(int(seconds * 1000)))

    def send(self, *all_frames, opcode=SEND):
        """Sends frames until the node refuses more. Returns False if it does."""
        for frame in all_frames:
            deadline = time.monotonic() + PATIENCE
            while not self.gone:
                result = verbs.end_post(self.handle, opcode, frame, len(frame))
                if result == 0:
                    break
                if result != -11:
                    # The node has ended the connection.
                    return False
                if not self.pump(1) and time.monotonic() > deadline:
                    raise PeerError("the node takes no more frames")
            if self.failure:
                return False
        return not self.gone

    def frame(self, seconds=PATIENCE):
        """Returns the next frame from the node.

        None: the connection has ended, or no frame arrived.
        """
        deadline = time.monotonic() + seconds
        while not self.inbox:
            if self.gone or self.failure:
                return None
            # Also without time: what has arrived is returned at once.
            if not self.pump(min(0.5, max(0, deadline - time.monotonic()))):
                self.idle()
            if not self.inbox and time.monotonic() > deadline:
                return None
        return self.inbox.pop(0)

    def aim(self, cookie, at=0):
        """Selects the memory for the next operation: that of a cookie, `at` bytes from its
        beginning."""
        self.call("aim", ctypes.c_ulonglong((cookie >> 32) + at), ctypes.c_uint(cookie & 0xffffffff))

    def operate(self, opcode, cookie, at, data):
        """Makes an operation on the memory of a cookie, `at` bytes from its beginning.

        Writes `data` there, reads as much, or changes eight bytes. Returns the fetched data, or
        None if the operation was refused.
        """
        self.aim(cookie, at)
        self.call("post", opcode, data, len(data))
        while verbs.end_busy(self.handle) and not self.failure and not self.gone:
            self.pump(1)
        if self.failure or self.gone:
            return None
        brought = ctypes.create_string_buffer(len(data))
        self.call("brought", brought, len(data))
        return brought.raw

    def idle(self):
        """Runs when nothing has arrived for a while."""

    def await_failure(self):
        """Waits until the node or its device has refused what was sent."""
        deadline = time.monotonic() + PATIENCE
        while not self.gone and not self.failure:
            if time.monotonic() > deadline:
                raise PeerError("the node and its device take everything")
            if not self.pump(0.5):
                self.idle()

    def await_end(self):
        """Waits until the node has ended the connection, and disconnects as the CM requires."""
        deadline = time.monotonic() + PATIENCE
        while not self.gone:
            if time.monotonic() > deadline:
                raise PeerError("the node keeps the connection")
            if not self.pump(0.5):
                self.idle()
        self.disconnect()


def next_request(listener, source, target, kind=None):
    """Waits for the node's next request for a connection to `source`, where an end listens.

    Returns a peer that can answer it, a Peer or another `kind`, and the private data of the
    request.
    """
    found = ctypes.c_void_p()
    while not found.value:
        if verbs.end_request(listener.handle, PATIENCE * 1000, ctypes.byref(found)) != 1:
            raise PeerError("the node does not ask for a connection")
    p = (kind or Peer)(source, target, handle=found.value)
    asked = frames.decode_private(p.last_event()[2], ":" in source)
    if (asked.source, asked.target) != (target, source):
        raise PeerError(f"the node asked {asked}")
    return p, asked


class Peer(End):
    """An end that can also behave well, to show the state of the node."""

    def __init__(self, source, target, tos=0, handle=None):
        super().__init__(handle)
        self.source, self.target, self.tos = source, target, tos
        self.seq = 0
        self.seen = 0

    def private(self, **fields):
        return frames.private(self.source, self.target, **{"tos": self.tos, "credit": RECEIVES, **fields})

    def open(self, receives=RECEIVES, data=None, **fields):
        """Connects and requires that the node accepts. Returns the private data of the reply."""
        self.resolve(self.source, self.target, tos=self.tos)
        self.qp(receives)
        event, status, reply = self.connect(data or self.private(**fields))
        if event != ESTABLISHED:
            raise PeerError(f"the node did not accept: event {event}, status {status}, {reply.hex()}")
        return frames.decode_private(reply, ":" in self.source)

    def accept(self, asked, **fields):
        """Accepts the request that had this private data, and waits until the node has the answer.

        Frames that are sent before are lost, and the device repeats them only once.
        """
        data = self.private(major=asked.major, minor=asked.minor, fragment=0, **fields)
        self.call("accept", data, len(data))
        if (event := self.event()) is None or event[0] != ESTABLISHED:
            raise PeerError(f"the node did not confirm: {event}")

    def number(self):
        self.seq += 1
        return self.seq

    def note(self, frame):
        """Returns the messages of a frame, and keeps the number of the last one."""
        found = list(frames.split(frame))
        self.seen = max([self.seen, *(header.seq for header, _ in found)])
        return found

    def message(self, port, payload):
        """Returns the header of the node's message for a port.

        The message must arrive with this payload, in a frame without another message for the port.
        """
        while (frame := self.frame()) is not None:
            if found := [x for x in self.note(frame) if x[0].dport == port]:
                if [x for _, x in found] != [payload]:
                    raise PeerError(f"{found} came")
                return found[0][0]
        raise PeerError("the message did not come")

    def told(self):
        """Returns the credit for a header: receives that were posted again.

        In versions in which credits count, the node sends no more without them.
        """
        credit = min(self.untold, 255)
        self.untold -= credit
        return credit

    def idle(self):
        """Sends a frame if none has arrived yet.

        A passive soft-iWARP does not notice frames that arrive before it watches the socket, until
        more arrive.
        """
        if not self.heard and self.has_qp:
            verbs.end_post(self.handle, SEND, header := frames.header(ack=self.seen), len(header))

    def ping(self):
        """Sends a ping that acknowledges all that was received. Returns true if the node answers
        it.

        The node does not answer if it ends the connection.
        """
        marker = 1000 + self.number() % 60000
        self.send(frames.message(self.seq, sport=marker, ack=self.seen, credit=self.told()))
        return self.await_pong(marker)

    def await_pong(self, marker):
        while (frame := self.frame()) is not None:
            if any(header.dport == marker for header, _ in self.note(frame)):
                return True
        if not self.gone and not self.failure:
            raise PeerError("no pong came, and the connection is there")
        return False

    def read_up_to(self, number):
        """Reads frames until a message with this number has arrived."""
        while self.seen < number:
            frame = self.frame()
            if frame is None:
                raise PeerError(f"message {number} did not come, the last was {self.seen}")
            self.note(frame)

    def acknowledge(self):
        """Acknowledges all that the node has sent, with a frame that only does this."""
        return self.send(frames.header(ack=self.seen, credit=self.told()))

    def settle(self):
        """Disconnects after everything is acknowledged, so that the node has nothing to send again.
        """
        if not self.gone and self.ping():
            self.acknowledge()
            self.drain()
        self.disconnect()

    def drain(self):
        """Waits until all posted frames are complete."""
        deadline = time.monotonic() + PATIENCE
        while not self.gone and verbs.end_busy(self.handle) and time.monotonic() < deadline:
            self.pump(1)
