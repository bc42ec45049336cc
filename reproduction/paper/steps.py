"""The paper's design, step by step: the gains of our steps and of the published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd

from reproduction.methods_page import NOT_COMPARABLE
from reproduction.paper.grid import Grid, Row
from reproduction.paper.scores import Cell, compare
from tabr.bench.ranks import Score

STEPS = (
    Row("MLP", ("mlp",)),
    Row("Step-0", ("step-0",)),
    Row("Step-1", ("step-1",)),
    Row("Step-2", ("step-2",)),
    Row("Step-3", ("step-3",)),
    Row("TabR-S", ("tabr-s",)),
)
# The similarity; queries of their own, or keys alone; the neighbours' labels, or not.
ABLATION = tuple(
    Row(name, (method,), comparable=method not in NOT_COMPARABLE)
    for name, method in (
        ("MLP", "mlp"),
        ("Step-0: dot + queries", "step-0"),
        ("Step-1: dot + queries + labels", "step-1"),
        ("dot + keys", "dp-k-v"),
        ("dot + keys + labels", "dp-k-yv"),
        ("L2 + queries", "l2-qk-v"),
        ("L2 + queries + labels", "l2-qk-yv"),
        ("L2 + keys", "l2-k-v"),
        ("Step-2: L2 + keys + labels", "step-2"),
    )
)


class Pair(NamedTuple):
    """Two consecutive steps on a set, apart in the published runs.

    Attributes:
        label: The set.
        before: Name of the earlier step.
        after: Name of the later step.
        published: Their published means.
        ours: Our means; None if one of the steps was not run.
        published_gain: By how much the later step is better, negative if worse.
        gain: The same of ours.
    """

    label: str
    before: str
    after: str
    published: tuple[float, float]
    ours: tuple[float, float] | None
    published_gain: float
    gain: float | None

    @property
    def agrees(self) -> bool:
        """Whether the step goes the same way on both sides."""
        return self.gain is not None and self.gain * self.published_gain > 0


def ordered_pairs(grid: Grid) -> list[Pair]:
    """Return all consecutive steps that are apart in the published runs."""
    pairs = []
    for label in grid.sets:
        larger = grid.results.larger_is_better(label)
        for before, after in zip(grid.rows[:-1], grid.rows[1:], strict=True):
            names = (before.name, after.name)
            published = _scores(grid.published[label], names)
            if published is None or not compare(*published, larger_is_better=larger):
                continue
            ours = _scores(grid.ours[label], names)
            pairs.append(
                Pair(
                    label,
                    *names,
                    (published[0].mean, published[1].mean),
                    ours and (ours[0].mean, ours[1].mean),
                    _gain(published, larger),
                    ours and _gain(ours, larger),
                )
            )
    return pairs


def _scores(
    cells: Mapping[str, Cell], names: tuple[str, str]
) -> tuple[Score, Score] | None:
    if not all(name in cells for name in names):
        return None
    return cells[names[0]].score, cells[names[1]].score


def _gain(scores: tuple[Score, Score], larger: bool) -> float:
    gain = scores[1].mean - scores[0].mean
    return gain if larger else -gain


def order_text(pairs: list[Pair]) -> str:
    """Return how many steps go the same way, and which do not."""
    run = [pair for pair in pairs if pair.ours is not None]
    same = [pair for pair in run if pair.agrees]
    text = (
        f"In the published runs {len(pairs)} of the steps change a set's score by more"
        " than the standard deviation of the better one, to the better or the worse."
    )
    if not run:
        return f"{text} None of these was run by us."
    text += f" Of {len(run)} that we ran, {len(same)} go the same way in ours."
    others = [_describe(pair) for pair in run if not pair.agrees]
    return f"{text} The other way: {'; '.join(others)}." if others else text


def _describe(pair: Pair) -> str:
    assert pair.ours is not None
    arrow = "{0:.4g} to {1:.4g}"
    return (
        f"{pair.before} to {pair.after} on {pair.label} (published"
        f" {arrow.format(*pair.published)}, ours {arrow.format(*pair.ours)})"
    )


def to_frame(pairs: list[Pair]) -> pd.DataFrame:
    """Return a line for each pair, all digits."""
    lines = [
        (
            *pair[:3],
            *pair.published,
            *(pair.ours or (None, None)),
            None if pair.ours is None else pair.agrees,
        )
        for pair in pairs
    ]
    means = ("published_before", "published_after", "ours_before", "ours_after")
    columns = ["set", "before", "after", *means, "same_way"]
    return pd.DataFrame(lines, columns=columns)
