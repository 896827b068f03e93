# SPDX-License-Identifier: GPL-2.0
"""Cases for bugs.py: concurrent calls, in threads, processes and network namespaces that end."""

import contextlib
import mmap
import os
import select
import signal
import socket
import threading

from cases import CALL_TIMEOUT, IB, IB6, LOOP, PATIENCE, case, need, outcome
from cm_ids import cm_ids
from info import elsewhere, eventually
from rds import SO_RDS_TRANSPORT, SOL_RDS, Sock, counters, info, libc, parse, recvmsg, sockaddr
from reset import reset

CONG_MONITOR, UEK_TRANSPORT = 6, 9
TRACING, CONN_STATE = "/sys/kernel/tracing", "events/rds/rds_conn_state"


@contextlib.contextmanager
def queued(data, count=1, **options):
    """Yields a receiver at 127.0.0.1:4001 with messages from port 4002 in its queue.

    `options` are the control messages that it asks for.
    """
    with Sock((LOOP, 4001), CALL_TIMEOUT) as r, Sock((LOOP, 4002)) as s:
        for name, value in options.items():
            r.set_raw({"stamps": 29, "latency": 10}[name], value)
        for _ in range(count):
            s.send(data, (LOOP, 4001))
        yield r


@contextlib.contextmanager
def short_of_room(host, port, size=5000):
    """Yields a receiver that is soon full."""
    with Sock(None, CALL_TIMEOUT) as r:
        r.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size // 2)
        r.bind(host, port)
        yield r


def fill(s, to, size=3000, most=20000):
    """Sends without waiting until a send is refused. Returns (messages sent, reason of the end)."""
    for count in range(most):
        told = outcome(s.send, bytes(size), to, socket.MSG_DONTWAIT)
        if told != size:
            return count, told
    return most, "no end"


def drain(r):
    """Reads all messages, and returns their number."""
    count = 0
    while outcome(r.recv, 10, socket.MSG_DONTWAIT) != "EAGAIN":
        count += 1
    return count


def at_once(*functions):
    """Runs the functions at the same time. An error of one of them is the error of the case.

    The timeout of the case ends those that are stuck.
    """
    failures = []

    def run(function):
        try:
            function()
        except Exception as e:  # noqa: BLE001
            failures.append(e)

    threads = [threading.Thread(target=run, args=(f,), daemon=True) for f in functions]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]


@case
def h11_bind_while_it_sends():
    """CVE-2015-7990: one thread binds, the other one sends."""
    for _ in range(30):
        with Sock() as s, Sock((LOOP, 4001)):
            def send(s=s):
                told = {outcome(s.send, b"x", (LOOP, 4001)) for _ in range(10)}
                need(told <= {1, "ENOTCONN"}, f"sent: {told}")

            at_once(lambda s=s: s.bind(LOOP, 4002), send)


@case
def h16_namespaces_that_end():
    """CVE-2019-11815, H-59, H-60, H-63: a namespace ends with messages and sockets in it."""
    def child():
        with Sock((LOOP, 4001)), Sock((LOOP, 4002)) as s:
            for _ in range(5):
                s.send(bytes(5000), (LOOP, 4001))
            left = Sock((LOOP, 4003))
            left.send(b"x", (LOOP, 4001))
            left.sock.detach()
        with Sock() as s:
            return [outcome(s.bind, *IB[:1], 0)]

    # Each round takes the debug kernel 10 s, and more on a busy machine.
    for _ in range(3):
        need(elsewhere(child) == ["EADDRNOTAVAIL"], "an address of another namespace")


@case
def h18_one_connection():
    """CVE-2021-45480: many sockets that are the first to send to a peer create one connection.

    It resolves the address once. (A table has one row for two connections with the same ends.)
    """
    peers = [f"10.9.0.{x}" for x in range(80, 90)]

    def write(name, text):
        with open(f"{TRACING}/{name}", "w", encoding="ascii") as f:
            f.write(text)

    def begun():
        with open(f"{TRACING}/trace", encoding="ascii") as f:
            told = f.read()
        return {peer: told.count(f"<::ffff:{IB[0]},::ffff:{peer},0> wanted: down -> ") for peer in peers}

    write("trace", "")
    write(f"{CONN_STATE}/enable", "1")
    try:
        # A connection may begin again once its messages are gone, so the sockets stay open.
        with contextlib.ExitStack() as held:
            for peer in peers:
                def send(peer=peer):
                    held.enter_context(Sock((IB[0], 0))).send(b"x", (peer, 4001))

                at_once(*[send] * 16)
            # It begins in a worker.
            eventually(lambda: all(begun().values()))
            seen = begun()
    finally:
        write(f"{CONN_STATE}/enable", "0")
    need(set(seen.values()) == {1}, f"connections that began to each peer: {seen}")


@case
def h39_infiniband_elsewhere():
    """CVE-2026-53077: connections over InfiniBand belong to the first namespace.

    A transport that does not exist on the node is reported as such in every namespace.
    """
    def pins():
        told = []
        for option in (SO_RDS_TRANSPORT, UEK_TRANSPORT):
            for number in (0, 1, 2):
                with Sock() as s:
                    told.append(outcome(s.setsockopt, SOL_RDS, option, number))
                    need(told[-1] == "ok" or outcome(s.bind, LOOP, 0) == "ok", f"{number} has stayed")
        return told

    def child():
        with Sock() as s:
            return [outcome(s.bind, IB[0], 0), *pins()]

    here = pins()
    need(here == ["ok", "ENOPROTOOPT", "ENOPROTOOPT"] * 2, f"here: {here}")
    there = elsewhere(child)
    need(there == ["EADDRNOTAVAIL", *["EPROTOTYPE", "EPROTOTYPE", "ENOPROTOOPT"] * 2], f"elsewhere: {there}")


@case
def h43_same_address_elsewhere():
    """CVE-2026-68335, L-04, L-05: an address of another namespace is another address."""
    def child():
        with Sock((LOOP, 4001), CALL_TIMEOUT) as r, Sock((LOOP, 4002)) as s:
            s.send(b"theirs", (LOOP, 4001))
            mine = r.recv()[0].decode()
            # A full port in that namespace is not full in this one.
            fill(s, (LOOP, 4001), 20000)
            return [mine, elsewhere(grandchild)]

    def grandchild():
        with Sock((LOOP, 4001), CALL_TIMEOUT) as r, Sock((LOOP, 4002)) as s:
            s.send(b"below", (LOOP, 4001))
            return r.recv()[0].decode()

    with Sock((LOOP, 4001), CALL_TIMEOUT) as r, Sock((LOOP, 4002)) as s:
        told = elsewhere(child)
        need(told == ["theirs", "below"], f"there: {told}")
        need(outcome(r.recv, 10, socket.MSG_DONTWAIT) == "EAGAIN", "a message of another namespace came")
        s.send(b"ours", (LOOP, 4001))
        need(r.recv()[0] == b"ours", "here")


def send_many(source, *targets):
    """Sends to each target in turn without waiting, even if there is no socket or no room."""
    with Sock((source, 0)) as s:
        for i in range(300):
            told = outcome(s.send, b"x", targets[i % len(targets)], socket.MSG_DONTWAIT)
            need(told in (1, "EAGAIN", "ENOBUFS"), f"sent: {told}")


@case
def h49_binds_and_senders():
    """syzbot, 2018 and 2019: sockets are opened and closed while others send to them."""
    def storm():
        for _ in range(60):
            with Sock((LOOP, 4100)), Sock((LOOP, 4101)):
                pass

    def send():
        send_many(LOOP, (LOOP, 4100), (LOOP, 4101))

    at_once(storm, send, send)


@case
def h51_messages_for_who_binds():
    """NULL, 2019: messages of a peer arrive while a socket is being bound to their port."""
    a, b = IB

    def bind():
        for _ in range(100):
            with Sock((b, 4100), CALL_TIMEOUT) as r:
                drain(r)

    def send():
        send_many(a, (b, 4100))

    at_once(bind, send, send)
    with Sock((a, 4101), CALL_TIMEOUT) as s, Sock((b, 4102), CALL_TIMEOUT) as r:
        s.send(b"y", (b, 4102))
        need(r.recv()[0] == b"y", "another message came")


def unread():
    """Returns the memory of all messages that wait to be read, in bytes."""
    now = counters()
    return now["recv_bytes_added_to_sock"] - now["recv_bytes_freed_fromsock"]


@case
def h70_reads_and_closes():
    """syzbot, 2024: a socket is closed while other threads fill its queue, read it and peek at it.
    """
    before = unread()
    for near, far in ((LOOP, LOOP), IB):
        with Sock((near, 4002), CALL_TIMEOUT) as s:
            done = threading.Event()

            def send(s=s, far=far, done=done):
                while not done.is_set():
                    outcome(s.send, bytes(200), (far, 4001), socket.MSG_DONTWAIT)

            def take(r, flags):
                for _ in range(10):
                    outcome(r.recv, 300, socket.MSG_DONTWAIT | flags)

            def receive(far=far, done=done):
                try:
                    for _ in range(4):
                        with Sock((far, 4001), CALL_TIMEOUT) as r:
                            need(r.recv()[0] == bytes(200), "a message came")
                            at_once(lambda r=r: take(r, 0), lambda r=r: take(r, socket.MSG_PEEK), lambda: info(10005))
                finally:
                    done.set()

            at_once(send, receive)
    need(eventually(lambda: unread() == before), f"{unread() - before} bytes wait at no socket")


@case
def h72_senders_on_one_socket():
    """KCSAN, 2023: two threads send to two peers with one socket."""
    with Sock((LOOP, 4001), CALL_TIMEOUT) as a, Sock((LOOP, 4003), CALL_TIMEOUT) as b, \
            Sock((LOOP, 4002), CALL_TIMEOUT) as s:
        def send(port):
            for i in range(100):
                s.send(bytes([i]), (LOOP, port))

        def read(r):
            got = [r.recv()[0][0] for _ in range(100)]
            need(got == list(range(100)), f"order: {got}")

        at_once(lambda: send(4001), lambda: send(4003), lambda: read(a), lambda: read(b))


@case
def h73_polls_and_senders():
    """KCSAN, 2026: a thread polls continuously while another one sends.

    The sender is refused and waits until it is notified that there is room.
    """
    count, news = 25, select.POLLIN | select.POLLWRBAND
    for near, far, monitor in ((LOOP, LOOP, 0), (LOOP, LOOP, 1), (*IB, 0), (*IB, 1)):
        with short_of_room(far, 4001) as r, Sock((near, 4002), CALL_TIMEOUT) as s:
            s.setsockopt(SOL_RDS, CONG_MONITOR, monitor)
            full, done = threading.Event(), threading.Event()

            def events(wanted, wait_ms, s=s):
                poll = select.poll()
                poll.register(s, wanted)
                return poll.poll(wait_ms)

            def look(done=done):
                while not done.is_set():
                    events(news, 0)

            def send(s=s, far=far, monitor=monitor, full=full, done=done):
                sent = 0
                try:
                    while sent < count or not full.is_set():
                        sent += 1
                        while (told := outcome(s.send, bytes(3000), (far, 4001), socket.MSG_DONTWAIT)) != 3000:
                            need(told in ("ENOBUFS", "EAGAIN"), f"a send to {far}: {told}")
                            if told == "ENOBUFS":
                                full.set()
                            need(events(news if told == "ENOBUFS" else select.POLLOUT, 1000 * CALL_TIMEOUT),
                                 f"{told} from {far}, monitor {monitor}: nobody told that there is room")
                            if monitor:
                                outcome(recvmsg, s, 0, 100, socket.MSG_DONTWAIT)
                finally:
                    done.set()
                    s.send(b"end", (far, 4001))

            def read(r=r, far=far, full=full):
                need(full.wait(60), f"{far} was never full")
                while r.recv()[0] != b"end":
                    pass

            at_once(send, read, look)


@case
def h81_waiting_senders():
    """Lost wake-ups: every sender that waits for room is woken."""
    count, size = 40, 3000
    for host in (LOOP, IB[0]):
        with short_of_room(host, 4001) as r:
            def send(host=host):
                with Sock((host, 0), CALL_TIMEOUT) as s:
                    for _ in range(count):
                        s.send(bytes(size), (host, 4001))

            def read(r=r):
                for _ in range(4 * count):
                    r.recv()

            at_once(read, *[send] * 4)


@case
def l11_one_winner():
    """Two processes bind to the same port at the same moment: one of them gets it.

    (Threads of one Python process take turns.)
    """
    rounds, first = 1000, 4200
    with mmap.mmap(-1, 16 + 2 * rounds) as shared:
        steps, won = memoryview(shared)[:16].cast("Q"), memoryview(shared)[16:]

        def meet(me):
            steps[me] += 1
            while steps[1 - me] < steps[me]:
                pass

        def race(me):
            for i in range(rounds):
                with Sock() as s:
                    raw = sockaddr(LOOP, first + i)
                    meet(me)
                    won[2 * i + me] = libc.bind(s.fileno(), raw, len(raw)) == 0
                    # Both have tried before the first one releases the port.
                    meet(me)

        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(PATIENCE)
            race(1)
            os._exit(0)
        race(0)
        os.waitpid(pid, 0)
        winners = [won[2 * i] + won[2 * i + 1] for i in range(rounds)]
        steps.release()
        won.release()
    need(winners == [1] * rounds, f"{winners.count(2)} ports of {rounds} have two owners, {winners.count(0)} have none")


@case
def l43_whole_addresses():
    """The CM gets no uninitialized byte: padding, flow labels."""
    for near, far in (IB, IB6):
        with Sock((near, 4002), CALL_TIMEOUT) as s, Sock((far, 4001), CALL_TIMEOUT) as r:
            s.send(b"x", r.name())
            r.recv(1)
    seen = set()
    for pair in cm_ids("rds_rust"):
        for raw in pair:
            host, port = parse(raw)
            need(raw == sockaddr(host, port).ljust(128, b"\0"), f"{host}: {raw.hex()}")
            seen.add(host)
    need(seen >= {*IB, *IB6}, f"seen: {seen}")


@case
def l44_tables_while_connections_go():
    """Reads rows while the connections that they show are made again."""
    with Sock((IB[0], 4002), CALL_TIMEOUT) as s, Sock((IB[1], 4001), CALL_TIMEOUT) as r:
        done = threading.Event()

        def read():
            while not done.is_set():
                for option in (10001, 10008, 10011, 10017):
                    info(option)

        def make():
            try:
                for i in range(5):
                    s.send(bytes([i]), (IB[1], 4001))
                    need(r.recv()[0] == bytes([i]), "a message came")
                    reset(*IB)
            finally:
                done.set()

        at_once(read, make)


@case
def l50_whole_names():
    """A name that changes is either the old one or the new one."""
    names = (IB6[1], 4001), ("fd88::ffff:ffff", 4999)
    with Sock() as s:
        done = threading.Event()

        def connect():
            for i in range(400):
                s.connect(*names[i % 2])
            done.set()

        def look():
            while not done.is_set():
                seen = outcome(s.peer)
                need(seen in names or seen == "ENOTCONN", f"seen: {seen}")

        at_once(connect, look)
