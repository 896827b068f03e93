# SPDX-License-Identifier: GPL-2.0
"""make bench works: every row has a number for both implementations. Not: which number."""

import json
import re

import bench
import pytest

pytestmark = pytest.mark.flavors("release")


def test_every_row_has_a_number(tmp_path, capsys):
    out, profiles = tmp_path / "out.json", tmp_path / "profiles"
    status = bench.main(["--quick", f"--out={out}", f"--profile={profiles}"])
    shown = capsys.readouterr()
    assert status == 0, shown.err
    rows = json.loads(out.read_text())["rows"]
    assert [x["row"] for x in rows] == [x.name for x in bench.ROWS]
    for row in rows:
        assert row["c"]["p50"] > 0 and row["rust"]["p50"] > 0 and row["ratio"] > 0, row
        assert row["what"] in shown.out
        assert row["goal"] is None or row["met"] in (True, False)
        for impl, module in (("c", "rds"), ("rust", "rds_rust")):
            if row[impl]["marked"]:
                check(row, impl, module, (profiles / f"{row['row']}.{impl}.txt").read_text())


def check(row, impl, module, profile):
    """The profile has as many instructions as the clock of the machine counted, or so: the loop of
    the measuring program is in it, too."""
    parts = {name: float(n) for n, name in
             re.findall(r"^ *([\d.]+) +[\d.]+%  (.*)$", profile.split("\n\n")[0], re.M)}
    total = next(n for name, n in parts.items() if name.startswith("all, "))
    if row["row"].startswith(("bind-", "loop-", "rxe-")):
        assert parts[module] > 0
        assert row[impl]["mean"] <= total <= row[impl]["mean"] * 1.02 + 500
    assert abs(sum(parts.values()) - 2 * total) < 1
