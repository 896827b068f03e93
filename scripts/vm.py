#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""make vm: runs chosen tests of tests/vm, with the module built from the present files.

With --keep the guests stay between runs, so the next run needs no boot. A background server owns
them, one for each kernel. It ends with its guests after IDLE_SECONDS without a request, or by
--stop. It reloads the module if that was built again. The files below scripts/rdsvm are read only
when the server starts.
"""

import argparse
import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent
TESTS = TOP / "tests/vm"
IDLE_SECONDS = 1800


def arguments(args):
    """Returns the arguments of pytest."""
    chosen = [str(TESTS / x.removeprefix("tests/vm/")) for x in args.tests] or [str(TESTS)]
    return [
        "-p",
        "no:cacheprovider",
        "--tb=short",
        "--at-once",
        "--no-summary",
        "-v",
        f"--flavor={args.flavor}",
        *chosen,
        *(["-k", args.k] if args.k else []),
        *args.more,
    ]


def address(flavor):
    """Returns the server's socket address: a name in the abstract space.

    Such a name is gone with the server, and has no limit by the length of a path."""
    return f"\0rds-vm-{flavor}-{TOP}"[:100]


def serve(flavor):
    sys.path.insert(0, str(TOP / "scripts"))
    from rdsvm import kept

    kept.LABS = {}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address(flavor))
        listener.listen()
        listener.settimeout(IDLE_SECONDS)
        try:
            while True:
                conn, _ = listener.accept()
                with conn, conn.makefile("rw") as stream:
                    request = json.loads(stream.readline())
                    if request is None:
                        break
                    status = run(request, conn)
                    # A line of its own for the status. pytest's output has no NUL.
                    with contextlib.suppress(OSError):
                        stream.write(f"\0{int(status)}\n")
        except TimeoutError:
            pass
        finally:
            for lab in kept.LABS.values():
                lab.close()


def run(request, conn):
    """Runs pytest in this process, which owns the guests, and sends its output to the client."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(TOP / "tests")):
            del sys.modules[name]
    saved = os.dup(1), os.dup(2)
    os.dup2(conn.fileno(), 1)
    os.dup2(conn.fileno(), 2)
    try:
        return pytest.main(request)
    finally:
        sys.stdout.flush()
        for fd, target in zip(saved, (1, 2)):
            os.dup2(fd, target)
            os.close(fd)


def connect(flavor):
    conn = socket.socket(socket.AF_UNIX)
    try:
        conn.connect(address(flavor))
        return conn
    except ConnectionRefusedError:
        conn.close()
        return None


def ask(flavor, request):
    """Has the server run tests, and starts it if need be; returns their exit status."""
    (TOP / "build").mkdir(exist_ok=True)
    with open(TOP / "build/vm.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        conn = connect(flavor)
        if not conn and request is None:
            return 0
        if not conn:
            with open(TOP / f"build/vm-{flavor}.log", "w") as log:
                server = subprocess.Popen(
                    [sys.executable, __file__, "--flavor", flavor, "--serve"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    cwd=TOP,
                )
            while not (conn := connect(flavor)):
                if server.poll() is not None:
                    sys.exit(f"the server did not start: {log.name}")
                time.sleep(0.05)
    with conn, conn.makefile("rw", errors="replace") as stream:
        stream.write(json.dumps(request) + "\n")
        stream.flush()
        for line in stream:
            if line.startswith("\0"):
                return int(line[1:])
            print(line, end="", flush=True)
    return 0 if request is None else 2


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "tests", nargs="*", help="files of tests/vm, or ids of tests [default: all]"
    )
    parser.add_argument("-k", help="expression that selects tests, as for pytest")
    parser.add_argument("--flavor", default="release", choices=("release", "debug"))
    parser.add_argument("--keep", action="store_true", help="keep the guests for the next run")
    parser.add_argument("--stop", action="store_true", help="stop the guests that were kept")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--more", default="", help="further options for pytest", type=str)
    args = parser.parse_args()
    args.more = args.more.split()
    if args.serve:
        return serve(args.flavor)
    if args.stop:
        return ask(args.flavor, None)
    if args.keep:
        return ask(args.flavor, arguments(args))
    return subprocess.run([sys.executable, "-m", "pytest", *arguments(args)], cwd=TOP).returncode


if __name__ == "__main__":
    sys.exit(main())
