# SPDX-License-Identifier: GPL-2.0
"""Common code of the programs that run cases of the socket interface.

Arguments are the names of cases. After --device, cases that do not depend on an address run between
two RDMA devices instead of on the loopback address. After --tcp, all cases between two addresses
run over TCP. Then the second address is in the network namespace TCP_SPACE, because messages within
one namespace take the loop transport.
"""

import ctypes
import errno
import json
import mmap
import os
import signal
import socket
import sys
import time

from rds import Sock, call

LOOP = "127.0.0.1"
LOOP6 = "::1"
IB = ("10.9.0.1", "10.9.0.2")
IB6 = ("fd09::1", "fd09::2")
OVER_TCP = "--tcp" in sys.argv
TRANSPORT = "tcp" if OVER_TCP else "infiniband"
TCP_SPACE = "/run/netns/abi"
# Addresses of both ends of a connection, and others of their networks, which no host has.
ENDS, ENDS6, ABSENT, ABSENT6 = (
    [x.replace("9", "8" if OVER_TCP else "9", 1) for x in group]
    for group in (IB, IB6, ("10.9.0.77", "10.9.0.78"), ("fd09::77", "fd09::78")))
if OVER_TCP:
    Sock.home, space = (os.open(x, os.O_RDONLY) for x in ("/proc/self/ns/net", TCP_SPACE))
    Sock.spaces = dict.fromkeys((ENDS[1], ENDS6[1]), space)
# Addresses of the sender and of the receiver.
(NEAR, FAR), (NEAR6, FAR6) = (ENDS, ENDS6) if OVER_TCP or "--device" in sys.argv else ((LOOP, LOOP), (LOOP6, LOOP6))
CASES = {}
ERRORS = {**errno.errorcode, errno.EOPNOTSUPP: "EOPNOTSUPP"}
# Timeout of a case, in seconds: a new network namespace alone may take 20 on the debug kernel.
PATIENCE = 300
# Timeout of a call that waits for an event, in seconds. Only a lost event should reach it: a loaded
# machine may need many seconds for a message, and C RDS for a connection.
CALL_TIMEOUT = 60
PROT_NONE, PROT_READ = 0, 1
# The transport of C RDS is a separate module.
OF_C = os.path.exists("/sys/module/rds_rdma")
# Function in which a call of this module's sockets waits, as /proc/PID/wchan names it.
WAITS_IN = "rds_rust_sk_wait"


def case(function):
    CASES[function.__name__] = function
    return function


def outcome(function, *args):
    """Calls a function and returns its value, or the name of its error."""
    try:
        value = function(*args)
    except OSError as e:
        return ERRORS.get(e.errno, str(e.errno))
    return "ok" if value is None else value


def each(function, arguments):
    return {name: outcome(function, *args) for name, args in arguments.items()}


def need(condition, text):
    if not condition:
        raise AssertionError(text)


def eventually(what, ready, seconds=60):
    """Waits for a condition that becomes true without further action."""
    end = time.monotonic() + seconds
    while not ready():
        need(time.monotonic() < end, f"{what}: not within {seconds} s")
        time.sleep(0.01)


def await_address(*name):
    """Waits until a local address can be bound. The RDMA core notices a new address, and that of a
    new device, after a short delay."""
    eventually(f"{name} can be bound", lambda: outcome(lambda: Sock(name).sock.close()) == "ok")


def play(functions, names):
    """Calls the functions with these names. The first that fails ends the program."""
    for name in names:
        try:
            functions[name]()
        except (AssertionError, OSError) as e:
            raise SystemExit(f"{name}: {e!r}") from e


def protected(protection, before=0):
    """Returns a page with this protection, and its address.

    `before` pages that can be read and written precede it in the same memory.
    """
    memory = mmap.mmap(-1, (before + 1) * mmap.PAGESIZE)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + before * mmap.PAGESIZE
    call("mprotect", ctypes.c_void_p(at), mmap.PAGESIZE, protection)
    return memory, at


def page_before_nothing():
    """Returns an accessible page that precedes an inaccessible one: (the memory of both, the end of
    the first)."""
    return protected(PROT_NONE, 1)


def exchange(data):
    """Returns a receiver with one message in its queue, from port 4002."""
    receiver = Sock((FAR, 4001), CALL_TIMEOUT)
    with Sock((NEAR, 4002)) as sender:
        sender.send(data, (FAR, 4001))
        # Closing the sender cancels messages that are not delivered, so delivery comes first.
        receiver.recv(1, socket.MSG_PEEK)
    return receiver


def hung(*_):
    raise TimeoutError


def main():
    signal.signal(signal.SIGALRM, hung)
    for name in [x for x in sys.argv[1:] if not x.startswith("--")] or CASES:
        signal.alarm(PATIENCE)
        try:
            value = CASES[name]()
        except TimeoutError:
            value = "hung"
        except OSError as e:
            value = f"failed: {ERRORS.get(e.errno)}"
        except AssertionError as e:
            value = str(e)
        signal.alarm(0)
        print(json.dumps({"case": name, "value": value}), flush=True)
