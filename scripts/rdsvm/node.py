# SPDX-License-Identifier: GPL-2.0
"""One test machine: a QEMU guest that runs commands for the host.

The guest sees the host's files read-only and its run directory read-write. Commands go through
agent.py over a virtio-serial port, so everything here waits for events and never polls. The
serial console is the kernel log: it is read as it comes and survives a crash of the guest.
"""

import json
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import tempfile
import threading
import time
import warnings
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from . import tsc

HERE = Path(__file__).resolve().parent
BOOT_SECONDS = 180
# Keys of /proc/sysrq-trigger: blocked tasks, held locks, and a trace of each processor.
SYSRQ_TASKS = "wdl"
SYSRQ_SECONDS = 30
# The time from QEMU's last output to the end of its process.
QEMU_SECONDS = 10
# The constant of asm-generic/socket.h; Python has no name for it.
SO_RCVBUFFORCE = 33
# Five levels of page tables take a quarter of the emulation's time, and no node has enough memory
# to need them. With ERMS or FSRM the kernel copies byte by byte, which is slow here.
CPU = "max,la57=off,erms=off,fsrm=off"
KERNEL_LINE = re.compile(r"^(?:<\d+>)?\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? ?")


class NodeError(Exception):
    """The node did not fulfil a request: the message has all known details."""


class Defect(AssertionError):
    """A wrong result, which a busy machine does not excuse."""


class Environment(NodeError):
    """A failure of the machine that runs a test. Each kind has an entry in tests/flakes.toml."""


class BootFailed(Environment):
    """The guest stopped or ended before its first program, so no test had begun."""


@dataclass
class Result:
    """The end of a command: a negative status is the signal that killed it."""

    command: str
    status: int
    out: str
    err: str

    def __str__(self):
        text = f"$ {self.command}\nexit status {self.status}\n{self.out}"
        return text + (f"stderr:\n{self.err}" if self.err else "")


class Process:
    """A command in the guest, possibly still running."""

    def __init__(self, node, ident, command):
        self.node, self.ident, self.command = node, ident, command
        self._out, self._err, self.status, self._why = [], [], None, None

    @property
    def out(self):
        return "".join(self._out).encode("latin-1").decode("utf-8", "replace")

    @property
    def err(self):
        return "".join(self._err).encode("latin-1").decode("utf-8", "replace")

    @property
    def result(self):
        return Result(self.command, self.status, self.out, self.err)

    def _event(self, event):
        if event["ev"] == "out":
            self._out.append(event["data"])
        elif event["ev"] == "err":
            self._err.append(event["data"])
        elif event["ev"] == "exit":
            self.status = event["status"]
        else:
            self._why = event["why"]

    def running(self):
        return self.status is None and self._why is None

    def wait(self, timeout=120, check=False):
        """Waits for the end of the command and returns its Result."""
        what = f"{self.command} to end"
        self.node._await(lambda: not self.running(), timeout, what, self)
        if self._why:
            raise NodeError(f"{self.node.name}: {self.command}: {self._why}")
        if check and self.status != 0:
            raise NodeError(f"{self.node.name}: {self.result}")
        return self.result

    def expect(self, pattern, timeout=120):
        """Waits until the standard output matches, and returns the match."""
        regex, found = re.compile(pattern, re.M), []

        def seen():
            found[:] = [regex.search(self.out)]
            return found[0] or self.status is not None

        self.node._await(seen, timeout, f"{self.command} to print {pattern!r}", self)
        if not found[0]:
            raise NodeError(f"{self.node.name}: ended without {pattern!r}: {self.result}")
        return found[0]

    def lines(self, timeout=120):
        """Yields the whole lines of the standard output, each as it comes, until the end."""
        seen = 0
        while True:
            what = f"{self.command} to print a line"
            self.node._await(lambda: not self.running() or self.out.count("\n") > seen, timeout,
                             what, self)
            ended = not self.running()
            for line in self.out.split("\n")[seen:-1]:
                seen += 1
                yield line
            if ended:
                return

    def write(self, text, close=False):
        """Writes to the command's standard input; close ends it."""
        data = text.encode().decode("latin-1")
        self.node._request(op="stdin", id=self.ident, data=data, ends=close)

    def finish(self, text="", timeout=120):
        """Writes to the command's standard input and ends that. Waits for the end of the command,
        which must succeed, and returns its Result."""
        self.write(text, close=True)
        return self.wait(timeout, check=True)

    def send_signal(self, number=signal.SIGTERM):
        """Signals the command and its child processes."""
        self.node._request(op="signal", id=self.ident, signal=int(number))

    def stop(self, number=signal.SIGTERM, timeout=60):
        if self.running():
            self.send_signal(number)
        return self.wait(timeout)


def wire(local, remote):
    """Returns one end of a wire: a UDP socket for QEMU, with a large receive buffer.

    The buffer holds the packets in flight of a burst while the host is busy. The default one holds
    some ninety packets, and some transports hardly repeat lost packets."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", local))
    sock.connect(("127.0.0.1", remote))
    with suppress(PermissionError):
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    return sock


class Node:
    """A guest.

    modules: the directory with its kernel's modules.
    wires: list of (macs, local UDP port, remote UDP port) on 127.0.0.1, one NIC for each mac.
    Several NICs on one wire are on a hub.
    nic: QEMU's name of the NICs' model.
    cpu: its model and features.
    qemu, cmdline: additional arguments of QEMU and of the kernel."""

    stdin = stdout = subprocess.DEVNULL
    # The folder of the host that is the root of the guest, and the path of these files in it.
    root, here = "/", HERE
    # The initrd of a kernel that has to load modules before it can mount its root.
    initrd = None

    def __init__(self, name, kernel, modules, rundir, wires=(), nic="virtio-net-pci", cpus=2, memory="2G",
                 cpu=CPU, qemu=(), cmdline=()):
        self.name, self.kernel, self.modules = name, Path(kernel), Path(modules)
        self.rundir = Path(rundir).resolve()
        self.wires, self.nic = list(wires), nic
        self.cpus, self.memory, self.cpu = cpus, memory, cpu
        self.qemu, self.cmdline = list(qemu), list(cmdline)
        self._changed = threading.Condition()
        self._qemu = self._sock = self._monitor = None
        self._lines, self._partial, self._processes, self._ready = [], "", {}, False
        self._gone, self._ids, self._logging_tasks = False, 0, False

    # Life

    def boot(self):
        """Boots the guest and returns once it takes commands."""
        try:
            return self._boot()
        except BootFailed as e:
            # Seen on the debug kernel, where processors are slow: one waits in
            # watchdog_check_skew() for the other, which is in stop_machine() and waits for the
            # first. Seen on the release kernel: QEMU ended while the kernel looked for PCI devices.
            warnings.warn(f"booted a second time: {e}")
            return self._boot()

    def _boot(self):
        self.rundir.mkdir(parents=True, exist_ok=True)
        self._processes, self._ready, self._gone = {}, False, False
        # Log lines of an earlier kernel are kept: a test with an earlier mark checks them, too.
        self._partial, start = "", len(self._lines)
        # The path of a socket must be short; the run directory's may be long.
        with tempfile.TemporaryDirectory(prefix="rds-") as short, socket.socket(
                socket.AF_UNIX) as listener:
            listener.bind(f"{short}/agent")
            listener.listen(1)
            console, console_in = os.pipe()
            self._monitor, monitor_in = socket.socketpair()
            with ExitStack() as handed:
                handed.callback(os.close, console_in)
                handed.enter_context(monitor_in)
                wires = [handed.enter_context(wire(*ports)) for _, *ports in self.wires]
                self._qemu = self._spawn(f"{short}/agent", console_in, monitor_in.fileno(), wires)
            threading.Thread(target=self._read_console, args=(self._qemu, console),
                             daemon=True).start()
            ended = os.pidfd_open(self._qemu.pid)
            ready, _, _ = select.select([listener, ended], [], [], BOOT_SECONDS)
            os.close(ended)
            if listener not in ready:
                self.kill()
                raise NodeError(f"{self.name}: QEMU did not start:\n{self.log_tail()}")
            self._sock, _ = listener.accept()
        threading.Thread(target=self._read_agent, args=(self._sock,), daemon=True).start()
        try:
            self._await(lambda: self._ready, BOOT_SECONDS, "the guest to boot")
        except NodeError as e:
            early = not any("as init process" in x for x in self._lines[start:])
            where = f"\nthe processors:\n{self.processors()}" if early and not self._gone else ""
            self.kill()
            if early:
                raise BootFailed(f"{e}{where}") from e
            raise
        return self

    def image(self):
        """Returns the path of the kernel that QEMU starts."""
        return self.kernel / "arch/x86/boot/bzImage"

    def _spawn(self, sock_path, console_in, monitor_in, wires):
        # The watchdog of clock sources and stop_machine() can wait for each other at boot forever;
        # a reliable TSC has no such watchdog.
        params = ["console=ttyS0", "ignore_loglevel", "panic=-1", "tsc=reliable", "ro", "root=/dev/root",
                  "rootfstype=9p",
                  "rootflags=trans=virtio,version=9p2000.L,cache=loose,msize=512000",
                  f"init={self.here}/init.sh", f"rds_agent={self.here}/agent.py", f"rds_name={self.name}",
                  f"rds_rundir={self.rundir}", f"rds_modules={self.modules}", *self.cmdline]
        # A guest whose clock counts instructions has a TSC of its own.
        if "-icount" not in self.qemu:
            params.append(f"tsc_early_khz={tsc.khz()}")
        if spaced := [x for x in params if " " in x]:
            raise NodeError(f"the kernel's command line cannot have spaces in it: {spaced}")
        argv = ["qemu-system-x86_64", "-name", self.name, "-machine", "q35,accel=tcg", "-cpu",
                self.cpu, "-smp", str(self.cpus), "-m", self.memory, "-nodefaults", "-display",
                "none", "-no-reboot", "-kernel", str(self.image()),
                *(("-initrd", str(self.initrd)) if self.initrd else ()),
                "-append", " ".join(params),
                "-chardev", f"file,id=console,path=/dev/fd/{console_in}",
                "-serial", "chardev:console", "-chardev", f"socket,id=monitor,fd={monitor_in}",
                "-mon", "chardev=monitor,mode=control"]
        # Each export can be mounted once: "files" is the run directory, for other mount options.
        for tag, path, mode in (("/dev/root", self.root, "on"), ("rundir", self.rundir, "off"), ("files", self.rundir, "off")):
            ident = tag.strip("/").replace("/", "")
            argv += ["-fsdev", f"local,id={ident},path={path},security_model=none,"
                     f"readonly={mode},multidevs=remap",
                     "-device", f"virtio-9p-pci,fsdev={ident},mount_tag={tag}"]
        argv += ["-device", "virtio-serial-pci", "-chardev", f"socket,id=agent,path={sock_path}",
                 "-device", "virtserialport,name=rds.agent,chardev=agent"]
        for i, ((macs, _, _), sock) in enumerate(zip(self.wires, wires)):
            argv += ["-netdev", f"dgram,id=w{i},local.type=fd,local.str={sock.fileno()}"]
            ends = [f"w{i}"]
            if len(macs) > 1:
                argv += ["-netdev", f"hubport,id=h{i},hubid={i},netdev=w{i}"]
                ends = [f"w{i}p{j}" for j in range(len(macs))]
                for end in ends:
                    argv += ["-netdev", f"hubport,id={end},hubid={i}"]
            for end, mac in zip(ends, macs):
                argv += ["-device", f"{self.nic},netdev={end},mac={mac}"]
        fds = (console_in, monitor_in, *(x.fileno() for x in wires))
        return subprocess.Popen(argv + self.qemu, stdin=self.stdin, stdout=self.stdout,
                                stderr=console_in, pass_fds=fds,
                                start_new_session=self.stdin is subprocess.DEVNULL)

    def alive(self):
        return self._qemu is not None and not self._gone

    def kill(self):
        """Ends the guest as a power failure would."""
        if self._qemu is None:
            return
        self._qemu.kill()
        self._qemu.wait()
        with self._changed:
            self._gone = True
            self._changed.notify_all()
        for sock in (self._sock, self._monitor):
            if sock is not None:
                sock.close()
        self._qemu = self._sock = self._monitor = None

    def restart(self):
        self.kill()
        return self.boot()

    def monitor(self, command, **arguments):
        """Sends one command of QEMU's own protocol (QMP); returns its answer."""
        stream = self._monitor.makefile("rw")
        for request in ({"execute": "qmp_capabilities"},
                        {"execute": command, "arguments": arguments}):
            stream.write(json.dumps(request) + "\n")
            stream.flush()
            while not {"return", "error"} & set(answer := json.loads(stream.readline())):
                pass
        if "error" in answer:
            raise NodeError(f"{self.name}: {command}: {answer['error']['desc']}")
        return answer["return"]

    def processors(self):
        """Returns a text with the instruction pointer of each processor of the guest."""
        text = self.monitor("human-monitor-command", **{"command-line": "info registers -a"})
        return "\n".join(re.findall(r"^(?:CPU#|[ER]IP=).*$", text.replace("\r", ""), re.M))

    # Commands

    def start(self, command, env=None, cwd=None, name=None, user=None):
        """Starts a command, a list or a line for the shell, and returns its Process.

        user: the number of an ordinary user, for a program that is named by its path."""
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(map(str, command))
        process = self._process(name or (command if isinstance(command, str) else shlex.join(argv)))
        self._request(op="start", id=process.ident, argv=argv, env=env or {},
                      cwd=str(cwd or self.rundir), user=user)
        return process

    def _process(self, text):
        with self._changed:
            self._ids += 1
            process = self._processes[self._ids] = Process(self, self._ids, text)
        return process

    def run(self, command, check=True, timeout=120, **kwargs):
        """Runs a command to its end. check: a status other than 0 raises NodeError."""
        process = self.start(command, **kwargs)
        process.write("", close=True)
        return process.wait(timeout, check)

    # Access to kernel files that always exist. To start a process takes ten times as long.

    def read_file(self, path):
        process = self._process(f"to read {path}")
        self._request(op="read", id=process.ident, path=path)
        return process.wait().out

    def write_file(self, path, text):
        """Writes a file. Later requests are executed after this one."""
        self._request(op="write", id=0, path=path, text=text)

    def stop_all(self):
        """Kills all processes that still run, as nothing waits for them any more."""
        with self._changed:
            left = [p for p in self._processes.values() if p.running()]
        for process in left:
            process.stop(signal.SIGKILL)

    # The kernel log

    def log(self, since=0):
        """Returns the kernel's lines since a mark, without their time stamps."""
        with self._changed:
            lines = self._lines[since:]
        return [KERNEL_LINE.sub("", x) for x in lines if KERNEL_LINE.match(x)]

    def log_tail(self, lines=60):
        """Returns the raw end of the console."""
        with self._changed:
            return "\n".join(self._lines[-lines:] + [self._partial])

    def mark(self, text, timeout=60):
        """Writes a line into the kernel log and returns the index of the line after it.

        The console is in order: all lines that were logged before this call are before the mark."""
        # The log may have an older mark with the same text, also from an earlier boot.
        since = len(self._lines)
        self.write_file("/dev/kmsg", f"mark: {text}\n")
        return self.wait_log(re.escape(f"mark: {text}"), since, timeout)

    def wait_log(self, pattern, since=0, timeout=60):
        """Waits for a matching kernel line since a mark; returns the index of the next line."""
        regex, hit = re.compile(pattern), []

        def seen():
            for i in range(since, len(self._lines)):
                if regex.search(self._lines[i]):
                    hit[:] = [i + 1]
                    return True
            return False

        self._await(seen, timeout, f"the kernel log to say {pattern!r}")
        return hit[0]

    def log_tasks(self):
        """Has the kernel log blocked tasks, held locks and the position of each processor.

        After a wait that timed out, the log then has facts that a detector reports only later."""
        if not self._ready or self._gone or self._logging_tasks:
            return
        self._logging_tasks = True
        try:
            with suppress(NodeError):
                for key in SYSRQ_TASKS:
                    self.write_file("/proc/sysrq-trigger", key)
                self.mark("all tasks logged", SYSRQ_SECONDS)
        finally:
            self._logging_tasks = False

    # Plumbing

    def _request(self, **message):
        try:
            self._sock.sendall(json.dumps(message).encode() + b"\n")
        except (OSError, AttributeError) as e:
            raise NodeError(f"{self.name} is gone:\n{self.log_tail()}") from e

    def _await(self, condition, timeout, what, process=None):
        deadline = time.monotonic() + timeout
        with self._changed:
            while not condition():
                if self._gone:
                    raise NodeError(f"{self.name}: the machine ended while waiting for {what}, "
                                    f"{self._status()}:\n{self.log_tail()}")
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            else:
                return
        # Without the lock, which the reader of the console needs.
        self.log_tasks()
        shown = f"\n{process.result}" if process else ""
        raise NodeError(f"{self.name}: waited {timeout} s in vain for {what}{shown}\n"
                        f"the console's end:\n{self.log_tail()}")

    def _status(self):
        """Returns how QEMU ended, for a message. Its files are closed a little earlier."""
        qemu = self._qemu
        if qemu is None:
            return "which a test ended"
        try:
            return f"QEMU's exit status is {qemu.wait(QEMU_SECONDS)}"
        except subprocess.TimeoutExpired:
            return "but QEMU runs"

    def _read_agent(self, sock):
        stream = sock.makefile("rb")
        try:
            for line in stream:
                event = json.loads(line)
                with self._changed:
                    if event["ev"] == "ready":
                        self._ready = True
                    else:
                        self._processes[event["id"]]._event(event)
                    self._changed.notify_all()
        except (OSError, ValueError):
            pass  # the machine was killed in the middle of a line
        with self._changed:
            self._gone = self._gone or sock is self._sock
            self._changed.notify_all()

    def _read_console(self, qemu, console):
        with open(self.rundir / "console.log", "ab") as copy:
            while data := os.read(console, 65536):
                copy.write(data)
                copy.flush()
                text = data.decode("utf-8", "replace").replace("\r", "")
                with self._changed:
                    *lines, self._partial = (self._partial + text).split("\n")
                    self._lines += lines
                    self._changed.notify_all()
        os.close(console)
        with self._changed:
            self._gone = self._gone or qemu is self._qemu
            self._changed.notify_all()
