# SPDX-License-Identifier: GPL-2.0
"""make bench, make bench-pool, make bench-scaling and make bench-sharing print a number in each
row.

The numbers themselves are not checked, except those of shared cache lines, which are the same in
each run.
"""

import json
import re

import bench
import bench_pool
import bench_scaling
import bench_sharing
import pytest

pytestmark = pytest.mark.flavors("release")


@pytest.fixture
def measured(tmp_path, capsys):
    """Returns a function that runs a benchmark, and returns its rows and what it has printed."""
    def measure(benchmark, *options):
        out = tmp_path / "out.json"
        status = benchmark.main(["--quick", f"--out={out}", *options])
        shown = capsys.readouterr()
        assert status == 0, shown.err
        return json.loads(out.read_text())["rows"], shown.out

    return measure


@pytest.mark.long("release")
def test_every_row_has_a_number(measured, tmp_path):
    profiles = tmp_path / "profiles"
    rows, shown = measured(bench, f"--profile={profiles}")
    assert [x["row"] for x in rows] == [x.name for x in bench.ROWS]
    for row, asked in zip(rows, bench.ROWS, strict=True):
        assert all(row[impl]["p50"] > 0 for impl in asked.impls), row
        assert len(asked.impls) < 2 or row["ratio"] > 0, row
        assert row["what"] in shown
        assert row["goal"] is None or row["met"] in (True, False)
        for impl, module in (("c", "rds"), ("rust", "rds_rust")):
            if impl in asked.impls and row[impl]["marked"]:
                check(row, impl, module, (profiles / f"{row['row']}.{impl}.txt").read_text())


@pytest.mark.long("release")
@pytest.mark.parametrize("way", bench.DMA)
def test_messages_on_a_dma_device(way, measured):
    """The claim of the table in Documentation/recv-pool.md: less than C RDS takes, with each way to
    memory."""
    wanted = ["rxe-64k-rtt", "rxe-64"]
    rows, shown = measured(bench, f"--dma={way}", f"--rows={','.join(wanted)}")
    assert [x["row"] for x in rows] == wanted
    for row in rows:
        assert row["what"] in shown
        assert 0 < row["ratio"] < 1, row


@pytest.mark.long("release")
def test_mappings_have_numbers(measured):
    rows, shown = measured(bench_pool)
    assert [(x["ring"], x["connections"], x["way"]) for x in rows] == [
        (ring, count, way) for ring in bench_pool.RINGS for count in (1, 10)
        for way in bench_pool.WAYS]
    for row in rows:
        assert min(row[x] for x in ("mappings", "ranges", "pages", "setup_each", "refill")) > 0, row
    assert all(f"| {what} " in shown for what in bench_pool.WAYS.values())


@pytest.mark.long("release")
def test_connections_have_numbers(measured):
    rows, shown = measured(bench_scaling)
    assert [x["row"] for x in rows] == [x.name for x in bench_scaling.ROWS]
    for row in rows:
        assert row["what"] in shown
        for impl in ("rust",) if row["row"] in ("pools", "storm-failed") else ("c", "rust"):
            numbers = row[impl]["connections"]
            assert list(numbers) == [str(x) for x in bench_scaling.QUICK], row
            # The latest shard may have had room for the new buffers.
            assert row["unit"] in ("KiB", "attempts") or min(numbers.values()) > 0, row


@pytest.mark.long("release")
def test_shared_lines_have_numbers(measured):
    """Two senders to one peer share lines, and the table names their functions."""
    rows, shown = measured(bench_sharing)
    assert [x["row"] for x in rows] == [x.name for x in bench_sharing.ROWS]
    for row, asked in zip(rows, bench_sharing.ROWS, strict=True):
        assert row["what"] in shown
        for impl in asked.impls:
            counts = [row[impl][view]["shared"]["p50"] for view in ("own", "callees")]
            assert 0 <= counts[0] <= counts[1], row
    two_peers, one_peer = rows[:2]
    assert two_peers["rust"]["own"]["shared"]["max"] == 0, two_peers
    # 8, and one more if the ports of the two sockets have their places in the same line.
    assert one_peer["rust"]["own"]["written"]["max"] <= 9, one_peer
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
    # No tracepoint is on.
    assert not re.search(r"\b(rds_rust_trace|__traceiter_rds)_", profile), row["row"]
    assert abs(sum(parts.values()) - 2 * total) < 1
