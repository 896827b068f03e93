# SPDX-License-Identifier: GPL-2.0
"""make plot draws each row of a benchmark, and the pictures of the documentation are up to date."""

import copy
import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

import bench  # noqa: E402
import bench_scaling  # noqa: E402
import plot  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def report(row, value, unit="instructions"):
    return {"row": row, "unit": unit, "n": 3, "p50": value, "mean": value * 10, "min": value, "max": value}


def cost(row, what, c, rust, unit="instructions", floor=None):
    """Returns a row as make bench writes it."""
    c, rust = (x and report(row, x, unit) for x in (c, rust))
    return {"row": row, "what": what, "unit": unit, "c": c, "rust": rust, "ratio": None, "goal": None, "floor": floor,
            "met": None, "before": None}


def curve(row, what, unit="instructions", **impls):
    """Returns a row as make bench-scaling writes it."""
    return {"row": row, "what": what, "unit": unit, **{
        impl: {"connections": dict(zip(("1", "10", "1000"), values)), "growth": None} for impl, values in impls.items()}}


COSTS = [
    cost("udp-bind", "UDP bind()", 500, 510),
    cost("bind-fresh", "bind(), address without a connection", 1000, 250, floor="udp-bind"),
    cost("region-64k", "a registration <64 KiB> & its end", None, 54_000),
    cost("memory", "memory of an idle connection, KiB", 12_000, 600, unit="KiB"),
]
CURVES = [
    curve("bind", "bind()", c=(1100, 1100), rust=(700, 710, 720)),
    curve("storm-time", "set-up of all at once, ns until all are up", "nanoseconds", rust=(1e6, 1e7, 1e9)),
    curve("storm-failed", "attempts to connect that failed", "attempts", rust=(0, 0, 0)),
]


def draw(tmp_path, rows, suffix=".svg"):
    source, target = tmp_path / "results.json", tmp_path / f"picture{suffix}"
    source.write_text(json.dumps({"kernel": "7.3.4", "rows": rows}))
    assert plot.main([str(source), str(target)]) == 0
    return target


def texts(picture):
    return [x.text for x in ET.parse(picture).iter(f"{SVG}text")]


def places(picture, impl):
    """Returns (x, y) of each marker with the colour of an implementation, but for the legend's."""
    found = [(float(x.get("x")), float(x.get("y"))) for x in ET.parse(picture).iter(f"{SVG}use")
             if f"fill: {plot.STYLES[impl]['color']}" in (x.get("style") or "")]
    return sorted(found, key=lambda x: x[1])[1:]


def test_costs(tmp_path):
    """Each row has its name, its values from left to right, and the ratio. A floor is no row."""
    picture = draw(tmp_path, COSTS)
    seen = texts(picture)
    for row in COSTS[1:]:
        assert row["what"] in seen
    assert "UDP bind()" not in seen and "the kernel without RDS" in seen
    assert {"0.25", "0.05", "instructions of the guest", "KiB"} <= set(seen)
    c, rust = places(picture, "c"), places(picture, "rust")
    assert (len(c), len(rust)) == (2, 3)
    assert c[0][1] == rust[0][1] and c[0][0] > rust[0][0], "values grow to the right"
    assert rust[1][0] > c[0][0], "one scale for all rows of a unit"


def test_rows_whose_mean_counts(tmp_path):
    """These rows have the mean in the picture, as in the table."""
    median, mean = (places(draw(tmp_path, [cost("bind-fresh", "a", None, 10_000), cost(row, "b", None, 1_000)]), "rust")
                    for row in ("close", "region-64k"))
    assert median[1][0] < median[0][0] and mean[1][0] == pytest.approx(mean[0][0], abs=0.01)


def test_one_implementation(tmp_path):
    seen = texts(draw(tmp_path, [cost("close", "close() of a bound socket", None, 10)]))
    assert "close() of a bound socket" in seen and "the kernel without RDS" not in seen


def test_scaling(tmp_path):
    """Each row with values has a panel with a marker for each value."""
    picture = draw(tmp_path, CURVES)
    seen = " ".join(texts(picture))
    assert "bind()" in seen and "set-up of all at once, ns until all are up" in seen
    assert "attempts" not in seen, "nothing failed"
    assert (len(places(picture, "c")), len(places(picture, "rust"))) == (2, 6)
    # A value that grows with the number of connections is a straight line.
    steep = [x for x in places(picture, "rust") if x[0] > 200]
    (x1, y1), (x2, y2), (x3, y3) = sorted(steep)
    assert (y1 - y2) / (x2 - x1) == pytest.approx((y2 - y3) / (x3 - x2))


def test_same_results_same_file(tmp_path):
    assert draw(tmp_path, COSTS).read_bytes() == draw(tmp_path, copy.deepcopy(COSTS)).read_bytes()
    assert b"<dc:date>" not in draw(tmp_path, CURVES).read_bytes()


def test_png(tmp_path):
    assert draw(tmp_path, COSTS, ".png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("text, complaint", [
    ("no JSON", "cannot read .*results.json"),
    ("[]", "has no rows"),
    ('{"rows": []}', "has no rows"),
    ('{"rows": [1]}', "row 1 is neither of make bench nor"),
    ('{"rows": [{"row": "bind", "c": {"own": 1}}]}', "row 'bind' is neither of make bench nor"),
    (json.dumps({"rows": [CURVES[0], COSTS[1]]}), "row 'bind-fresh' is neither of make bench nor"),
    (json.dumps({"rows": [CURVES[2]]}), "no row has a result"),
])
def test_bad_results(tmp_path, capsys, text, complaint):
    source, target = tmp_path / "results.json", tmp_path / "picture.svg"
    source.write_text(text)
    assert plot.main([str(source), str(target)]) == 1
    assert re.search(f"^error: .*{complaint}", capsys.readouterr().err)
    assert not target.exists()


def test_bad_names(tmp_path, capsys):
    source = tmp_path / "results.json"
    assert plot.main([str(source), str(tmp_path / "picture.svg")]) == 1
    assert "cannot read" in capsys.readouterr().err
    source.write_text(json.dumps({"rows": COSTS}))
    assert plot.main([str(source), str(tmp_path / "picture.pdf")]) == 1
    assert "the name of a picture ends in .svg or .png" in capsys.readouterr().err
    assert plot.main([str(source), str(tmp_path / "nowhere/picture.svg")]) == 1
    assert "cannot write" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        plot.main([str(source)])


@pytest.mark.parametrize("picture", plot.PICTURES, ids=lambda x: x.name)
def test_pictures_of_the_documentation(tmp_path, picture):
    """The committed pictures are those of the committed results: "make plot" draws them again."""
    plot.write(plot.PICTURES[picture], tmp_path / picture.name)
    assert (tmp_path / picture.name).read_bytes() == picture.read_bytes(), f"{picture} is out of date: run make plot"
    assert f"]({picture.name})" in picture.with_suffix(".md").read_text(), "no document shows it"


def test_table_of_scaling_is_that_of_its_results():
    rows = json.loads((TOP / "Documentation/scaling.json").read_text())["rows"]
    names = {x.name: x.what.strip() for x in bench_scaling.ROWS}
    text = (TOP / "Documentation/scaling.md").read_text().partition("## Results\n")[2].partition("\n## ")[0]
    head, _, *lines = (tuple(x.strip() for x in line.split("|")[1:-1]) for line in text.splitlines() if "|" in line)
    counts = [x.replace(",", "") for x in head[2:-1]]
    wanted = []
    for row in rows:
        what = names[row["row"]]
        for impl in (x for x in bench.NAMES if x in row):
            values, growth = row[impl]["connections"], row[impl]["growth"]
            wanted.append((what, bench.NAMES[impl], *(bench.number(values.get(x)) for x in counts),
                           f"{growth:.2f}" if growth else ""))
            what = ""
    assert lines == wanted
