# SPDX-License-Identifier: GPL-2.0
"""make bench STRICT=1 fails only if a row takes more than the committed counts have."""

import json
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

import bench  # noqa: E402


class Run:
    """A substitute for a machine: each row takes the value in `took`.

    Each fourth sample takes twice as much."""

    took, kernel = {}, "7.3.4"

    def __init__(self, *_):
        self.reports = {}

    def measure(self):
        self.reports = {name: {"row": name, "p50": p50, "mean": p50 * 1.25, "unit": "instructions"}
                        for name, p50 in self.took.items()}


def run(monkeypatch, took, *options):
    monkeypatch.setattr(Run, "took", took)
    monkeypatch.setattr(bench, "Run", Run)
    monkeypatch.setattr(bench, "check", lambda _, args: setattr(args, "impls", args.impls.split(",")))
    return bench.main(["--impls=rust", *map(str, options)])


@pytest.mark.parametrize("took, status, said", (
    ({"bind-fresh": 105}, 0, ""), ({"bind-fresh": 106}, 1, "bind-fresh: 106, 6.0 % more than 100"),
    ({"close": 1}, 1, "close: no count is committed"), ({"bind-fresh": 1, "udp-bind": 9999}, 0, "")))
def test_growth(took, status, said, tmp_path, monkeypatch, capsys):
    counts, then = tmp_path / "counts.json", {"bind-fresh": 100, "udp-bind": 100}
    assert run(monkeypatch, then, f"--counts={counts}") == 0
    # Costs of the kernel without RDS are no concern of this project.
    assert json.loads(counts.read_text()) == {"kernel": "7.3.4", "counts": {"bind-fresh": 100}}
    capsys.readouterr()
    assert run(monkeypatch, took, f"--base={counts}", "--strict") == status
    err = capsys.readouterr().err
    assert said in err and ("error" in err) == bool(said)
    assert run(monkeypatch, took, f"--base={counts}") == 0


def test_means(tmp_path, monkeypatch):
    """The mean counts in both files if the median is random."""
    took, out, counts = {"region-64k": 100, "close": 100}, tmp_path / "out.json", tmp_path / "counts.json"
    assert run(monkeypatch, took, f"--out={out}", f"--counts={counts}") == 0
    assert bench.read_base(out) == bench.read_base(counts) == ({"region-64k": 125, "close": 100}, "7.3.4")


def test_another_kernel(tmp_path, monkeypatch, capsys):
    counts = tmp_path / "counts.json"
    assert run(monkeypatch, {"close": 100}, f"--counts={counts}") == 0
    assert run(monkeypatch, {"close": 100}, f"--base={counts}") == 0
    assert "Linux" not in capsys.readouterr().out
    monkeypatch.setattr(Run, "kernel", "7.2.12")
    assert run(monkeypatch, {"close": 100}, f"--base={counts}") == 0
    assert "Different kernels: Linux 7.2.12 now, Linux 7.3.4 in the compared file." in capsys.readouterr().out


def test_strict_needs_counts(capsys):
    with pytest.raises(SystemExit):
        bench.main(["--strict"])
    assert "--strict needs --base" in capsys.readouterr().err


def test_committed_counts():
    """Each row has a committed count, so that a new row is not forgotten."""
    committed, kernel = bench.read_base(TOP / "tests/vm/counts.json")
    assert kernel
    floors = {x.floor for x in bench.ROWS} | {"empty-call"}
    assert set(committed) == {
        x.name for x in bench.ROWS if "rust" in x.impls and x.name not in floors and not x.varies}
