"""A picture of the reproduction: how far each set lies from the published figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.plot import new_figure, save_figure
from reproduction.default_table import OFFICIAL_STDS, OWN_PERCENT, WHY_STDS

_INK, _INSIDE, _OUTSIDE, _BAND = "#24303d", "#1f77b4", "#d1495b", "#e6eef6"


def plot(table: pd.DataFrame, path: Path) -> None:
    """Draw what `compare` returned into a file, whose suffix tells the format.

    Each dot is the mean of our runs, positive if it is better than the published one;
    its whisker is the standard deviation of our runs. The band is the bound.
    """
    table = table[table["verdict"] != "not comparable"]
    is_own = table["bound"].str.endswith("%")
    is_why = table["set"].str.startswith("why/")
    first = table[~is_own & ~is_why]
    second = table[~is_own & is_why].sort_values("better_by_stds")
    own_splits = table[is_own]
    n_rows = [len(first), len(second), len(own_splits)]
    figure = new_figure(8, 1.9 + 0.27 * sum(n_rows))
    axes = figure.subplots(
        3, 1, squeeze=False, gridspec_kw={"height_ratios": [max(1, n) for n in n_rows]}
    )[:, 0]
    stds = "better by, in published standard deviations"
    _panel(axes[0], first, "first benchmark, the paper's splits", stds, OFFICIAL_STDS)
    _panel(axes[1], second, "second benchmark, the paper's splits", stds, WHY_STDS)
    _panel(
        axes[2], own_splits, "splits of our own", "better by, in percent", OWN_PERCENT
    )
    save_figure(figure, path)


def _panel(axis: Any, table: pd.DataFrame, title: str, unit: str, bound: float) -> None:
    percent = unit.endswith("percent")
    scale = table["published"] / 100 if percent else table["published_std"]
    scale = scale.clip(lower=1e-9)
    value = table["better_by_percent" if percent else "better_by_stds"]
    inside = table["verdict"] == "within"
    axis.axvspan(-bound, bound, color=_BAND, zorder=0)
    axis.axvline(0, color=_INK, linewidth=0.8, zorder=1)
    places = range(len(table))
    for mask, color in ((inside, _INSIDE), (~inside, _OUTSIDE)):
        at = [place for place, keep in zip(places, mask, strict=True) if keep]
        axis.errorbar(
            value[mask],
            at,
            xerr=(table["ours_std"] / scale)[mask],
            fmt="o",
            markersize=5,
            elinewidth=1,
            color=color,
            zorder=2,
        )
    names = table["set"].str.removeprefix("why/").str.replace("_", " ")
    axis.set_yticks(list(places), names)
    axis.set_ylim(-0.6, len(table) - 0.4)
    axis.invert_yaxis()
    limit = max(
        bound * 1.4, float((value.abs() + table["ours_std"] / scale).max()) * 1.1
    )
    axis.set_xlim(-limit, limit)
    axis.set_title(title, loc="left", fontsize=10, color=_INK)
    axis.set_xlabel(unit, fontsize=9, color=_INK)
    axis.tick_params(labelsize=9, colors=_INK, length=0)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
