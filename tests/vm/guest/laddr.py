# SPDX-License-Identifier: GPL-2.0
"""laddr.py COMMAND [ARGUMENT]...: binds sockets to local addresses, and checks the results.

Each command prints one line of JSON at the end. test_laddr.py calls the commands.
"""

import errno
import json
import os
import random
import resource
import socket
import subprocess
import sys
import threading
import time

from rds import Sock, sockaddr

TRACING = "/sys/kernel/tracing"
PATIENCE = 60


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def write(name, text, flags=os.O_TRUNC):
    fd = os.open(f"{TRACING}/{name}", os.O_WRONLY | flags)
    os.write(fd, text.encode())
    os.close(fd)


class Probes:
    """Probes of the RDMA CM: calls of rdma_bind_addr by address, and CM ids that were created."""

    EVENTS = (("bind", "rdma_bind_addr family=+0($arg2):u16 four=+4($arg2):x32 "
                       "high=+8($arg2):x64 low=+16($arg2):x64"),
              ("create", "__rdma_create_kernel_id"))

    def start(self):
        for name, event in self.EVENTS:
            write("kprobe_events", f"p:laddr/{name} {event}\n", os.O_APPEND)
        write("events/laddr/enable", "1")
        write("trace", "\n")
        return self

    def stop(self):
        write("events/laddr/enable", "0")
        for name, _ in self.EVENTS:
            write("kprobe_events", f"-:laddr/{name}\n", os.O_APPEND)

    def count(self):
        """Returns the calls by address since the last count. Ids are under "ids"."""
        with open(f"{TRACING}/trace", encoding="ascii") as f:
            lines = [x for x in f if not x.startswith("#")]
        write("trace", "\n")
        assert not any("LOST" in x for x in lines), "the trace is not whole"
        calls = {"ids": 0}
        for line in lines:
            if " create: " in line:
                calls["ids"] += 1
                continue
            fields = dict(x.split("=") for x in line.split() if "=" in x)
            if int(fields["family"]) == socket.AF_INET:
                raw = int(fields["four"], 16).to_bytes(4, "little")
                address = socket.inet_ntop(socket.AF_INET, raw)
            else:
                raw = b"".join(int(fields[x], 16).to_bytes(8, "little") for x in ("high", "low"))
                address = socket.inet_ntop(socket.AF_INET6, raw)
            calls[address] = calls.get(address, 0) + 1
        return calls

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


def outcome(host, port=0, scope=0):
    """Returns the error number of a bind, or 0."""
    with Sock() as s:
        try:
            s.bind(host, port, scope)
        except OSError as e:
            return e.errno
    return 0


def until(wanted, *where):
    """Binds until the outcome is the wanted one.

    After `ip addr add`, or for a new device, the kernel's own worker fills the device's table of
    addresses later, without a notification.
    """
    deadline = time.monotonic() + PATIENCE
    while (seen := outcome(*where)) != wanted:
        assert seen in (0, errno.EADDRNOTAVAIL), (where, errno.errorcode[seen])
        assert time.monotonic() < deadline, (where, seen, wanted)


def quiet():
    """Waits until the reactions to events are over and the CM is not called any more.

    The probes must be on. A reaction runs some milliseconds after its event.
    """
    probes = Probes()
    deadline = time.monotonic() + PATIENCE
    while True:
        probes.count()
        time.sleep(0.5)
        calls = probes.count()
        if calls == {"ids": 0}:
            return
        assert time.monotonic() < deadline, calls


def burst(host, count, scope=0):
    """Binds many sockets that are open at the same time."""
    # The same calls as those of the socket module, without its overhead.
    socks = [Sock() for _ in range(count)]
    for number, s in enumerate(socks):
        s.bind_raw(sockaddr(host, 2000 + number, scope))
    for s in socks:
        s.sock.close()


class Binders:
    """Threads that bind to addresses repeatedly."""

    def __init__(self, count, hosts):
        self.over, self.seen, self.turns = False, {}, [0] * count
        self.threads = [threading.Thread(target=self.run, args=(i, hosts)) for i in range(count)]

    def run(self, number, hosts):
        seen, me = {}, number
        while not self.over:
            host, scope = hosts[number % len(hosts)]
            number += 1
            self.turns[me] += 1
            result = outcome(host, 0, scope)
            seen[result] = seen.get(result, 0) + 1
        for result, count in seen.items():
            self.seen[result] = self.seen.get(result, 0) + count

    def wait(self):
        """Returns when each thread has completed a whole bind."""
        before = list(self.turns)
        while not all(now > then + 1 for now, then in zip(self.turns, before)):
            time.sleep(0)

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.over = True
        for t in self.threads:
            t.join()


def probes_on():
    Probes().start()


def probes_off():
    probes = Probes()
    calls = probes.count()
    probes.stop()
    return calls


def bursts(count, *hosts):
    """Makes two bursts of binds to each address, the first ever and another one.

    The probes are on already.
    """
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(count) + 100,) * 2)
    for host in hosts * 2:
        burst(host, int(count))


def cycles(rounds, dev, *prefixes):
    """Removes addresses and adds them again during concurrent binds."""
    index = socket.if_nametoindex(dev)
    hosts = []
    for prefix in prefixes:
        host = prefix.partition("/")[0]
        hosts.append((host, index if host.startswith("fe80") else 0))
        more = ["nodad"] if ":" in host else []
        ip("addr", "add", prefix, "dev", dev, *more)
        until(0, host, 0, hosts[-1][1])
    with Binders(3, hosts) as binders:
        for _ in range(int(rounds)):
            for prefix, (host, scope) in zip(prefixes, hosts):
                ip("addr", "del", prefix, "dev", dev)
                for _ in range(20):
                    assert outcome(host, 0, scope) == errno.EADDRNOTAVAIL, host
                ip("addr", "add", prefix, "dev", dev, *(["nodad"] if ":" in host else []))
                until(0, host, 0, scope)
    for prefix in prefixes:
        ip("addr", "del", prefix, "dev", dev)
    return binders.seen


def removals(rounds, kind, link, netdev, *hosts):
    """Removes an RDMA device and adds it again during concurrent binds."""
    with Binders(3, [(host, 0) for host in hosts]) as binders:
        for _ in range(int(rounds)):
            subprocess.run(["rdma", "link", "del", link], check=True)
            for host in hosts:
                assert outcome(host) == errno.EADDRNOTAVAIL, host
            subprocess.run(["rdma", "link", "add", link, "type", kind, "netdev", netdev],
                           check=True)
            for host in hosts:
                until(0, host)
    return binders.seen


def scopes(dev, other, bare, prefix):
    """Binds to a link-local address of one device with the indices of three devices and without
    one."""
    host = prefix.partition("/")[0]
    ip("addr", "add", prefix, "dev", dev, "nodad")
    until(0, host, 0, socket.if_nametoindex(dev))
    seen = {x: outcome(host, 0, socket.if_nametoindex(x)) for x in (dev, other, bare)}
    seen |= {"none": outcome(host), "unknown": outcome(host, 0, 999999)}
    ip("addr", "del", prefix, "dev", dev)
    seen["gone"] = outcome(host, 0, socket.if_nametoindex(dev))
    return {name: errno.errorcode.get(number, number) for name, number in seen.items()}


def unknown(count, known):
    """Binds to addresses that this machine does not have, and then to one that it has."""
    with Probes() as probes:
        quiet()
        results = set()
        numbers = random.Random(1)
        for _ in range(int(count)):
            results.add(outcome(f"203.0.{numbers.randrange(256)}.{numbers.randrange(256)}"))
            results.add(outcome(f"2001:db8::{numbers.randrange(65536):x}"))
        first = probes.count()
        return {"results": sorted(results), "calls": first, "known": outcome(known),
                "then": probes.count()}


def bare(count, dev, known):
    """Binds to addresses of a device without RDMA. There are more of them than can be cached."""
    hosts = [f"198.18.{i // 200}.{i % 200 + 1}" for i in range(int(count))]
    batch = "\n".join(f"addr add {host}/32 dev {dev}" for host in hosts)
    subprocess.run(["ip", "-batch", "-"], input=batch, text=True, check=True)
    with Probes() as probes:
        quiet()
        few = hosts[:20]
        results = {outcome(host) for host in few for _ in range(10)}
        calls = probes.count()
        results |= {outcome(host) for host in hosts for _ in range(2)}
        known = [outcome(known) for _ in range(10)]
    ip("addr", "flush", "dev", dev)
    return {"results": sorted(results), "few": calls, "known": known}


def shared(rounds, dev, host):
    """Binds in several threads after an event.

    Together they call the CM once, unless an event is repeated.
    """
    worst = 0
    with Probes() as probes, Binders(4, [(host, 0)]) as binders:
        for _ in range(int(rounds)):
            quiet()
            # Two events that need no answer about an RDMA device.
            ip("addr", "add", "198.18.0.1/32", "dev", dev)
            ip("addr", "del", "198.18.0.1/32", "dev", dev)
            binders.wait()
            worst = max(worst, probes.count().get(host, 0))
    return {"worst": worst, "seen": binders.seen}


def routed(prefix, dev, hosts, known):
    """Binds to addresses that are local only through a route, which can be deleted without an
    event."""
    ip("route", "add", "local", prefix, "dev", dev)
    results = {outcome(host) for host in hosts.split(",") for _ in range(3)}
    ip("route", "del", "local", prefix, "dev", dev)
    after = {outcome(host) for host in hosts.split(",")}
    return {"results": sorted(results), "after": sorted(after), "known": outcome(known)}


def tentative(prefix, dev):
    """Binds to an address that other nodes might have.

    It becomes local only after a while, without an event.
    """
    host = prefix.partition("/")[0]
    with open(f"/proc/sys/net/ipv6/neigh/{dev}/retrans_time_ms", "r+", encoding="ascii") as f:
        usual = f.read()
        f.write("3000")
        f.flush()
        while True:
            ip("addr", "add", prefix, "dev", dev)
            first = outcome(host)
            # Otherwise the address may have become local before the bind, or after it.
            shown = ["ip", "addr", "show", "dev", dev, "to", host]
            if b"tentative" in subprocess.run(shown, check=True, capture_output=True).stdout:
                break
            ip("addr", "del", prefix, "dev", dev)
        f.write(usual)
    until(0, host)
    ip("addr", "del", prefix, "dev", dev)
    return {"first": first, "gone": outcome(host)}


def one(host):
    return outcome(host)


def bound(host):
    """Returns when sockets can be bound to an address that was just added."""
    until(0, host)


def quiet_calls(host, *command):
    """Returns the calls of the CM while a command runs and a socket is bound afterwards."""
    with Probes() as probes:
        quiet()
        subprocess.run(command, check=True)
        return {"result": outcome(host), "calls": probes.count()}


print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
