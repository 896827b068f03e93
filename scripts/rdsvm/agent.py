#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The guest's half of a node: starts commands for the host and reports their output and end.

Speaks JSON lines over a virtio-serial port; see node.py for the other half. Requests carry an
"id" chosen by the host: start, stdin, signal, read, write. Reports return it: out, err, exit,
failed. The guest ends when the host closes the port, so that no test run leaves a machine behind.
"""

import errno
import gc
import glob
import importlib.machinery
import io
import json
import os
import selectors
import signal
import sys
import types

PORT_NAME = "rds.agent"
ENV = {
    "PATH": "/run/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    # Most programs open a dozen files for another locale. Python's own setting is the next line.
    "LANG": "C",
    "PYTHONUTF8": "1",
    "TERM": "dumb",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}


def open_port():
    for name in glob.glob("/sys/class/virtio-ports/*/name"):
        with open(name, encoding="ascii") as f:
            if f.read().strip() == PORT_NAME:
                return os.open("/dev/" + name.split("/")[-2], os.O_RDWR | os.O_CLOEXEC)
    sys.exit(f"no virtio-serial port named {PORT_NAME}")


class Script(Exception):
    """Raised in a new process, to leave the agent's code and run a script instead.

    A machine without hardware support takes a second to start an interpreter, and most tests run
    scripts."""

    def __init__(self, argv):
        self.argv = argv

    def run(self):
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.environ.clear()
        os.environ.update(ENV)
        sys.stdin = open(0, encoding="utf-8")
        sys.stdout, sys.stderr = (
            io.TextIOWrapper(open(fd, "wb", buffering=0), encoding="utf-8", write_through=True)
            for fd in (1, 2)
        )
        sys.argv = self.argv
        sys.path[0] = os.path.dirname(self.argv[0])
        # Compiled once and cached, as imported modules are; runpy would compile it each time.
        code = importlib.machinery.SourceFileLoader("__main__", self.argv[0]).get_code("__main__")
        script = sys.modules["__main__"] = types.ModuleType("__main__")
        script.__file__ = self.argv[0]
        exec(code, script.__dict__)


def become(user):
    """Makes this process one of an ordinary user, without capabilities."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


class Job:
    """One command: its pid, the ends of its pipes and the input that is not written yet."""

    def __init__(self, agent, ident, argv, env, cwd, user):
        self.agent, self.ident = agent, ident
        r_in, self.stdin = os.pipe2(os.O_CLOEXEC)
        self.out, w_out = os.pipe2(os.O_CLOEXEC)
        self.err, w_err = os.pipe2(os.O_CLOEXEC)
        self.pending = bytearray()
        self.stdin_ends = False
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                for target, fd in enumerate((r_in, w_out, w_err)):
                    os.dup2(fd, target)
                os.chdir(cwd)
                if user:
                    # The user may have no access to the folder of the program.
                    program = os.open(argv[0], os.O_RDONLY | os.O_CLOEXEC)
                    become(user)
                    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
                    os.execve(program, argv, {**ENV, **env})
                # With additional environment variables a script may need a new interpreter.
                if argv[0] == "python3" and argv[1].endswith(".py") and not env:
                    raise Script(argv[1:])
                signal.signal(signal.SIGPIPE, signal.SIG_DFL)
                os.execvpe(argv[0], argv, {**ENV, **env})
            except OSError as e:
                os.write(2, f"{argv[0]}: {e.strerror}\n".encode())
            os._exit(127)
        for fd in (r_in, w_out, w_err):
            os.close(fd)
        os.set_blocking(self.stdin, False)
        os.set_blocking(self.out, False)
        os.set_blocking(self.err, False)
        self.pidfd = os.pidfd_open(self.pid)
        agent.watch(self.pidfd, selectors.EVENT_READ, self.exited)
        agent.watch(self.out, selectors.EVENT_READ, lambda: self.forward("out"))
        agent.watch(self.err, selectors.EVENT_READ, lambda: self.forward("err"))

    def forward(self, which):
        """Passes on one piece of output; returns True if there may be more."""
        fd = getattr(self, which)
        if fd < 0:
            return False
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return False
        if not data:
            self.agent.unwatch(fd)
            os.close(fd)
            setattr(self, which, -1)
            return False
        self.agent.send({"id": self.ident, "ev": which, "data": data.decode("latin-1")})
        return True

    def feed(self, data, ends):
        self.pending += data
        self.stdin_ends |= ends
        self.write_pending()

    def write_pending(self):
        if self.stdin < 0:
            return
        blocked = False
        try:
            while self.pending:
                del self.pending[: os.write(self.stdin, self.pending)]
        except BlockingIOError:
            blocked = True
        except BrokenPipeError:
            self.pending.clear()
            self.stdin_ends = True
        if blocked:
            self.agent.watch(self.stdin, selectors.EVENT_WRITE, self.write_pending)
            return
        self.agent.unwatch(self.stdin)
        if self.stdin_ends:
            os.close(self.stdin)
            self.stdin = -1

    def exited(self):
        _, status = os.waitpid(self.pid, 0)
        # All output of the command itself is in the pipes by now. A daemon that it left behind may
        # keep them open forever, so do not wait for their end.
        for which in ("out", "err"):
            while self.forward(which):
                pass
        for fd in (self.pidfd, self.stdin, self.out, self.err):
            if fd >= 0:
                self.agent.unwatch(fd)
                os.close(fd)
        del self.agent.jobs[self.ident]
        self.agent.send(
            {"id": self.ident, "ev": "exit", "status": os.waitstatus_to_exitcode(status)}
        )


class Agent:
    def __init__(self):
        self.port = open_port()
        self.selector = selectors.DefaultSelector()
        self.jobs = {}
        self.inbox = bytearray()
        self.watch(self.port, selectors.EVENT_READ, self.receive)

    def watch(self, fd, events, callback):
        try:
            self.selector.register(fd, events, callback)
        except KeyError:
            self.selector.modify(fd, events, callback)

    def unwatch(self, fd):
        try:
            self.selector.unregister(fd)
        except KeyError:
            pass

    def send(self, message):
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self.port, data) :]

    def receive(self):
        data = os.read(self.port, 65536)
        if not data:
            self.power_off()
        self.inbox += data
        *lines, rest = self.inbox.split(b"\n")
        self.inbox = bytearray(rest)
        for line in lines:
            self.request(json.loads(line))

    def request(self, r):
        ident, job = r["id"], self.jobs.get(r["id"])
        if r["op"] == "start":
            try:
                self.jobs[ident] = Job(self, ident, r["argv"], r["env"], r["cwd"], r["user"])
            except OSError as e:
                self.send({"id": ident, "ev": "failed", "why": str(e)})
        elif r["op"] == "stdin" and job:
            job.feed(r["data"].encode("latin-1"), r["ends"])
        elif r["op"] == "signal" and job:
            try:
                os.killpg(job.pid, r["signal"])
            except OSError as e:
                if e.errno != errno.ESRCH:
                    raise
        elif r["op"] == "write":
            with open(r["path"], "w", encoding="utf-8") as f:
                f.write(r["text"])
        elif r["op"] == "read":
            with open(r["path"], encoding="latin-1") as f:
                self.send({"id": ident, "ev": "out", "data": f.read()})
            self.send({"id": ident, "ev": "exit", "status": 0})

    def power_off(self):
        with open("/proc/sysrq-trigger", "w", encoding="ascii") as f:
            f.write("o")
        os._exit(0)

    def run(self):
        self.send({"id": 0, "ev": "ready"})
        while True:
            for key, _ in self.selector.select():
                # An earlier event of the same round may have ended the job of this event.
                if key.fd in self.selector.get_map():
                    key.data()


def main():
    # Modules that most scripts need are imported in advance, and others are compiled only once.
    for name in ("contextlib", "ctypes", "fcntl", "random", "socket", "struct", "subprocess", "threading", "time"):
        importlib.import_module(name)
    sys.dont_write_bytecode, sys.pycache_prefix = False, "/run/pycache"
    gc.freeze()
    agent = Agent()
    try:
        agent.run()
    except Script as e:
        agent.selector.close()
        return e
    raise AssertionError("the agent does not end")


if __name__ == "__main__":
    main().run()
