# SPDX-License-Identifier: GPL-2.0
"""The first program of Documentation/programming.md."""

import re
import subprocess
import textwrap

from rdsvm.cluster import TOP
from traffic import counters

PROGRAM = re.compile(r"(?:^(?:    .*)?\n)+", re.M)
MOST_LINES = 20


def test_the_first_program(node, guest):
    """The first program is short, compiles without a warning, and works."""
    blocks = [textwrap.dedent(x).strip() + "\n"
              for x in PROGRAM.findall((TOP / "Documentation/programming.md").read_text())]
    (text,) = [x for x in blocks if x.startswith("#include")]
    assert len(text.splitlines()) <= MOST_LINES
    program = TOP / "build/documents/hello"
    program.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", "-x", "c", "-", "-o", program], input=text, text=True,
                   check=True)
    before = counters(node, guest)["recv_delivered"]
    assert node.run([program]).out == "hello\n"
    assert counters(node, guest)["recv_delivered"] == before + 1
