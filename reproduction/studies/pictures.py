"""Pictures of the studies, made from their records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.plot import new_figure, save_figure
from reproduction.studies.tables import NEVER, context_curves, freeze_figures
from tabr.bench.tasks.catalog import select

_OURS, _EACH, _PUBLISHED = "#1f5f99", "#9db8d2", "#d1495b"
_LINES = (
    "#1f5f99",
    "#d1495b",
    "#3d8f5f",
    "#b5832a",
    "#7a5aa6",
    "#5f6b78",
    "#2a9fb5",
    "#a8527f",
)


def plot_new_candidates(records: pd.DataFrame, path: Path) -> None:
    """Draw scores against the share of rows that are candidates, a panel a table."""
    tables = {str(name): part for name, part in records.groupby("table", sort=False)}

    def draw(axis: Any, name: str) -> None:
        part = tables[name]
        for _, seed in part.groupby("seed"):  # a mean would hide which differs
            axis.plot(100 * seed.share, seed.test, color=_EACH, lw=1, zorder=1)
        mean = part.groupby("share").test.mean()
        axis.plot(100 * mean.index, mean, color=_OURS, marker="o", zorder=2)
        axis.set_xlabel("candidates, % of the training rows")
        axis.set_ylabel("accuracy" if name == "covtype" else "RMSE, smaller is better")

    _save_panels(list(tables), draw, path)


def plot_freeze(records: pd.DataFrame, path: Path, published: pd.DataFrame) -> None:
    """Draw scores against the share of time that freezing leaves, a panel a table.

    A point is named by the epochs before the freeze.
    """
    figures = freeze_figures(records, published)
    tables = {str(name): part for name, part in figures.groupby("table", sort=False)}

    def draw(axis: Any, name: str) -> None:
        for share, score, color, label, words_at in (
            ("share", "test", _OURS, "ours", (4, 4)),
            ("published_share", "published", _PUBLISHED, "published", (4, -10)),
        ):
            points = tables[name].dropna(subset=[share, score])
            if points.empty:
                continue
            x, y = points[share], points[score]
            axis.plot(x, y, "o", color=color, label=label, markersize=5)
            for after, at in zip(points.after, zip(x, y, strict=True), strict=True):
                words = "never" if after == NEVER else str(after)
                how = {"textcoords": "offset points", "fontsize": 8, "color": color}
                axis.annotate(words, at, words_at, **how)
        (task,) = select([name])
        axis.set_xlabel("share of the time without a freeze")
        axis.set_ylabel(
            "accuracy" if task.metric == "accuracy" else "RMSE, smaller is better"
        )
        axis.margins(0.12)
        if axis.lines:
            axis.legend(frameon=False, fontsize=8)

    _save_panels(list(tables), draw, path)


def plot_contexts(records: pd.DataFrame, path: Path) -> None:
    """Draw how much contexts change from epoch to epoch, a line a table."""
    curves = context_curves(records)

    def draw(axis: Any, title: str) -> None:
        for k, (name, curve) in enumerate(curves.items()):
            epochs = range(1, len(curve) + 1)
            axis.plot(epochs, curve, color=_LINES[k % len(_LINES)], label=name)
        axis.set_xlabel("epoch, from 0")
        axis.set_ylabel("mean Delta-context")
        axis.set_ylim(bottom=0)
        axis.legend(frameon=False, fontsize=8)

    _save_panels(["how much contexts change"], draw, path, width=6.0)


def _save_panels(
    titles: list[str],
    draw: Callable[[Any, str], None],
    path: Path,
    width: float = 4.2,
) -> None:
    """Draw panels side by side, at most two in a line, and save them."""
    n_columns = min(2, len(titles))
    n_lines = -(-len(titles) // n_columns)
    figure = new_figure(width * n_columns, 3 * n_lines)
    axes = figure.subplots(n_lines, n_columns, squeeze=False).ravel()
    for axis in axes[len(titles) :]:
        axis.set_visible(False)
    for axis, title in zip(axes, titles, strict=False):
        draw(axis, title)
        axis.set_title(title, fontsize=11)
        axis.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)
