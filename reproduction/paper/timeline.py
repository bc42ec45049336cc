"""The paper's first figure: networks against XGBoost over the years."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd

from reproduction.paper.scores import Model, Results
from reproduction.paper.win_tie_loss import (
    Outcomes,
    count,
    count_text,
    outcomes_of,
    second_sets,
    side_lines,
)
from tabr.text import ABSENT

WIN, TIE, LOSS = "#1f77b4", "#c9d6e3", "#d1495b"
_INK = "#24303d"


class Entry(NamedTuple):
    """A bar of the figure."""

    name: str
    year: str
    model: Model


ENTRIES = (
    Entry("MLP", "baseline", Model("mlp")),
    Entry("FT-Transformer", "2021", Model("ft-transformer")),
    Entry("MLP-PLR", "2022", Model("mlp-plr")),
    Entry("TabR", "2023", Model("tabr")),
    Entry("TabR-S", "both default", Model("tabr-s", "default")),
)


def timeline_outcomes(results: Results) -> dict[Entry, Outcomes]:
    """Return the outcomes of single networks against a single XGBoost."""
    sets = second_sets(results)
    return {
        entry: outcomes_of(
            results, (entry.model, Model("xgboost", entry.model.config)), "single", sets
        )
        for entry in ENTRIES
    }


def rows(results: Results) -> list[list[str]]:
    """Return a line for each bar."""
    return [
        [
            f"{entry.name}, {entry.year}",
            str(len(outcomes.ours) or ABSENT),
            count_text(outcomes.ours),
            count_text(outcomes.same_sets),
            str(len(outcomes.all_sets) or ABSENT),
            count_text(outcomes.all_sets),
        ]
        for entry, outcomes in timeline_outcomes(results).items()
    ]


def to_frame(results: Results) -> pd.DataFrame:
    """Return a line for each bar and side."""
    lines = []
    for entry, outcomes in timeline_outcomes(results).items():
        lines += side_lines({"model": entry.name, "year": entry.year}, outcomes)
    return pd.DataFrame(lines)


def draw(figure: Any, results: Results) -> None:
    """Draw a panel of bars for each side."""
    bars = timeline_outcomes(results)
    axes = figure.subplots(1, 3, sharey=True)
    panels = (
        ("published, {} sets", [bar.all_sets for bar in bars.values()]),
        ("published, the same {} sets", [bar.same_sets for bar in bars.values()]),
        ("ours, {} sets", [bar.ours for bar in bars.values()]),
    )
    for axis, (title, sides) in zip(axes, panels, strict=True):
        for place, lines in enumerate(sides):
            _bar(axis, place, count(lines))
        title = title.format(max(map(len, sides)))
        axis.set_title(title, loc="left", fontsize=9, color=_INK)
        axis.set_xticks([0, 50, 100])
        axis.set_xlim(0, 100)
        axis.set_xlabel("% of the sets", fontsize=9, color=_INK)
        axis.set_yticks(range(len(bars)), [f"{e.name}\n{e.year}" for e in bars])
        axis.tick_params(labelsize=9, colors=_INK, length=0)
        axis.spines[["top", "right", "left"]].set_visible(False)
    axes[0].set_ylim(len(bars) - 0.5, -0.5)
    handles = [axes[0].barh(0, 0, color=color) for color in (WIN, TIE, LOSS)]
    figure.legend(
        handles,
        ("win against XGBoost", "tie", "loss"),
        loc="outside upper center",
        ncols=3,
        fontsize=9,
        frameon=False,
        labelcolor=_INK,
    )


def _bar(axis: Any, place: int, counts: tuple[int, ...]) -> None:
    """Draw one bar with its counts, or write that there is none."""
    total = sum(counts)
    if not total:
        axis.text(2, place, "not run", va="center", fontsize=9, color=_INK)
        return
    left = 0.0
    looks = ((WIN, "white"), (TIE, _INK), (LOSS, "white"))
    for number, (color, ink) in zip(counts, looks, strict=True):
        width = 100 * number / total
        axis.barh(place, width, left=left, height=0.62, color=color)
        if number:
            middle = left + width / 2
            style = {"ha": "center", "va": "center", "fontsize": 9, "color": ink}
            axis.text(middle, place, str(number), **style)
        left += width
