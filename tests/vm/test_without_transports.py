# SPDX-License-Identifier: GPL-2.0
"""Modules that were built without RDMA, without TCP or without both.

What they lack is as with C RDS whose module for that transport is not there.
"""

import fcntl
import functools
import json
import subprocess
from contextlib import contextmanager

import pytest
from rdsvm.cluster import PAIR, TOP, make_print, must, wire_address
from traffic import counters, exchange, messages, ping

pytestmark = [pytest.mark.impls("rust"), pytest.mark.pairs("rust-rust"), pytest.mark.kinds("rxe")]

LOOP = "127.0.0.1"
SETTINGS = "/proc/sys/net/rds"
PARAMETERS = {"max_conns", "max_conns_per_peer", "pool_limit_mib", "idle_secs"}
OF_RDMA, OF_TCP = {"max_frag", "rds_ib_retry_count"}, {"tcp"}
REGISTERED = "Registered RDS/{} transport"


@functools.cache
def built(flavor, *without):
    """Builds a module without transports, and returns its path."""
    left_out = [f"{x}=n" for x in without]
    # Another test may build it at the same time.
    with open(TOP / "build/.without_transports.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["make", "-s", "-C", TOP, "modules", f"FLAVOR={flavor}", *left_out], check=True,
                       stdin=subprocess.DEVNULL, capture_output=True)
    return make_print("ko", flavor, *left_out)


@contextmanager
def loaded(machines, module, *options):
    """Loads another module on machines, and at the end the usual one. Yields what their logs say of
    the load."""
    usual = [m.module for m in machines]
    marks = []
    for m in machines:
        must(m.unload())
        m.module = module
        marks.append(m.mark("loading another module"))
        must(m.load(options=options))
        m.mark("loaded another module")
    yield ["\n".join(m.log(mark)) for m, mark in zip(machines, marks)]
    for m, module in zip(machines, usual):
        m.stop_all()
        must(m.unload())
        m.module = module
        must(m.load())


def of_module(module, field):
    return set(subprocess.run(["modinfo", "-F", field, module], check=True, capture_output=True,
                              text=True).stdout.split())


def parameters(node):
    return set(node.run("ls /sys/module/rds_rust/parameters").out.split())


def settings(node):
    """Returns the folders of settings."""
    return set(node.run(f"cd {SETTINGS} && ls -d */", check=False).out.replace("/", "").split())


def answers(node, guest, host):
    return json.loads(node.run(["python3", guest / "absent_transports.py", host]).out)


# Answers on the loopback address, which has no RDMA with any module.
OF_LOOP = {"bind, loopback": "loopback", "register, unbound": "ENOTCONN", "register": "EOPNOTSUPP",
           "register for a peer": "EOPNOTSUPP", "free": "EINVAL", "free all": "EINVAL", "write": "EOPNOTSUPP",
           "map": "EOPNOTSUPP", "add": "EOPNOTSUPP", "connections": 0}
WITHOUT_RDMA = {"bind, IB": "ENOPROTOOPT", "IB connections": None, "queue pairs": None}
WITHOUT_TCP = {"bind, TCP": "ENOPROTOOPT", "bind, loopback, TCP": "ENOPROTOOPT", "TCP sockets": None}


def test_without_rdma(pair, tools, guest, flavor):
    """RDS over TCP and within the node. The RDMA devices of the nodes are not used."""
    module = built(flavor, "RDMA")
    assert of_module(module, "alias") == {"rds"}
    assert of_module(module, "depends") == set()
    ends = [(m, wire_address(0, index)) for index, m in enumerate(pair, 1)]
    with loaded(pair, module, "tcp=1") as logs:
        for log in logs:
            assert REGISTERED.format("tcp") in log and "infiniband" not in log, log
        for m, own in ends:
            assert parameters(m) == PARAMETERS | OF_TCP
            assert settings(m) == {"tcp"}
            assert m.run("ls /sys/kernel/debug/rds_faults", check=False).status
            assert answers(m, guest, own) == {
                **OF_LOOP, **WITHOUT_RDMA, "bind": "tcp", "bind, TCP": "tcp", "bind, loopback, TCP": "tcp", "TCP sockets": 0}
        for (m, own), (_, peer) in (ends, ends[::-1]):
            ping(tools, m, peer, own)
            ping(tools, m, LOOP, LOOP)
            shown = counters(m, guest)
            assert {"tcp_data_ready_calls", "ib_pool_refused_limit"} <= set(shown) and "ib_mr_kept" not in shown, shown
        exchange(tools, *ends, count=messages(flavor, 400), sockets=4)
        exchange(tools, ends[0], ends[0], count=messages(flavor, 200))
        # All tables, of which some are missing.
        shown = json.loads(pair[0].run([tools / "rds-info", "--json"]).out)
        assert len(shown["connections"]) >= 1 and not shown.get("ib"), shown


def test_without_tcp(node, tools, guest, flavor):
    module = built(flavor, "TCP")
    assert of_module(module, "alias") == {"rds", "rds_rdma"}
    # The kernel loads a module in spite of parameters that it does not know.
    with loaded([node], module, "tcp=1") as (log,):
        assert "unknown parameter 'tcp' ignored" in log, log
        assert REGISTERED.format("infiniband") in log and REGISTERED.format("tcp") not in log, log
        assert parameters(node) == PARAMETERS | OF_RDMA
        assert settings(node) == {"ib"}
        assert answers(node, guest, PAIR[0]) == {
            **OF_LOOP, **WITHOUT_TCP, "bind": "infiniband", "bind, IB": "infiniband", "IB connections": 0, "queue pairs": 0}
        assert not node.run("grep -i ':4001 ' /proc/net/tcp", check=False).out
        ping(tools, node, PAIR[1], PAIR[0])
        exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=messages(flavor, 200))
        node.run(["python3", guest / "operate.py", 1, "cookies"])


def test_without_both(node, tools, guest, flavor):
    """Messages only travel within the node."""
    module = built(flavor, "RDMA", "TCP")
    with loaded([node], module) as (log,):
        assert "rds_rust: version" in log and "Registered RDS/" not in log, log
        assert parameters(node) == PARAMETERS
        assert settings(node) == set()
        assert answers(node, guest, PAIR[0]) == {**OF_LOOP, **WITHOUT_RDMA, **WITHOUT_TCP, "bind": "EADDRNOTAVAIL"}
        ping(tools, node, LOOP, LOOP)
        exchange(tools, (node, LOOP), (node, LOOP), count=messages(flavor, 200))
        assert node.run([tools / "rds-info"]).status == 0
