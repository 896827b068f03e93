# SPDX-License-Identifier: GPL-2.0
"""What the programs share that try the socket interface case by case."""

import errno
import json
import select
import signal
import sys

from rds import Sock

LOOP = "127.0.0.1"
LOOP6 = "::1"
IB = ("10.9.0.1", "10.9.0.2")
IB6 = ("fd09::1", "fd09::2")
CASES = {}
ERRORS = {**errno.errorcode, errno.EOPNOTSUPP: "EOPNOTSUPP"}
# How long a case may take, in seconds: a new network namespace alone may take 20 on the debug kernel.
PATIENCE = 300


def case(function):
    CASES[function.__name__] = function
    return function


def outcome(function, *args):
    """What a call does: its value, or the name of its error."""
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


def exchange(data, address=(LOOP, 4001)):
    """A receiver with one message in its queue, and the sender's address."""
    host = address[0]
    receiver = Sock(address, 10)
    with Sock((host, 4002)) as sender:
        sender.send(data, address)
        # Read while the sender is open: close() takes back what was not delivered.
        select.select([receiver], [], [], 10)
    return receiver


def hung(*_):
    raise TimeoutError


def main():
    signal.signal(signal.SIGALRM, hung)
    for name in sys.argv[1:] or CASES:
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
