# SPDX-License-Identifier: GPL-2.0
"""The words of rds-info about counters, and the examples for programs that monitor nodes."""

import json
import os
import re
import runpy
import subprocess
import sys
import types
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
EXAMPLES = TOP / "examples/monitoring"
STATS = (TOP / "stats/mod.rs").read_text()
TCP = (TOP / "tcp_transport/counters.rs").read_text()
SOURCES = {x: (TOP / f"tools/rds-info/src/{x}.rs").read_text() for x in ("counters", "metrics", "report")}
# {name: (meaning, text)} of rds-info.
WORDS = {name: (meaning, text) for name, meaning, text in re.findall(
    r'^    \("(\w+)", Meaning::(\w+), "([^"]*)"\),$', SOURCES["counters"], re.M)}


def module():
    """Returns {name: comment} of all counters of the module."""
    found, comment = {}, []
    for text in (STATS, TCP):
        for line in text[text.index("\ncounters! {"):].split("\n}\n")[0].splitlines():
            if line.strip().startswith("///"):
                comment.append(line.strip()[3:].strip())
            elif counter := re.match(r'    \w+ => "(\w+)",', line):
                found[counter[1]], comment = " ".join(comment), []
    for path, pattern in (("recv_pool/counters.rs", r'"(ib_pool_\w+)"'), ("ib_transport/transport.rs", r'each\("(\w+)"')):
        found |= dict.fromkeys(re.findall(pattern, (TOP / path).read_text()), "")
    return found


def test_each_counter_is_explained():
    assert len(WORDS) > 100 and sorted(WORDS) == sorted(module())


@pytest.mark.parametrize("name, comment", [(x, y) for x, y in module().items() if y])
def test_words_are_those_of_the_module(name, comment):
    assert WORDS[name][1] == re.sub(r" *\[`FRAG_BYTES`\]\. Computed on read\.$", " 16 KiB.", comment).removesuffix(
        " Computed on read.")


def test_drops():
    """Each counter with that word in its name is a drop, except the one of C for acknowledged
    messages."""
    drops = {name for name, (meaning, _) in WORDS.items() if meaning == "Drop"}
    assert {x for x in WORDS if "_drop" in x} - {"send_drop_acked"} <= drops
    assert not [x for x in drops if re.search("Only C RDS", WORDS[x][1])]


def test_gauges():
    """The gauges are those of operations.md."""
    gauges = {name for name, (meaning, _) in WORDS.items() if meaning == "Gauge"}
    page = (TOP / "Documentation/operations.md").read_text()
    listed = re.search(r"Counters only grow, except (.*?), which show", page, re.S)[1]
    assert gauges == set(re.findall(r"`(\w+)`", listed))


def metrics():
    """Returns the names of all metrics of rds-info --prometheus."""
    renamed = dict(re.findall(r'^    \("(\w+)", "(\w+)"\),$', SOURCES["metrics"], re.M))
    assert renamed
    counters = {f"rds_{renamed.get(name, name)}{'' if meaning == 'Gauge' else '_total'}"
                for name, (meaning, _) in WORDS.items()}
    code = SOURCES["metrics"].split("#[cfg(test)]")[0]
    queues = re.findall(r'metrics\.queue\("(\w+)"', code)
    totals = re.findall(r'metrics\.messages\("(\w+)"', code)
    assert queues and totals
    return counters | set(re.findall(r'"(rds_\w+)"', code)) | {
        f"rds_connection_{x}_messages_total" for x in totals} | {
        f"rds_connection_{x}_{unit}" for x in queues for unit in ("messages", "bytes")}


def test_alert_rules():
    """The file is YAML in the form of Prometheus, with metrics that exist."""
    program = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))"
    text = (EXAMPLES / "rds.rules.yml").read_text()
    done = subprocess.run(["/usr/bin/python3", "-c", program], input=text, capture_output=True, text=True, check=True)
    (group,) = json.loads(done.stdout)["groups"]
    assert len({x["alert"] for x in group["rules"]}) == len(group["rules"]) > 5
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule
        assert rule["labels"]["severity"] in ("warning", "critical") and rule["annotations"]["summary"]
        named = set(re.findall(r"\brds_\w+", rule["expr"]))
        assert named <= metrics(), rule["alert"]
        assert named or "node_textfile_mtime_seconds" in rule["expr"]
        assert rule["expr"].count("(") == rule["expr"].count(")")
    assert len([x for x in group["rules"] if "rds_" in x["expr"]]) == len(group["rules"]) - 1


@pytest.mark.parametrize("status", (0, 1))
def test_unit_writes_whole_files(status, tmp_path):
    """The command of the unit replaces the file only if rds-info has succeeded."""
    line = re.search(r"^ExecStart=/bin/sh -c '(.*)'$", (EXAMPLES / "rds-metrics.service").read_text(), re.M)[1]
    assert "rds-info --prometheus" in line
    program, out = tmp_path / "rds-info", tmp_path / "rds.prom"
    program.write_text(f"#!/bin/sh\necho $*\nexit {status}\n")
    program.chmod(0o755)
    out.write_text("old\n")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "METRICS": str(out)}
    assert subprocess.run(["/bin/sh", "-c", line], env=env).returncode == status
    assert out.read_text() == ("old\n" if status else "--prometheus\n")


class Plugin:
    """Records what a plugin of sos collects."""

    def __init__(self):
        self.files, self.commands = [], []

    def add_copy_spec(self, specs):
        self.files += specs

    def add_cmd_output(self, commands, pred=None):
        self.commands += commands


def test_sos_plugin(monkeypatch):
    """The plugin collects what rds-info --report does."""
    names = types.SimpleNamespace(Plugin=Plugin, IndependentPlugin=type("IndependentPlugin", (), {}),
                                  SoSPredicate=lambda owner, kmods: kmods)
    for name in ("sos", "sos.report", "sos.report.plugins"):
        monkeypatch.setitem(sys.modules, name, names)
    plugin = runpy.run_path(EXAMPLES / "sos_rds.py")["Rds"]()
    plugin.setup()
    report = SOURCES["report"].split("#[cfg(test)]")[0]
    modules = re.findall(r'"(\w+)"', re.search(r"const MODULES.*?= \[(.*?)\];", report, re.S)[1])
    assert modules == list(plugin.kernel_mods)
    rdma = re.findall(r"&\[(.*?)\]", re.search(r"const RDMA: .*? = \[(.*?)\n\];", report, re.S)[1])
    assert len(rdma) == 5
    calls = [" ".join(["rdma", *re.findall(r'"(\w+)"', x)]) for x in rdma]
    assert [x for x in plugin.commands if x.startswith("rdma")] == calls
    for name in re.findall(r'"(\w+)"', re.search(r"for name in \[(.*?)\]", report)[1]) + ["parameters", "notes"]:
        assert {f"/sys/module/{x}/{name}" for x in modules} <= set(plugin.files)
    assert {"/proc/sys/net/rds", "/sys/kernel/debug/rds"} <= set(plugin.files)
    assert {"rds-info -av", "rds-info -a --json", "rds-info --holders", "rds-info --version"} <= set(plugin.commands)
