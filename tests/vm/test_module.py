# SPDX-License-Identifier: GPL-2.0
"""Loading and unloading of rds_rust.ko."""

import re
from pathlib import Path

import pytest
from probes import Probes
from rdsvm.cluster import PAIR, must
from rdsvm.node import Defect
from traffic import exchange, ping

pytestmark = pytest.mark.impls("rust")

TOP = Path(__file__).resolve().parents[2]
TRACES = ("cat /proc/net/protocols | grep -w RDS; ls -d /proc/sys/net/rds; "
          "cat /proc/slabinfo | grep -o '^rds[^ ]*'; rdma resource; true")


@pytest.mark.kept
@pytest.mark.smoke
def test_unload_is_refused_while_a_socket_is_open(node, guest):
    for arguments in ([], ["127.0.0.1"], [PAIR[0]]):
        holder = node.start(["python3", guest / "hold.py", *arguments])
        holder.expect("open")
        refused = node.unload()
        assert refused.status != 0 and "in use" in refused.err, str(refused)
        holder.finish()
    must(node.unload())
    must(node.load())


@pytest.mark.kept
@pytest.mark.smoke
@pytest.mark.on_siw("release")
def test_unload_leaves_nothing(node, tools):
    must(node.unload())
    before = node.run(TRACES).out
    must(node.load())
    assert node.run(TRACES).out != before, "the traces of a loaded module were not found"
    exchange(tools, (node, PAIR[0]), (node, PAIR[1]), count=50)
    exchange(tools, (node, "127.0.0.1"), (node, "127.0.0.1"), count=50)
    must(node.unload())
    assert node.run(TRACES).out == before
    must(node.load())


@pytest.mark.parametrize("modules, told", (
    (["rds"], "AF_RDS is registered already: unload C RDS"),
    (["rds_rdma", "rds"], "CM port 18634 is in use: unload C RDS"),
    (["rds_tcp", "rds"], "AF_RDS is registered already: unload C RDS"),
), ids=("core", "rdma", "tcp"))
def test_load_beside_c_rds_is_refused(modules, told, node):
    must(node.unload())
    node.run(["modprobe", modules[0]])
    start = node.mark("loading rds_rust beside C RDS")
    refused = node.load()
    node.run(["rmmod", *modules])
    must(node.load())
    assert refused.status != 0, str(refused)
    node.mark("loaded after C RDS")
    reason = [x for x in node.log(start) if f"rds_rust: {told}" in x]
    assert reason, "the log does not say why:\n" + "\n".join(node.log(start))


def test_c_rds_beside_it_is_refused(node, tools):
    assert node.run(["modprobe", "rds"], check=False).status != 0
    ping(tools, node, "127.0.0.1")


@pytest.mark.flavors("release")
@pytest.mark.kinds("rxe")
def test_memory_that_stays_is_noticed(node, monkeypatch):
    """The harness compares the memory of the Rust code with that before the load, byte for byte."""
    node.allocated = {x: size - 1 for x, size in node.allocated.items()}
    monkeypatch.setattr(node, "freed_seconds", 10)
    with pytest.raises(Defect, match="rust_helper_krealloc_node_align.: 1"):
        node.unload()
    must(node.load())


# Only the debug kernel finds leaks: in this test, or later with those of all other tests.
@pytest.mark.flavors("debug")
@pytest.mark.dma("translated", "strict")
@pytest.mark.parametrize("times", (2, pytest.param(50, marks=pytest.mark.long)))
def test_cycles(node, tools, guest, times):
    assert node.finds_leaks
    for i in range(times):
        if i % 10 == 0:
            ping(tools, node, "127.0.0.1")
            ping(tools, node, PAIR[1], PAIR[0])
            # This leaves some regions for later use.
            node.run(["python3", guest / "operate.py", int(node.kind == "rxe"), "cookies"])
        must(node.unload())
        must(node.load())
    leaks = node.scan_leaks() if times > 10 else ""
    assert not leaks, leaks


def test_words_of_c_rds(node, tools):
    """Programs that look for RDS find the texts of C RDS."""
    mark = node.mark("unloading")
    must(node.unload())
    node.wait_log("rds_rust: Unregistered RDS/infiniband transport", mark)
    must(node.load())
    ping(tools, node, PAIR[1], PAIR[0])
    for end in "Active", "Passive":
        node.wait_log(f"RDS/IB: {end} conn connected", mark)
    log = "\n".join(node.log(mark))
    assert "rds_rust: Registered RDS/infiniband transport" in log
    assert re.search(r"RDS/IB: \S+: added$", log, re.M), log
    ends = rf"::ffff:{PAIR[0]},::ffff:{PAIR[1]},0"
    assert re.search(rf"RDS/IB: Active conn connected <{ends}> version 4.1(, flow control)?, fragments", log), log
    assert "RDS/IB: Passive conn connected <" in log, log
    assert node.run("cat /sys/module/rds_rust/version").out.strip() == "4.0"
    (line,) = node.run("grep '^RDS ' /proc/net/protocols").out.splitlines()
    assert line.split()[2] == "0", line
    with_three = "import socket; s = [socket.socket(socket.AF_RDS, socket.SOCK_SEQPACKET) for _ in range(3)]; " \
                 "print(open('/proc/net/protocols').read())"
    (line,) = re.findall("^RDS .*", node.run(["python3", "-c", with_three]).out, re.M)
    assert line.split()[2] == "3", line


PARAMETERS = {"max_frag": 8192, "pool_limit_mib": 0, "max_conns": 65536, "max_conns_per_peer": 1024,
              "idle_secs": 600, "rds_ib_retry_count": 1, "tcp": 0}


def parameters(node):
    """Returns the parameters in sysfs: {name: (mode, value)}."""
    lines = node.run("cd /sys/module/rds_rust/parameters && for x in *; do "
                     "echo $x $(stat -c %a $x) $(cat $x); done").out.splitlines()
    return {name: (mode, int(value)) for name, mode, value in map(str.split, lines)}


@pytest.mark.long
def test_parameters(node, load):
    """The parameters are readable and have the values given at load time."""
    assert parameters(node) == {name: ("444", value) for name, value in PARAMETERS.items()}
    told = node.run(["modinfo", "-F", "parm", node.module]).out.splitlines()
    assert {x.partition(":")[0] for x in told} == set(PARAMETERS)
    other = {"max_frag": 4096, "pool_limit_mib": 64, "max_conns": 1000, "max_conns_per_peer": 100, "idle_secs": 60,
             "rds_ib_retry_count": 7, "tcp": 1}
    load(*(f"{name}={value}" for name, value in other.items()))
    assert parameters(node) == {name: ("444", value) for name, value in other.items()}


def test_parameters_that_are_not_taken(node):
    """An invalid number is refused. Parameters that only C RDS has are reported and ignored."""
    must(node.unload())
    mark = node.mark("loading with parameters that are wrong, or C's")
    assert node.load(options=["max_conns=many"]).status != 0
    node.wait_log("rds_rust: .many. invalid for parameter .max_conns.", mark)
    must(node.load(options=["rds_ib_mr_1m_pool_size=10", "send_batch_count=10"]))
    node.wait_log("rds_rust: unknown parameter 'rds_ib_mr_1m_pool_size' ignored", mark)
    node.forget()


@pytest.mark.long
@pytest.mark.parametrize("said, meant", ((5, 5), (9, 7)))
def test_retries(said, meant, node, tools, load):
    """The connecting side chooses the CM's retry count, for both ends."""
    load(f"rds_ib_retry_count={said}")
    # An offset in struct rdma_conn_param.
    with Probes(node, "rdma_connect_locked retries=+12(%si):u8") as probes:
        ping(tools, node, PAIR[1], PAIR[0])
        calls = probes.calls()
    assert calls == [("rdma_connect_locked", f"retries={meant}")]


def test_version(node, tools):
    """modinfo, the kernel log and the tools show the same version."""
    release = (TOP / "VERSION").read_text().strip()
    assert node.run(["modinfo", "-F", "release", node.module]).out.strip() == release
    versions = [tools / "rds-info", "--version"]
    assert node.run(versions).out == f"rds-info {release}\nrds_rust {release}\n"
    must(node.unload())
    assert node.run(versions).out == f"rds-info {release}\nno RDS module is loaded\n"
    mark = node.mark("loading rds_rust for its version")
    must(node.load())
    node.wait_log(f"rds_rust: version {re.escape(release)}$", mark)


def test_notes(node):
    """The ELF notes of the file appear in sysfs for the loaded module."""
    found = re.findall(r"^Displaying notes found in: \.note\.(rds\S*)\n.*\n +(\S+) ", node.run(
        ["readelf", "-nW", node.module]).out, re.M)
    assert "rds.release" in [name for name, _ in found] and [x for x in found if x[0].startswith("rds.feature-")]
    assert all(name == owner for name, owner in found), found
    folder = "/sys/module/rds_rust/notes"
    assert {f".note.{name}" for name, _ in found} <= set(node.run(["ls", "-A", folder]).out.split())
    release = (TOP / "VERSION").read_text().strip()
    for name, _ in found:
        text = node.run(["tail", "-c", f"+{13 + (len(name) + 4) // 4 * 4}", f"{folder}/.note.{name}"]).out.rstrip("\0")
        assert re.fullmatch(r"\d+\.\d+\.\d+", text), (name, text)
        assert name != "rds.release" or text == release


def test_aliases(node):
    """The aliases are the names of C RDS, without net-pf-21. A user must not load the module by
    opening a socket."""
    aliases = node.run(["modinfo", "-F", "alias", node.module]).out.split()
    assert sorted(aliases) == ["rds", "rds_rdma"]
