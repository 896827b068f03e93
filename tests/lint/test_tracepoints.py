# SPDX-License-Identifier: GPL-2.0
"""The events of bindings/rds_trace.h, their names in Rust and in the documentation, and the scripts
that use them."""

import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
HEADER = (TOP / "bindings/rds_trace.h").read_text()
SCRIPTS = sorted((TOP / "tools/bpftrace").iterdir())
CONN = ("laddr", "faddr", "tos")


def fields(body):
    """Returns the fields of an event or class."""
    entry = re.search(r"TP_STRUCT__entry\((.*?)\n\t\),", body, re.S)[1]
    found = re.findall(r"__(?:field|array)\(\w+, (\w+)", entry) + re.findall(r"__string_len\((\w+),", entry)
    return {*found, *(CONN if "RDS_TRACE_CONN_ENTRY" in entry else ())}


def events(header=HEADER):
    """Returns the fields of each event."""
    found, classes, makers = {}, {}, {}
    for kind, name, body in re.findall(r"^(TRACE_EVENT|DECLARE_EVENT_CLASS)\((\w+),(.*?)^\);", header, re.S | re.M):
        (found if kind == "TRACE_EVENT" else classes)[name] = fields(body)
    for maker, name in re.findall(r"^#define (\w+)\(name\) \\\n\tDEFINE_EVENT\((\w+), name,", header, re.M):
        makers[maker] = classes[name]
    for name, event in re.findall(r"^DEFINE_EVENT(?:_PRINT)?\((\w+), (\w+),", header, re.M):
        found[event] = classes[name]
    for maker, event in re.findall(r"^(\w+)\((rds_\w+)\);", header, re.M):
        found[event] = makers[maker]
    return found


def table(macro):
    """Returns a table of names of the header."""
    text = re.search(rf"^#define {macro}\t(.*?[^\\])\n", HEADER, re.S | re.M)[1]
    return {int(number): name for number, name in re.findall(r'\{ (\d+), "(\w+)" \}', text)}


def uses(script):
    """Yields event and field for each access in a script, and the event alone for each probe."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", script, flags=re.S)
    # Probes, and the filters and blocks that follow them.
    for probes, body in re.findall(r"((?:tracepoint:[\w:]+,?\s*)+)(.*?)(?=^tracepoint|^interval|^END|^BEGIN|\Z)", code,
                                   re.S | re.M):
        for event in re.findall(r"tracepoint:rds:(\w+)", probes):
            yield event, None
            yield from ((event, field) for field in re.findall(r"args->(\w+)", body))


def test_events():
    """Each event has a key in Rust, and a row in the documentation with its fields."""
    found = events()
    assert len(found) == 18, sorted(found)
    keys = re.findall(r"=> __tracepoint_(\w+),", (TOP / "bindings/tracepoints.rs").read_text())
    assert sorted(keys) == sorted(found)
    page = (TOP / "Documentation/abi.md").read_text().partition("\n## Tracepoints\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(rds_\w+)` \| (.*?) \|", page, re.M))
    assert sorted(rows) == sorted(found)
    for event, names in found.items():
        missing = [x for x in names - set(CONN) if f"`{x}`" not in page]
        assert not missing, (event, missing)


def test_names():
    transports = (TOP / "socket/transport_id.rs").read_text()
    assert set(table("RDS_TRACE_TRANSPORTS").values()) == set(re.findall(r'=> "(\w+)",', transports))
    verbs = re.search(r"enum TracedVerb \{(.*?)\}", (TOP / "trace.rs").read_text(), re.S)[1]
    assert table("RDS_TRACE_OPERATIONS") == {
        int(number): re.sub(r"(?<=.)([A-Z])", r"_\1", name).lower() for name, number in
        re.findall(r"(\w+) = (\d+),", verbs)}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda it: it.stem)
def test_scripts(path):
    """Scripts use events and fields that exist, say how they are run, and are documented and
    installed."""
    text, known = path.read_text(), events()
    assert path.stat().st_mode & 0o111 and text.startswith("#!/usr/bin/env bpftrace\n// SPDX-License-Identifier: GPL-2.0\n/*\n")
    found = set(uses(text))
    assert found and not [x for x, field in found if x not in known or field not in {None, *known[x]}], found
    # Nothing else, which an old kernel or bpftrace may lack.
    assert not re.search(r"\b(kprobe|kretprobe|fentry|kfunc|uprobe|rawtracepoint)\b|^#include", text, re.M)
    header = text.partition("*/")[0]
    assert f" * {path.name}" in header and f'Run "bpftrace {path.name}" as root' in header
    assert f"| `{path.name}` |" in (TOP / "Documentation/operations.md").read_text()
    extras = re.search(r"tools/bpftrace/rds-\{(.*?)\}\.bt", (TOP / "scripts/install.sh").read_text())[1]
    assert path.stem.removeprefix("rds-") in extras.split(",")
    assert max(map(len, text.expandtabs(8).splitlines())) <= 100


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda it: it.stem)
def test_full_maps_are_noticed(path):
    """A full map drops what is put into it. Scripts with a key for each message or operation count
    that, and say how a map is made larger."""
    text = path.read_text()
    stores = re.findall(r"^\t(@\w+\[[^=\n]*args->(?:sequence|operation)\]) = nsecs;\n(.*?\n\t})", text, re.S | re.M)
    # The other key is a port.
    assert len(stores) + text.count("@since[ntop(args->addr), args->port] = nsecs;") == text.count("] = nsecs;")
    for key, behind in stores:
        assert behind == f"\tif ({key} == 0) {{\n\t\t@unmeasured = count();\n\t}}", key
    header = text.partition("*/")[0]
    assert all((x in header) == bool(stores) for x in ("@unmeasured", "BPFTRACE_MAP_KEYS_MAX=", "BPFTRACE_MAX_MAP_KEYS"))


def test_bad_scripts_are_noticed():
    """Unknown events and fields are, also in a filter and behind several probes."""
    script = "tracepoint:rds:rds_drop,\ntracepoint:rds:rds_error\n/args->tos/\n{\n\t@ = args->what;\n}\n"
    assert set(uses(script)) == {(event, field) for event in ("rds_drop", "rds_error") for field in (None, "tos", "what")}
    assert "what" not in events()["rds_drop"] and "what" in events()["rds_error"]
