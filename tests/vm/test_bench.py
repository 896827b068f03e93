# SPDX-License-Identifier: GPL-2.0
"""make bench, make bench-pool, make bench-scaling and make bench-sharing print a number in each row.

The numbers themselves are not checked.
"""

import json
import re

import bench
import bench_pool
import bench_scaling
import bench_sharing
import pytest

pytestmark = pytest.mark.flavors("release")


@pytest.mark.long("release")
def test_every_row_has_a_number(tmp_path, capsys):
    out, profiles = tmp_path / "out.json", tmp_path / "profiles"
    status = bench.main(["--quick", f"--out={out}", f"--profile={profiles}"])
    shown = capsys.readouterr()
    assert status == 0, shown.err
    rows = json.loads(out.read_text())["rows"]
    assert [x["row"] for x in rows] == [x.name for x in bench.ROWS]
    for row, asked in zip(rows, bench.ROWS, strict=True):
        assert all(row[impl]["p50"] > 0 for impl in asked.impls), row
        assert len(asked.impls) < 2 or row["ratio"] > 0, row
        assert row["what"] in shown.out
        assert row["goal"] is None or row["met"] in (True, False)
        for impl, module in (("c", "rds"), ("rust", "rds_rust")):
            if impl in asked.impls and row[impl]["marked"]:
                check(row, impl, module, (profiles / f"{row['row']}.{impl}.txt").read_text())


@pytest.mark.long("release")
def test_mappings_have_numbers(tmp_path, capsys):
    out = tmp_path / "out.json"
    status = bench_pool.main(["--quick", f"--out={out}"])
    shown = capsys.readouterr()
    assert status == 0, shown.err
    rows = json.loads(out.read_text())["rows"]
    assert [(x["ring"], x["connections"], x["way"]) for x in rows] == [
        (ring, count, way) for ring in bench_pool.RINGS for count in (1, 10)
        for way in bench_pool.WAYS]
    for row in rows:
        assert min(row[x] for x in ("mappings", "ranges", "pages", "setup_each", "refill")) > 0, row
    assert all(f"| {what} " in shown.out for what in bench_pool.WAYS.values())


@pytest.mark.long("release")
def test_connections_have_numbers(tmp_path, capsys):
    out = tmp_path / "out.json"
    status = bench_scaling.main(["--quick", f"--out={out}"])
    shown = capsys.readouterr()
    assert status == 0, shown.err
    rows = json.loads(out.read_text())["rows"]
    assert [x["row"] for x in rows] == [x.name for x in bench_scaling.ROWS]
    for row in rows:
        assert row["what"] in shown.out
        for impl in ("rust",) if row["row"] in ("pools", "storm-failed") else ("c", "rust"):
            numbers = row[impl]["connections"]
            assert list(numbers) == [str(x) for x in bench_scaling.QUICK], row
            # The latest shard may have had room for the new buffers.
            assert row["unit"] in ("KiB", "attempts") or min(numbers.values()) > 0, row


@pytest.mark.long("release")
def test_shared_lines_have_numbers(tmp_path, capsys):
    """Two senders to one peer share lines, and the table names their functions."""
    out = tmp_path / "out.json"
    status = bench_sharing.main(["--quick", f"--out={out}"])
    shown = capsys.readouterr()
    assert status == 0, shown.err
    rows = json.loads(out.read_text())["rows"]
    assert [x["row"] for x in rows] == [x.name for x in bench_sharing.ROWS]
    for row, asked in zip(rows, bench_sharing.ROWS, strict=True):
        assert row["what"] in shown.out
        for impl in asked.impls:
            counts = [row[impl][view]["shared"]["p50"] for view in ("own", "callees")]
            assert 0 <= counts[0] <= counts[1], row
    one_peer = rows[1]
    for impl, name in (("c", "rds_"), ("rust", ".rs:")):
        assert one_peer[impl]["own"]["written"]["p50"] > 0
        assert name in json.dumps(one_peer[impl]["lines"])


def check(row, impl, module, profile):
    """Checks that the profile has about as many instructions as the machine's clock counted. The
    profile includes the loop of the measuring program."""
    parts = {name: float(n) for n, name in
             re.findall(r"^ *([\d.]+) +[\d.]+%  (.*)$", profile.split("\n\n")[0], re.M)}
    total = next(n for name, n in parts.items() if name.startswith("all, "))
    if row["row"].startswith(("bind-", "loop-", "rxe-")):
        assert parts[module] > 0
        assert row[impl]["mean"] <= total <= row[impl]["mean"] * 1.02 + 500
    assert abs(sum(parts.values()) - 2 * total) < 1
