"""A table of models and sets: scores of both sides, the best, and average ranks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from reproduction.paper.scores import Cell, Model, Results, compare
from reproduction.runs import RunKind
from tabr.bench.ranks import ranks
from tabr.bench.tasks.catalog import TASKS

# The paper's order: by the number of rows.
SETS = (
    "churn",
    "california",
    "house",
    "adult",
    "diamond",
    "otto",
    "higgs-small",
    "black-friday",
    "weather-small",
    "covtype",
    "microsoft",
)
OFFICIAL = {task.label for task in TASKS if task.official}  # the paper's own splits
STDS = 2.0  # published standard deviations within which a mean may lie
_ROUNDING = 5e-7  # published figures have six decimals, and float32 about seven digits


class Row(NamedTuple):
    """A line of a table.

    Attributes:
        name: As it is shown.
        methods: Of the registry. On each set the first that has a published figure
            there is meant, as in the paper's tables.
        config: Where the parameters come from.
        comparable: Whether the published figures can be matched at all.
    """

    name: str
    methods: tuple[str, ...]
    config: str = "tuned"
    comparable: bool = True

    def model(self, results: Results, kind: RunKind, label: str) -> Model:
        """Return which model the row means on a set."""
        models = [Model(method, self.config) for method in self.methods]
        for model in models:
            if results.published.splits(model, kind, label):
                return model
        return models[0]


Side = Mapping[str, Mapping[str, Cell]]  # cells by set and name of the row


@dataclass(frozen=True)
class Grid:
    """A filled table."""

    rows: tuple[Row, ...]
    sets: tuple[str, ...]
    kind: RunKind
    results: Results
    ours: Side
    published: Side

    @property
    def run(self) -> list[str]:
        """The rows that have runs of ours on any of the sets."""
        names = [row.name for row in self.rows]
        return [n for n in names if any(n in self.ours[s] for s in self.sets)]


class Rank(NamedTuple):
    """The mean of a row's ranks over sets and their standard deviation."""

    mean: float
    std: float


class Comparison(NamedTuple):
    """How a cell of ours lies to the published one.

    Attributes:
        better_by_stds: In published standard deviations; NaN if those runs are equal.
        better_by_percent: Of the published score.
    """

    row: str
    model: Model
    label: str
    better_by_stds: float
    better_by_percent: float
    is_within: bool


def fill(
    results: Results, rows: Sequence[Row], sets: Sequence[str], kind: RunKind = "single"
) -> Grid:
    """Return a table with all its cells."""
    ours: dict[str, dict[str, Cell]] = {label: {} for label in sets}
    published: dict[str, dict[str, Cell]] = {label: {} for label in sets}
    for label in sets:
        for row in rows:
            model = row.model(results, kind, label)
            for scores, side in ((results.ours, ours), (results.published, published)):
                cell = scores.cell(model, kind, label)
                if cell is not None:
                    side[label][row.name] = cell
    return Grid(tuple(rows), tuple(sets), kind, results, ours, published)


def set_ranks(grid: Grid, side: Side, label: str) -> dict[str, int]:
    """Return the rank of each row on a set; nothing if there is one row alone."""
    scores = {name: cell.score for name, cell in side[label].items()}
    if len(scores) < 2:
        return {}
    return ranks(scores, larger_is_better=grid.results.larger_is_better(label))


def improved(grid: Grid, side: Side, label: str) -> set[str]:
    """Return the rows that are better than the row above, deviations considered."""
    cells, names = side[label], set[str]()
    larger = grid.results.larger_is_better(label)
    for before, row in zip(grid.rows[:-1], grid.rows[1:], strict=True):
        if before.name in cells and row.name in cells:
            scores = cells[row.name].score, cells[before.name].score
            if compare(*scores, larger_is_better=larger) > 0:
                names.add(row.name)
    return names


def counted_sets(grid: Grid) -> list[str]:
    """Return the sets over which ranks of both sides are averaged.

    A set counts if all rows with runs of ours on any set have some there. Rows that
    have no published figure on a set are not asked for.
    """
    run, labels = set(grid.run), []
    for label in grid.sets:
        wanted = run & set(grid.published[label])
        if len(wanted) > 1 and wanted <= set(grid.ours[label]):
            labels.append(label)
    return labels


def shared(grid: Grid, side: Side) -> Side:
    """Return the cells of a side that the other one has too."""
    return {
        label: {
            name: cell
            for name, cell in cells.items()
            if name in grid.ours[label] and name in grid.published[label]
        }
        for label, cells in side.items()
    }


def average_ranks(grid: Grid, side: Side, sets: Sequence[str]) -> dict[str, Rank]:
    """Return the mean of the ranks of rows over some sets.

    A row without a cell on a set is not ranked there, as in the paper.
    """
    by_row: dict[str, list[int]] = {row.name: [] for row in grid.rows}
    for label in sets:
        for name, rank in set_ranks(grid, side, label).items():
            by_row[name].append(rank)
    return {
        name: Rank(statistics.fmean(values), statistics.pstdev(values))
        for name, values in by_row.items()
        if values
    }


def comparisons(grid: Grid) -> list[Comparison]:
    """Return how the cells on the paper's own splits lie to the published ones.

    A published figure of a single run has no spread, so it sets no bound.
    """
    compared = []
    for label in (label for label in grid.sets if label in OFFICIAL):
        sign = 1 if grid.results.larger_is_better(label) else -1
        for row in grid.rows:
            ours = grid.ours[label].get(row.name)
            published = grid.published[label].get(row.name)
            if not (row.comparable and ours and published and published.n_runs > 1):
                continue
            gain = sign * (ours.score.mean - published.score.mean)
            std = published.score.std
            by = gain / std if std > 0 else math.nan
            rounding = _ROUNDING * max(1.0, abs(published.score.mean))
            within = abs(gain) <= STDS * (std + _ROUNDING) + rounding
            model = row.model(grid.results, grid.kind, label)
            percent = 100 * gain / abs(published.score.mean)
            compared.append(Comparison(row.name, model, label, by, percent, within))
    return compared


def to_frame(grid: Grid) -> pd.DataFrame:
    """Return a line for each cell, all digits."""
    lines = []
    compared = {(cell.row, cell.label): cell for cell in comparisons(grid)}
    for row in grid.rows:
        for label in grid.sets:
            model = row.model(grid.results, grid.kind, label)
            line: dict[str, object] = {
                "model": row.name,
                "method": model.method,
                "config": model.config,
                "kind": grid.kind,
                "set": label,
                "metric": grid.results.metrics[label],
            }
            for name, side in (("ours", grid.ours), ("published", grid.published)):
                cell = side[label].get(row.name)
                rank = set_ranks(grid, side, label).get(row.name)
                line |= {
                    name: cell and cell.score.mean,
                    f"{name}_std": cell and cell.score.std,
                    f"{name}_runs": cell and cell.n_runs,
                    f"{name}_rank": rank,
                }
            comparison = compared.get((row.name, label))
            line["better_by_published_stds"] = comparison and comparison.better_by_stds
            lines.append(line)
    frame = pd.DataFrame(lines)
    whole = [c for c in frame.columns if c.endswith(("_runs", "_rank"))]
    return frame.astype(dict.fromkeys(whole, "Int64"))
