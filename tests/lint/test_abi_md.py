# SPDX-License-Identifier: GPL-2.0
"""Documentation/abi.md lists each answer that differs from that of C RDS.

RDS_WRITE_TABLES=1 writes the list again."""

import os
import re
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "scripts"), str(TOP / "tests/vm")]

import differ  # noqa: E402
import test_abi  # noqa: E402
import test_abi_rdma  # noqa: E402
import test_info  # noqa: E402

PAGE = TOP / "Documentation/abi.md"
BEGIN, END = "<!-- answers: begin -->\n\n", "\n<!-- answers: end -->"
# Failures of a teardown, which end nothing that is up.
NO_REASONS = {"flush", "drain"}
HEAD = ["| Case | Answer | C RDS | Here | Why |", "|---|---|---|---|---|"]


def test_each_answer_that_differs_is_listed():
    # Most answers do not depend on the location of the two ends.
    answers = dict.fromkeys(x for where in test_abi.EXPECTED.values() for x in differ.table(where))
    rows = [*HEAD, *answers, *differ.table(test_abi_rdma.EXPECTED), *differ.table(test_info.EXPECTED)]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    found, _, behind = rest.partition(END)
    if os.environ.get("RDS_WRITE_TABLES"):
        PAGE.write_text("".join([before, BEGIN, "\n".join(rows), "\n", END, behind]))
    else:
        assert found.splitlines() == rows, "Documentation/abi.md is out of date"


def test_each_failure_has_a_reason():
    """Each text with which a connection notes a failure is in proto/path_history.rs, and in the
    table of reasons in abi.md."""
    source = "".join(x.read_text() for folder in ("conn", "ib_transport", "tcp_transport", "kapi/rdma")
                     for x in sorted((TOP / folder).rglob("*.rs")))
    noted = set(re.findall(r'\b(?:note_error|note_failure|give_up\w*)\(\s*"([^"]+)"', source))
    noted |= set(re.findall(r'=> Some\(\(\s*"([^"]+)",', source))
    assert {"reset", "no answer", "post", "receive memory"} <= noted
    function = (TOP / "proto/path_history.rs").read_text().partition("fn of_failure(")[2].partition("fn of_event(")[0]
    known = set(re.findall(r'"([^"]+)"', function))
    assert noted - NO_REASONS <= known, "no reason for the table of paths"
    assert not NO_REASONS & known
    table = PAGE.read_text().partition("\n### Paths\n")[2].partition("\n### ")[0]
    assert known <= set(re.findall(r"`([^`]+)`", table)), "abi.md has not all of them"


def test_single_answers():
    assert list(differ.single({"a": [1, "x"], "b": 2}, {"a": [1, "y"], "b": 2})) == [(("a", "2"), "x", "y")]
    assert list(differ.single([1], [1, 2])) == [((), [1], [1, 2])]
    assert list(differ.single({"a": 1}, {"b": 1})) == [((), {"a": 1}, {"b": 1})]
    assert not list(differ.single({"a": (1, None)}, {"a": [1, None]}))
