"""Pictures of the presets: errors beside tuned rivals, errors against seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from benchmarks.plot import new_figure, save_figure
from reproduction.paper.grid import OFFICIAL
from reproduction.paper.scores import Results
from reproduction.presets.boards import (
    FIVES,
    PRESETS,
    TUNED_TREES,
    Board,
    Contestant,
    halves,
)
from reproduction.presets.levers import means
from reproduction.presets.standings import log_ratio
from reproduction.presets.times import TIMED, Time, comparable, mean_seconds

_INK, _GRID, _BAND = "#24303d", "#e3e8ed", "#f1f4f7"
_OURS, _LOSS = "#1f77b4", "#d1495b"
_RIVALS = ("#d1495b", "#e0a03c", "#3d8f5f", "#8a97a5")
_NETWORKS = ("#7b5ea7", "#b58bc9", "#5fb3b3")
_SECONDS = dict(  # trees have one colour
    zip(TIMED, (_OURS, "#12406b", *_RIVALS, *_NETWORKS), strict=True)
)
_TICKS = (0.2, 0.25, 0.33, 0.5, 0.67, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 4, 5)

Ratios = Mapping[str, Mapping[str, float]]  # of errors, logarithms: by set and rival


# --- errors beside tuned rivals -----------------------------------------------------


def draw_errors(board: Board, path: Path) -> None:
    """Draw the preset's error over that of each tuned rival, a line a set."""
    name = board.preset.name
    rivals = [c.name for c in (*TUNED_TREES, *FIVES) if c.name in board.names]
    ratios = _ratios(board, rivals)
    parts = {
        title: sorted((s for s in half if s in ratios), key=lambda s: _mean(ratios[s]))
        for title, half in halves()._asdict().items()
    }
    parts = {title: part for title, part in parts.items() if part}
    if not parts:
        return
    sizes = [len(part) + 1 for part in parts.values()]
    figure = new_figure(8, 1.1 + 0.26 * sum(sizes))
    axes = figure.subplots(
        len(parts), 1, sharex=True, squeeze=False, height_ratios=sizes
    )[:, 0]
    for axis, (title, part) in zip(axes, parts.items(), strict=True):
        _dots(axis, [(label, ratios[label]) for label in part], rivals)
        axis.set_title(
            f"sets {title.replace('_', ' ')}", loc="left", fontsize=9, color=_INK
        )
    values = [v for part in ratios.values() for v in part.values()]
    _ratio_scale(axes[0], "x", [math.exp(v) for v in values])
    words = f"error of {name} / error of the rival: below 1 the preset is better"
    axes[-1].set_xlabel(words, fontsize=9, color=_INK)
    _legend(figure, dict(zip(rivals, _RIVALS, strict=False)))
    save_figure(figure, path)


def _ratios(board: Board, rivals: Sequence[str]) -> Ratios:
    """Return the logarithms of ratios of errors, without sets that have none."""
    name = board.preset.name
    ratios = {}
    for label, line in board.lines.items():
        logs = {
            rival: log_ratio(board.error(label, name), board.error(label, rival))
            for rival in rivals
            if rival in line.cells
        }
        logs = {rival: log for rival, log in logs.items() if math.isfinite(log)}
        if logs:
            ratios[label] = logs
    return ratios


def _mean(logs: Mapping[str, float]) -> float:
    return fmean(logs.values())


def _dots(
    axis: Any, lines: Sequence[tuple[str, Mapping[str, float]]], rivals: Sequence[str]
) -> None:
    """Draw a line for each set: a dot for each rival."""
    colors = dict(zip(rivals, _RIVALS, strict=False))
    for place, (_, logs) in enumerate(lines):
        if place % 2 == 0:
            axis.axhspan(place - 0.5, place + 0.5, color=_BAND, zorder=0)
        for rival, log in logs.items():
            # Dots of one place would hide each other.
            shift = 0.22 * (rivals.index(rival) - (len(rivals) - 1) / 2)
            look = {"color": colors[rival], "markersize": 5}
            axis.plot([math.exp(log)], [place + shift], "o", zorder=2, **look)
    axis.axvline(1, color=_INK, linewidth=0.8, zorder=1)
    axis.set_yticks(range(len(lines)), [_short(label) for label, _ in lines])
    axis.set_ylim(len(lines) - 0.5, -0.5)
    _plain(axis, left=False)


# --- errors against seconds ---------------------------------------------------------


def draw_seconds(
    results: Results, rows_of: Mapping[str, Sequence[Time]], path: Path
) -> None:
    """Draw mean errors against mean seconds, a panel for each hardware of a preset.

    There must be somebody beside it. The errors are over those of the best tuned trees
    of each set, and the means over the sets that all of a panel have.
    """
    panels = {
        hardware: points
        for hardware, rows in rows_of.items()
        if any(row.contestant in PRESETS for row in rows)
        and len(points := _points(results, rows)) > 1
    }
    if not panels:
        return
    figure = new_figure(max(6.0, 4.8 * len(panels)), 4.0)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (hardware, points) in zip(axes, panels.items(), strict=True):
        n_sets = points[0][3]
        for contestant, x, y, _ in points:
            mark = "D" if contestant in PRESETS else "o"
            axis.plot([x], [y], mark, color=_SECONDS[contestant], markersize=8)
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.axhline(1, color=_INK, linewidth=0.8, linestyle=":")
        words = f"{hardware}, mean over {n_sets} {'set' if n_sets == 1 else 'sets'}"
        axis.set_title(words, loc="left", fontsize=9, color=_INK)
        axis.set_xlabel("seconds of a fit", fontsize=9, color=_INK)
        axis.margins(x=0.12)
        _plain(axis, left=True)
    axes[0].set_ylabel("error / error of the best tuned trees", fontsize=9, color=_INK)
    values = [y for points in panels.values() for _, _, y, _ in points]
    _ratio_scale(axes[0], "y", values)
    shown = {point[0] for points in panels.values() for point in points}
    colors = {c.name: color for c, color in _SECONDS.items() if c in shown}
    _legend(figure, colors, n_columns=min(len(colors), 3 * len(panels)))
    save_figure(figure, path)


Point = tuple[Contestant, float, float, int]  # whose, seconds, relative error, sets


def _points(results: Results, rows: Sequence[Time]) -> list[Point]:
    enough, common = comparable(rows)
    logs = [_relative_errors(results, row) for row in enough]
    common = [s for s in common if all(s in known for known in logs)]
    return [
        (
            row.contestant,
            mean_seconds(row, common),
            math.exp(fmean(known[label] for label in common)),
            len(common),
        )
        for row, known in zip(enough, logs, strict=True)
        if common
    ]


def _relative_errors(results: Results, row: Time) -> dict[str, float]:
    """Return log errors over those of the best tuned trees, on the same splits."""
    logs = {}
    for label in row.seconds:
        splits = row.contestant.splits(results, label)
        cell = row.contestant.cell(results, label)
        trees = [tree.cell(results, label, splits) for tree in TUNED_TREES]
        scores = [tree.score.mean for tree in trees if tree is not None]
        if cell is None or not scores:
            continue
        larger = results.larger_is_better(label)
        error, *errors = (1 - s if larger else s for s in (cell.score.mean, *scores))
        if math.isfinite(log := log_ratio(error, min(errors))):
            logs[label] = log
    return logs


# --- levers -------------------------------------------------------------------------


def draw_levers(changes: pd.DataFrame, path: Path) -> None:
    """Draw the mean change of the error without each lever, and that of each table."""
    figure = new_figure(8, 1.0 + 0.34 * changes.shape[1])
    axis = figure.subplots()
    for place, (lever, mean) in enumerate(means(changes).items()):
        color = _OURS if mean > 0 else _LOSS
        axis.barh(place, mean, height=0.6, color=color, zorder=1)
        known = changes[lever].dropna()
        axis.plot(known, [place] * len(known), "o", color=_INK, markersize=3, alpha=0.6)
    axis.axvline(0, color=_INK, linewidth=0.8)
    axis.set_yticks(range(changes.shape[1]), [str(name) for name in changes.columns])
    axis.set_ylim(changes.shape[1] - 0.4, -0.6)
    words = "% more error without the lever; a dot for each table, a bar for the mean"
    axis.set_xlabel(words, fontsize=9, color=_INK)
    _plain(axis, left=False)
    save_figure(figure, path)


# --- looks --------------------------------------------------------------------------


def _short(label: str) -> str:
    """Return the name of a set as it fits, with a star for a split of ours.

    >>> _short("why/Mercedes_Benz_Greener_Manufacturing")
    'why/Mercedes Benz'
    """
    words = label.replace("_", " ")
    short = words if len(words) <= 26 else " ".join(words.split(" ")[:2])
    return short if label in OFFICIAL else f"{short}*"


def _ratio_scale(axis: Any, side: str, values: Sequence[float]) -> None:
    """Set a logarithmic axis around one whose ticks are plain numbers."""
    low, high = min([*values, 0.95]) / 1.06, max([*values, 1.05]) * 1.06
    scale, limits, line = (
        (axis.set_xscale, axis.set_xlim, axis.xaxis)
        if side == "x"
        else (axis.set_yscale, axis.set_ylim, axis.yaxis)
    )
    scale("log")
    limits(low, high)
    ticks = [tick for tick in _TICKS if low <= tick <= high]
    line.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    line.set_ticks([], minor=True)


def _plain(axis: Any, *, left: bool) -> None:
    axis.tick_params(labelsize=9, colors=_INK, length=0)
    axis.grid(axis="both" if left else "x", color=_GRID, linewidth=0.7)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"] + ([] if left else ["left"])].set_visible(False)


def _legend(figure: Any, colors: Mapping[str, str], n_columns: int = 4) -> None:
    from matplotlib.lines import Line2D

    presets = {contestant.name for contestant in PRESETS}
    dots = [
        Line2D([], [], color=c, marker="D" if n in presets else "o", linewidth=0)
        for n, c in colors.items()
    ]
    figure.legend(
        dots,
        list(colors),
        loc="outside upper center",
        ncols=n_columns,
        fontsize=9,
        frameon=False,
        labelcolor=_INK,
    )
