# SPDX-License-Identifier: GPL-2.0
"""Fixtures of the tests that need virtual machines.

Machines are booted once for each combination of implementations, and all tests of it use them. Each
test ends with a check of the kernel logs, each combination with a search for leaks. After a failure
the machines are booted again, so that leftovers in the module or the devices do not affect other
tests.
"""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

import faulty_device  # noqa: E402
from blockcov import record  # noqa: E402
from rdsvm import cluster, hardware, kept, klog  # noqa: E402
from rdsvm.node import Defect, Environment, NodeError  # noqa: E402
from traffic import TCP_WIRE, slow_down, start_tcp  # noqa: E402
from wires import Wires  # noqa: E402

FAILED = pytest.StashKey[bool]()
MACHINES = pytest.StashKey[tuple]()
ETHERNET_MTU = 1500
# Tests that take long and reach no or few blocks of the module that others do not reach: see
# Documentation/testing.md.
REDUNDANT = Path(__file__).with_name("redundant.txt")
# The machines of a test that no combination of the chosen implementations and devices is for.
NOWHERE = "nowhere"
# Number of lines at the end of a kernel log that a failure shows beside the reports of defects.
LOG_LINES = 30


def pytest_addoption(parser):
    group = parser.getgroup("rds")
    group.addoption("--flavor", default="release", choices=("release", "debug"),
                    help="the kernel of the nodes that run rds_rust")
    group.addoption("--impls", default="rust,c",
                    help="for tests of one node: the implementations, comma-separated")
    group.addoption("--pairs", default="rust-rust,rust-c,c-rust",
                    help="for tests of two nodes: the implementations on a and b")
    group.addoption("--kinds", default="rxe,siw",
                    help="the kinds of RDMA devices of the nodes, comma-separated")
    group.addoption("--fuzz-seconds", type=int, help="how long the fuzzer of sockets runs")
    group.addoption("--fuzz-seed", type=int, help="the seed of a run that found something")
    group.addoption("--fuzz-coverage", action="store_true",
                    help="print which lines of af_rds/ it reached; KCOV=y says that it is to be the module for it")
    group.addoption("--plan", type=Path, help="write which tests there are, and the machines of each, to this file")
    group.addoption("--coverage", type=Path, metavar="DIR",
                    help="write which blocks of the module each test reaches: see scripts/blockcov")
    group.addoption("--tools", default=TOP / "build/tools/release", type=Path,
                    help="where rds-ping and rds-verify are")


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session):
    """Builds the module to be tested, or refuses to test an old one."""
    config = session.config
    if not (config.getoption("collectonly") or os.environ.get("RDS_BUILT")):
        build(config.getoption("flavor"))
    if folder := config.getoption("coverage"):
        watcher = record.Session(folder, cluster.make_print("ko", config.getoption("flavor")))
        cluster.Machine.watcher = watcher
        config.pluginmanager.register(watcher)


def build(flavor):
    kcov = ["KCOV=y"] if os.environ.get("KCOV") else []
    done = subprocess.run(["make", "-s", "-C", TOP, "modules", "tools", f"FLAVOR={flavor}", *kcov],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        pytest.exit(f"the module does not build:\n{done.stdout}", 2)


def on_kinds(metafunc, labs):
    """Returns the parameters of a lab: each of its combinations with each kind of devices. C RDS is
    tested on RoCE only.

    make test runs a test on siw only if it is marked on_siw, maybe for one flavor only. It runs a
    test with C RDS only if it is marked on_c, or if only node b runs C RDS. On the debug kernel
    tests of two nodes run in neither case.
    """
    config = metafunc.config
    kinds = config.getoption("kinds").split(",")
    if hardware.way_of_environment():
        kinds = [x for x in kinds if x == "rxe"]
    for marker in metafunc.definition.iter_markers("kinds"):
        kinds = [x for x in kinds if x in marker.args]
    # These take too long with two nodes on the debug kernel.
    one = "node_lab" in metafunc.fixturenames
    flavor = config.getoption("flavor")
    slow = flavor == "debug" and not one
    on_siw = not slow and any(flavor in (x.args or [flavor]) for x in metafunc.definition.iter_markers("on_siw"))
    on_c = any(metafunc.definition.iter_markers("on_c"))
    params = []
    for impls in labs:
        name = "-".join(impls)
        if "rxe" in kinds:
            runs = "c" not in impls or not slow and (on_c or impls == ("rust", "c"))
            params.append(pytest.param((impls, "rxe"), id=name, marks=() if runs else pytest.mark.more))
        if "siw" in kinds and "c" not in impls:
            params.append(pytest.param((impls, "siw"), id=f"{name}-siw",
                                       marks=() if on_siw else pytest.mark.more))
    # For an empty list pytest has a case of its own, which it skips.
    return params or [pytest.param(NOWHERE, id=NOWHERE)]


def pytest_generate_tests(metafunc):
    config = metafunc.config
    if "node_lab" in metafunc.fixturenames:
        impls = config.getoption("impls").split(",")
        for marker in metafunc.definition.iter_markers("impls"):
            impls = [x for x in impls if x in marker.args]
        metafunc.parametrize("node_lab", on_kinds(metafunc, [(x,) for x in impls]), indirect=True,
                             scope="session")
    if "pair_lab" in metafunc.fixturenames:
        pairs = [tuple(x.split("-")) for x in config.getoption("pairs").split(",")]
        for marker in metafunc.definition.iter_markers("pairs"):
            pairs = [x for x in pairs if "-".join(x) in marker.args]
        metafunc.parametrize("pair_lab", on_kinds(metafunc, pairs), indirect=True, scope="session")
    if "faulty_lab" in metafunc.fixturenames:
        ways = [(way, marker.kwargs.get("short")) for marker in metafunc.definition.iter_markers("way")
                for way in marker.args]
        metafunc.parametrize("faulty_lab", [
            pytest.param((("rust",), way), id=way, marks=pytest.mark.short if short else ())
            for way, short in ways or [("bounced", False)]], indirect=True, scope="session")


def machines_of(item):
    """Returns the implementations and the kind of devices of a test's machines, NOWHERE, or None if
    the test boots its own machines."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return params.get("node_lab") or params.get("pair_lab") or params.get("faulty_lab")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config, items):
    # Deselects tests that do not apply to the chosen implementations, devices or kernel.
    asked = {"impls": set(config.getoption("impls").split(",")),
             "kinds": set(config.getoption("kinds").split(",")),
             "flavors": {config.getoption("flavor")}}
    if way := hardware.way_of_environment():
        asked["dma"] = {way}
    gone = [x for x in items if machines_of(x) == NOWHERE or any(
        (marker := x.get_closest_marker(name)) and not wanted & set(marker.args) for name, wanted in asked.items())]
    config.hook.pytest_deselected(items=gone)
    items[:] = [x for x in items if x not in gone]
    flavor = config.getoption("flavor")
    redundant = set(REDUNDANT.read_text().splitlines()) if flavor == "debug" else set()
    for item in items:
        long = any(flavor in (x.args or ["debug"]) for x in item.iter_markers("long"))
        # A test of a race covers other interleavings of the same blocks.
        kept = any(map(item.get_closest_marker, ("short", "race", "kept")))
        if long and not item.get_closest_marker("short") or item.nodeid in redundant and not kept:
            item.add_marker("more")
    yield
    # Sorts the tests so that no machines are booted twice. pytest's own order follows the position
    # of a parameter in the list of its test.
    order = list(dict.fromkeys(map(machines_of, items)))
    items.sort(key=lambda item: order.index(machines_of(item)))


def pytest_collection_finish(session):
    path = session.config.getoption("plan")
    if path:
        path.write_text(json.dumps([[x.nodeid, lab_name(x)] for x in session.items]))


def lab_name(item):
    """Returns a word for the machines that a test shares with others. A test that boots its own
    machines shares them with no other."""
    machines = machines_of(item)
    if not machines:
        return f"own {item.nodeid}"
    impls, kind = machines
    return f"{'-'.join(impls)}{'' if kind == 'rxe' else f'-{kind}'}"


class Lab:
    """Machines that tests share. Boots them on demand, and again after a failure."""

    def __init__(self, make):
        self.make, self.machines, self.usable = make, [], False

    def get(self):
        if not (self.usable and all(m.alive() for m in self.machines)):
            self.close()
            self.machines = self.make()
            for m in self.machines:
                if not m.loaded():
                    cluster.must(m.load())
            # After a lockdep report lockdep is off and checks none of the tests.
            found = [x for m in self.machines if m.impl != "c" for x in m.complaints()]
            if found:
                raise Defect("the log is not clean before the first test:\n" + found[0])
            self.usable = True
        for m in self.machines:
            if m.impl == "rust" and m.module_changed():
                m.forget()
        return self.machines

    def leaks(self):
        # After a failed test a machine may not respond.
        return [m.scan_leaks(600 if self.usable else 120) for m in self.machines if m.alive()]

    def close(self):
        """Searches for leaks once more: of a failed test, or of an earlier test. No bounce buffer
        may be left, and no device may have accessed what it must not."""
        bounced = []
        try:
            leaks = [x for x in self.leaks() if x]
            # After a failed test the module may be in use.
            bounced = [m.left_bounced() for m in self.machines if self.usable]
        except NodeError as e:
            # The machine died in a test that failed.
            leaks = [str(e)] if self.usable else []
        for m in self.machines:
            m.kill()
        forbidden = [x for m in self.machines if self.usable and (x := m.forbidden())]
        self.machines, self.usable = [], False
        if leaks:
            raise Defect("kmemleak reports:\n" + "\n".join(leaks))
        if forbidden:
            raise Defect(f"accesses of devices that were not allowed: {forbidden}")
        if any(bounced):
            raise Defect(f"slots of bounce buffers in use without devices: {bounced}")


def lab(name, make):
    if kept.LABS is not None:
        yield kept.LABS.setdefault(name, Lab(make))
        return
    made = Lab(make)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session")
def flavor(request):
    return request.config.getoption("flavor")


@pytest.fixture(scope="session")
def node_lab(request, flavor, tmp_path_factory):
    (impl,), kind = request.param

    def make():
        rundir = tmp_path_factory.mktemp("node")
        machine = cluster.one_node(rundir, impl, flavor, kind=kind,
                                   cmdline=() if kind == "rxe" else cluster.NO_KMEMLEAK)
        machine.add_pair()
        return [machine]

    yield from lab((impl, kind), make)


@pytest.fixture(scope="session")
def pair_lab(request, flavor, tmp_path_factory):
    impls, kind = request.param
    # With C RDS the wire has the default MTU of Ethernet, and a message takes many packets.
    mtu = ETHERNET_MTU if "c" in impls else cluster.MTU
    yield from lab((impls, kind), lambda: cluster.two_nodes(tmp_path_factory.mktemp("pair"), impls, flavor, spare=True,
                                                            kind=kind, mtu=mtu, cmdline=cluster.NO_KMEMLEAK))


@pytest.fixture(scope="session")
def faulty_lab(request, flavor, tmp_path_factory):
    impls, way = request.param

    def make():
        machine = cluster.one_node(tmp_path_factory.mktemp(way), *impls, flavor, cmdline=cluster.NO_KMEMLEAK,
                                   machine=partial(faulty_device.FaultyMachine, way))
        machine.add_pair()
        return [machine]

    yield from lab((impls, way), make)


def use(request, made):
    """Yields the machines of a lab to one test and checks their logs after it."""
    machines = made.get()
    name = request.node.name
    marks = [m.mark(f"start of {name}") for m in machines]
    request.node.stash[MACHINES] = (machines, marks)
    yield machines
    if request.node.stash.get(FAILED, False):
        made.usable = False
        return
    try:
        for m, start in zip(machines, marks):
            m.stop_all()
            m.mark(f"end of {name}")
            found = m.complaints(start)
            assert not found, f"the log of node {m.name} ({m.impl}) is not clean:\n" + found[0]
            assert not (found := m.forbidden()), f"the devices of node {m.name} accessed what they must not: {found}"
            # The next test would not see a warning that the kernel prints only once.
            m.write_file("/sys/kernel/debug/clear_warn_once", "1")
            if m.spent:
                made.usable = False
            pinned = "" if m.impl == "c" else m.pins()
            assert not pinned, f"pages are still pinned on node {m.name}:\n{pinned}"
    except (AssertionError, NodeError):
        made.usable = False
        raise


@pytest.fixture(autouse=True)
def allowed():
    """Checks the accesses of devices to memory, of the machines that a test boots itself."""
    yield
    found = [x for m in cluster.Machine.booted if not m.alive() and (x := m.forbidden())]
    assert not found, f"accesses of devices that were not allowed: {found}"


@pytest.fixture
def node(request, node_lab):
    """One machine with RDS loaded and a pair of RDMA devices in it (cluster.PAIR,
    cluster.PAIR6)."""
    for machines in use(request, node_lab):
        yield machines[0]


@pytest.fixture
def faulty(request, faulty_lab):
    """One machine like that of `node`, with devices that fail on request (faulty_device.py)."""
    for machines in use(request, faulty_lab):
        yield machines[0]


@pytest.fixture
def slow_node(node):
    """The machine of `node`, with a delay of packets between its two devices."""
    netdevs = ("rdsv0", "rdsv1")
    slow_down(*((node, x) for x in netdevs), delay="50ms")
    yield node
    for netdev in netdevs:
        node.run(f"tc qdisc del dev {netdev} root")


@pytest.fixture
def load(node):
    """Loads the module with parameters. At the end it loads the module with the defaults."""
    yield node.forget
    node.stop_all()
    node.forget()


@pytest.fixture
def pair(request, pair_lab):
    """Two machines, a and b, joined by a wire, with RDS loaded. A second wire is down."""
    yield from use(request, pair_lab)


@pytest.fixture
def wires(pair, guest):
    """The two wires of `pair`, with RDMA devices on all ports."""
    made = Wires(pair, guest)
    made.set_up()
    yield made
    made.take_down()


@pytest.fixture
def tcp(pair):
    """Returns a function that gives both nodes addresses for TCP, the lower one to node `lower`."""
    for m in pair:
        start_tcp(m)
        m.run(f"ip link set {m.netdevs[TCP_WIRE]} up")

    def addresses(lower):
        network = 70 + lower
        found = [f"10.{network}.0.{1 if index == lower else 2}" for index in range(2)]
        for m, host in zip(pair, found):
            m.run(f"ip addr replace {host}/24 dev {m.netdevs[TCP_WIRE]}")
        return found

    yield addresses
    for m in pair:
        m.stop_all()
        if m.impl == "rust":
            m.forget()
        m.run(f"ip addr flush dev {m.netdevs[TCP_WIRE]} && ip link set {m.netdevs[TCP_WIRE]} down")


@pytest.fixture
def patient(pair):
    """Nodes whose devices retry more than once, because wires as busy as these lose some
    packets."""
    for m in pair:
        m.forget("rds_ib_retry_count=7")
    yield pair
    for m in pair:
        # Operations keep the sockets of a program that has exited until they are done.
        m.run("until grep -qx 0 /sys/module/rds_rust/refcnt; do sleep 0.1; done")
        m.forget()


@pytest.fixture(scope="session")
def guest():
    """Folder of the programs that run in guests."""
    return Path(__file__).with_name("guest")


@pytest.fixture(scope="session")
def tools(request):
    return request.config.getoption("tools")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    cluster.Machine.booted.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        # A failed teardown after a failed test is expected.
        at_first = not item.stash.get(FAILED, False)
        item.stash[FAILED] = True
        machines, marks = item.stash.get(MACHINES, ([], []))
        for m, start in zip(machines, marks):
            report.sections.append((f"kernel log of node {m.name} ({m.impl})", shown(m, start)))
        # A report of a kernel and the death of a machine are defects even if a repetition passes.
        # Machines that a test boots itself may be dead, because the test ends them.
        own = [m for m in cluster.Machine.booted if m not in machines]
        report.final = (bool(item.get_closest_marker("race")) or at_first and call.when == "teardown"
                        or call.excinfo.errisinstance(Defect)
                        or any(not m.alive() or m.complaints(start) for m, start in zip(machines, marks))
                        or any(m.complaints() for m in own))
        if not report.final:
            report.signature = signature(call.excinfo, machines)
    elif report.skipped and hasattr(report, "wasxfail"):
        # The test has failed as expected. Its leftovers must not affect other tests.
        for m in item.stash.get(MACHINES, ([], []))[0]:
            m.spent = True
    return report


def shown(machine, start):
    """Returns all reports in the log of a machine, with symbols, and the end of the log."""
    lines = machine.log(start)
    found = [machine.with_symbols(x) for x in klog.reports(lines)]
    return "\n\n".join([*found, "\n".join(lines[-LOG_LINES:])])


def signature(excinfo, machines):
    """Returns the name of the environment failure that the harness detects, if any."""
    if excinfo.errisinstance(Environment):
        return excinfo.typename
    return "GsiFailed" if any(m.cm_failed() for m in machines) else None
