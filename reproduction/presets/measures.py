"""Log loss, ROC AUC and average precision, of runs that have kept them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from reproduction.paper.scores import Cell
from reproduction.presets.boards import (
    DEFAULT_TREES,
    PRESETS,
    SETS,
    Contestant,
    runs_of,
)
from reproduction.runs import Run
from tabr.bench.ranks import Score, pooled
from tabr.bench.results import Result
from tabr.bench.tasks.catalog import TASKS
from tabr.metrics import MEASURES, Measure

SHOWN = tuple(MEASURES[n] for n in ("log-loss", "roc-auc", "average-precision"))
# Trees stop by accuracy unless told: stopped by the log loss itself they are fairer.
STOPPED_TREES = tuple(
    Contestant(
        f"{trees.name}, stopped by log loss",
        trees.side,
        trees.model._replace(config=f"{trees.model.config}@log-loss"),
    )
    for trees in DEFAULT_TREES
)
CONTESTANTS = (*PRESETS, *DEFAULT_TREES, *STOPPED_TREES)
CLASSIFIED = tuple(
    label
    for label in SETS
    if any(t.label == label and t.kind == "classification" for t in TASKS)
)


class MeasureLine(NamedTuple):
    """A measure on a set: splits that all shown have, and a cell by name."""

    label: str
    measure: Measure
    splits: frozenset[int]
    cells: dict[str, Cell]

    @property
    def best(self) -> set[str]:
        """The names with the best mean."""
        sign = -1 if self.measure.smaller_is_better else 1
        means = {name: sign * cell.score.mean for name, cell in self.cells.items()}
        return {name for name, mean in means.items() if mean == max(means.values())}


def measure_lines(runs: Iterable[Run]) -> list[MeasureLine]:
    """Return a line for each measure and set where a preset and another have it."""
    groups: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for contestant, label, result in runs_of(runs, CONTESTANTS):
        groups[contestant.name, label].append(result)
    lines = []
    for label in CLASSIFIED:
        for measure in SHOWN:
            line = _line(groups, label, measure)
            if len(line.cells) > 1 and any(p.name in line.cells for p in PRESETS):
                lines.append(line)
    return lines


def _line(
    groups: dict[tuple[str, str], list[Result]], label: str, measure: Measure
) -> MeasureLine:
    scores: dict[str, dict[int, list[float]]] = {}
    for contestant in CONTESTANTS:
        for result in groups.get((contestant.name, label), []):
            value = result.score(measure, "test")
            if value is not None:
                splits = scores.setdefault(contestant.name, {})
                splits.setdefault(result.split, []).append(value)
    common = frozenset.intersection(*map(frozenset, scores.values())) if scores else ()
    cells = {
        name: _cell([splits[split] for split in sorted(common)])
        for name, splits in scores.items()
        if common
    }
    return MeasureLine(label, measure, frozenset(common), cells)


def _cell(splits: list[list[float]]) -> Cell:
    parts = [pooled(Score(value, 0.0) for value in values) for values in splits]
    return Cell(pooled(parts), sum(map(len, splits)))
