"""Pictures of the paper's comparisons, as SVG files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.plot import new_figure, save_figure
from reproduction.paper import tables, timeline, times
from reproduction.paper.grid import Grid
from reproduction.paper.scores import Results

_INK, _OURS, _PUBLISHED = "#24303d", "#1f77b4", "#8a97a5"
_SIDES = {"ours": _OURS, "published": _PUBLISHED}


def draw(results: Results, folder: Path) -> None:
    """Draw all pictures into a folder."""
    grid = times.timed(results)
    parts: Mapping[str, tuple[float, Callable[[Any], None]]] = {
        "timeline": (3.2, lambda figure: timeline.draw(figure, results)),
        "design": (5.0, lambda figure: _design(figure, tables.design(results))),
        "times": (1.2 + 0.27 * len(grid.rows), lambda figure: _times(figure, grid)),
    }
    for name, (height, part) in parts.items():
        figure = new_figure(8, height)
        part(figure)
        save_figure(figure, folder / f"{name}.svg")


def _design(figure: Any, grid: Grid) -> None:
    """Draw a panel for each set: the score of each step, with its deviation."""
    axes = figure.subplots(2, math.ceil(len(grid.sets) / 2), sharex=True)
    names = [row.name for row in grid.rows]
    for axis, label in zip(axes.flat, grid.sets, strict=True):
        for side, cells in (("published", grid.published), ("ours", grid.ours)):
            places = [i for i, name in enumerate(names) if name in cells[label]]
            scores = [cells[label][names[i]].score for i in places]
            axis.errorbar(
                places,
                [score.mean for score in scores],
                yerr=[score.std for score in scores],
                color=_SIDES[side],
                marker="o",
                markersize=3.5,
                linewidth=1.2,
                elinewidth=0.8,
            )
        if not grid.results.larger_is_better(label):
            axis.invert_yaxis()
        axis.set_title(label, fontsize=9, color=_INK)
        axis.set_xticks(range(len(names)), names, rotation=90)
        axis.locator_params(axis="y", nbins=5)
        axis.tick_params(labelsize=8, colors=_INK, length=2)
        axis.spines[["top", "right"]].set_visible(False)
    _legend(figure, "scores, better ones further up")


def _times(figure: Any, grid: Grid) -> None:
    """Draw the seconds of each model on each set, and their geometric mean."""
    axis = figure.subplots()
    for place, row in enumerate(grid.rows):
        shown = _seconds(grid, row.name)
        for side, shift in (("published", 0.16), ("ours", -0.16)):
            seconds, color = shown[side], _SIDES[side]
            if seconds:
                at = [place + shift] * len(seconds)
                axis.plot(seconds, at, "o", color=color, alpha=0.35, markersize=4)
                middle = math.exp(math.fsum(map(math.log, seconds)) / len(seconds))
                axis.plot([middle], at[:1], "D", color=color, markersize=6)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.minorticks_off()
    axis.set_yticks(range(len(grid.rows)), [row.name for row in grid.rows])
    axis.set_ylim(len(grid.rows) - 0.5, -0.5)
    axis.set_xlabel("seconds of a fit", fontsize=9, color=_INK)
    axis.tick_params(labelsize=9, colors=_INK, length=0)
    axis.grid(axis="x", color="#e3e8ed", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right", "left"]].set_visible(False)
    _legend(figure, "a dot for each set, a diamond for their geometric mean")


def _seconds(grid: Grid, name: str) -> dict[str, list[float]]:
    """Return the times of both sides, on their common sets if there are any."""
    sides = {
        side: {
            s: c.seconds
            for s in grid.sets
            if (c := cells[s].get(name)) and c.seconds > 0
        }
        for side, cells in (("ours", grid.ours), ("published", grid.published))
    }
    common = sides["ours"].keys() & sides["published"].keys()
    return {
        side: [t for label, t in seconds.items() if not common or label in common]
        for side, seconds in sides.items()
    }


def _legend(figure: Any, title: str) -> None:
    """Add a legend above a picture: a few words about it, and the colours."""
    from matplotlib.lines import Line2D

    dots = [Line2D([], [], color=c, marker="o", linewidth=0) for c in _SIDES.values()]
    figure.legend(
        [Line2D([], [], linewidth=0), *dots],
        [title, *_SIDES],
        loc="outside upper center",
        ncols=3,
        fontsize=9,
        frameon=False,
        labelcolor=_INK,
    )
