#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""make plot: draws the results of make bench or make bench-scaling, as their OUT= writes them.

The same results give the same file, byte for byte. Without arguments, the script draws the pictures
of the documentation again, from the results that are committed beside them.
"""

import argparse
import itertools
import json
import sys
import textwrap
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

import bench
from bench import NAMES

PAGES = bench.TOP / "Documentation"
# {picture: results}.
PICTURES = {PAGES / "performance.svg": PAGES / "performance.json", PAGES / "scaling.svg": PAGES / "scaling.json"}
CANVASES = {".svg": FigureCanvasSVG, ".png": FigureCanvasAgg}
# Two colours that differ for all readers, also in print, and a marker for each.
STYLES = {"c": {"color": "#d55e00", "marker": "s", "label": "C RDS"},
          "rust": {"color": "#0072b2", "marker": "o", "label": "this module"}}
UNITS = {"instructions": "instructions of the guest", "nanoseconds": "nanoseconds", "KiB": "KiB",
         "attempts": "attempts"}
# Units of panels, if they are no instructions.
SHORT_UNITS = {"nanoseconds": "ns", "KiB": "KiB"}
GREY, FAINT = "#555555", "#cccccc"
# Inches.
WIDTH, TEXT_WIDTH, ROW, HEAD, FOOT, GAP = 10, 4.1, 0.3, 0.55, 0.5, 0.75
PANEL_WIDTH, PANEL_HEIGHT, COLUMNS = 2.6, 1.6, 4
# Labels of a panel are at most this long.
CHARACTERS = 30
# An axis of values is logarithmic if the values of a line differ by more than this factor.
STEEP = 10

matplotlib.rcParams.update({
    "svg.fonttype": "none", "svg.hashsalt": "rds", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
    "axes.edgecolor": GREY, "xtick.color": GREY, "ytick.color": GREY, "axes.labelcolor": GREY,
})


class PlotError(Exception):
    """Input that cannot be drawn."""


def short(value, _=None):
    """Returns a number with a unit of thousands: 1,200,000 is 1.2M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def read(path):
    """Returns the rows of a file of results."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise PlotError(f"cannot read {path}: {e}") from e
    rows = found.get("rows") if isinstance(found, dict) else None
    if not isinstance(rows, list) or not rows:
        raise PlotError(f"{path} has no rows: it is no file of OUT=")
    return rows


def values_in(row, key):
    """Returns {implementation: value of `key`} of a row. Fails if it is from another benchmark."""
    try:
        return {x: row[x][key] for x in NAMES if row.get(x)}
    except (AttributeError, KeyError, TypeError) as e:
        name = row.get("row") if isinstance(row, dict) else row
        raise PlotError(f"row {name!r} is neither of make bench nor of make bench-scaling") from e


def draw(rows):
    """Returns a figure of all rows."""
    first = next((x[i] for x in rows if isinstance(x, dict) for i in NAMES if isinstance(x.get(i), dict)), {})
    return scaling(rows) if "connections" in first else costs(rows)


def costs(rows):
    """Draws the results of make bench: a line for each row, and an axis for each unit.

    A row of the kernel without RDS is a mark in the lines of the rows that it is the floor of."""
    for row in rows:
        values_in(row, "p50")
    figures = {x["row"]: {i: bench.figure(x[i]) for i in NAMES if x.get(i)} for x in rows}
    floors = {x.get("floor") for x in rows}
    shown = [x for x in rows if figures[x["row"]] and x["row"] not in floors]
    units = {unit: [x for x in shown if x["unit"] == unit] for unit in dict.fromkeys(x["unit"] for x in shown)}
    if not shown:
        raise PlotError("no row has a result")
    height = HEAD + len(shown) * ROW + (len(units) - 1) * GAP + FOOT
    figure = Figure(figsize=(WIDTH, height))
    top = height - HEAD
    for unit, group in units.items():
        bottom = top - len(group) * ROW
        box = (TEXT_WIDTH / WIDTH, bottom / height, 1 - (TEXT_WIDTH + 1) / WIDTH, (top - bottom) / height)
        lines_of_costs(figure.add_axes(box), group, figures)
        figure.axes[-1].set_xlabel(UNITS.get(unit, unit))
        top = bottom - GAP
    legend(figure, {**STYLES, "floor": FLOOR} if any(x["floor"] in figures for x in shown) else STYLES)
    figure.axes[0].annotate("Rust/C", (1, 1), (34, 6), "axes fraction", "offset points", ha="right", color=GREY)
    return figure


FLOOR = {"color": GREY, "marker": "|", "label": "the kernel without RDS"}


def lines_of_costs(axes, rows, figures):
    """Draws rows of one unit, from top to bottom."""
    axes.set_xscale("log")
    axes.set_yticks(range(len(rows)), [x["what"] for x in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelcolor="black")
    axes.xaxis.set_major_formatter(FuncFormatter(short))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="x", color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)
    for i, row in enumerate(rows):
        found = figures[row["row"]]
        if len(found) > 1:
            axes.plot(list(found.values()), [i, i], color=FAINT, linewidth=3, solid_capstyle="butt")
            axes.annotate(f"{found['rust'] / found['c']:.2f}", (1, i), (34, 0),
                          axes.get_yaxis_transform(), "offset points", ha="right", va="center")
        if floor := figures.get(row["floor"]):
            axes.plot([floor.get("rust", floor.get("c"))], [i], markersize=11, markeredgewidth=2, **style(FLOOR))
        for impl, value in found.items():
            axes.plot([value], [i], markersize=6, **style(STYLES[impl]))
    low, high = axes.get_xlim()
    # An axis of one value would have no mark of its scale.
    axes.set_xlim(low / 1.5, max(high, low * 10) * 1.5)


def style(fields):
    """Returns the arguments of a line of markers only."""
    return {"linestyle": "none", "color": fields["color"], "marker": fields["marker"], "label": fields["label"]}


def legend(figure, styles):
    """Draws the legend at the top left."""
    lines = [matplotlib.lines.Line2D([], [], **style(x)) for x in styles.values()]
    figure.legend(handles=lines, loc="upper left", ncols=len(lines), frameon=False)


def scaling(rows):
    """Draws the results of make bench-scaling: a panel for each row."""
    panels = []
    for row in rows:
        found = {impl: {int(count): value for count, value in x.items()} for impl, x in values_in(row, "connections").items()}
        if any(any(x.values()) for x in found.values()):
            panels.append((row, found))
    if not panels:
        raise PlotError("no row has a result")
    counts = sorted({count for _, found in panels for x in found.values() for count in x})
    lines = -(-len(panels) // COLUMNS)
    width, height = COLUMNS * PANEL_WIDTH + 0.2, HEAD + lines * (PANEL_HEIGHT + GAP) + 0.1
    figure = Figure(figsize=(width, height))
    for i, (row, found) in enumerate(panels):
        left = 0.7 + i % COLUMNS * PANEL_WIDTH
        bottom = height - HEAD - (i // COLUMNS + 1) * (PANEL_HEIGHT + GAP) + GAP / 2 + 0.1
        axes = figure.add_axes((left / width, bottom / height, (PANEL_WIDTH - 0.75) / width, PANEL_HEIGHT / height))
        panel(axes, row, found, counts)
        if i >= len(panels) - COLUMNS:
            axes.set_xlabel("connections")
    legend(figure, STYLES)
    return figure


def panel(axes, row, found, counts):
    """Draws a row: a line for each implementation."""
    unit = SHORT_UNITS.get(row["unit"], "")
    title = row["what"] if f" {unit} " in f" {row['what']} " or not unit else f"{row['what']}, {unit}"
    axes.set_title("\n".join(textwrap.wrap(title, CHARACTERS)), fontsize=9, loc="left")
    axes.set_xscale("log")
    axes.set_xticks(counts, [short(x) for x in counts])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(counts[0] / 1.3, counts[-1] * 1.3)
    for impl, values in found.items():
        axes.plot(list(values), list(values.values()), markersize=4, **{**style(STYLES[impl]), "linestyle": "-"})
    all_values = [list(x.values()) for x in found.values() if x]
    if all(min(x) > 0 for x in all_values) and any(max(x) > STEEP * min(x) for x in all_values):
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(0, 1.15 * max(itertools.chain(*all_values)))
    axes.yaxis.set_major_formatter(FuncFormatter(short))
    axes.grid(axis="y", color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)


def write(source, target):
    """Draws the results of a file into another."""
    canvas = CANVASES.get(target.suffix)
    if not canvas:
        raise PlotError(f"{target}: the name of a picture ends in {' or '.join(CANVASES)}")
    figure = draw(read(source))
    # No date and no version: the file depends on the results only.
    metadata = {"Date": None, "Creator": None} if target.suffix == ".svg" else {"Software": None}
    canvas(figure).print_figure(target, metadata=metadata)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="?", help="results of make bench or make bench-scaling, with OUT=")
    parser.add_argument("picture", type=Path, nargs="?", help="picture to be written, .svg or .png")
    args = parser.parse_args(argv)
    if args.results and not args.picture:
        parser.error("the name of the picture is missing")
    try:
        for target, source in ({args.picture: args.results} if args.results else PICTURES).items():
            write(source, target)
            print(f"written: {target}")
    except PlotError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    except OSError as e:
        print(f"error: cannot write {e.filename}: {e.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
