"""A preset and those it is compared with, set by set and on the same splits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from reproduction.paper.scores import Cell, Model, Results
from reproduction.paper.win_tie_loss import TREES
from reproduction.runs import Run, RunKind
from tabr.bench.results import Result, name_parts
from tabr.bench.tasks.catalog import TASKS

# The sets of both benchmarks whose tables were at hand. The list is fixed, so that a
# set stays in its half when others come.
SETS = (
    "adult",
    "black-friday",
    "california",
    "churn",
    "covtype",
    "diamond",
    "house",
    "otto",
    "why/Ailerons",
    "why/analcatdata_supreme",
    "why/bank-marketing",
    "why/Bike_Sharing_Demand",
    "why/california",
    "why/compass",
    "why/covertype",
    "why/diamonds",
    "why/electricity",
    "why/elevators",
    "why/fifa",
    "why/house_16H",
    "why/houses",
    "why/kdd_ipums_la_97-small",
    "why/medical_charges",
    "why/Mercedes_Benz_Greener_Manufacturing",
    "why/rl",
    "why/wine",
    "why/wine_quality",
)


class Halves(NamedTuple):
    """The sets that recipes are chosen on, and those that are kept for the verdict."""

    chosen_on: tuple[str, ...]
    kept: tuple[str, ...]


def halves(labels: Collection[str] = SETS) -> Halves:
    """Return sets in turn, in the order of their names in lower case.

    >>> halves(["why/B", "adult", "why/a"])
    Halves(chosen_on=('adult', 'why/B'), kept=('why/a',))
    """
    in_order = sorted(labels, key=str.lower)
    return Halves(tuple(in_order[::2]), tuple(in_order[1::2]))


class Contestant(NamedTuple):
    """Whose scores are compared: a name as it is shown, and where the scores are."""

    name: str
    side: Literal["ours", "published"]
    model: Model
    kind: RunKind = "single"

    def splits(self, results: Results, label: str) -> set[int]:
        """Return the splits of a set that it has scores of."""
        side = results.ours if self.side == "ours" else results.published
        return side.splits(self.model, self.kind, label)

    def cell(
        self, results: Results, label: str, splits: Collection[int] | None = None
    ) -> Cell | None:
        """Return its runs on some splits of a set, all of them by default."""
        side = results.ours if self.side == "ours" else results.published
        return side.cell(self.model, self.kind, label, splits)


DEFAULT = Contestant("preset default", "ours", Model("tabr-d", "default"))
BEST = Contestant("preset best", "ours", Model("tabr-best", "default"))
PRESETS = (DEFAULT, BEST)
TUNED_TREES = tuple(
    Contestant(f"{name} tuned", "published", Model(method))
    for name, method in TREES.items()
)
DEFAULT_TREES = tuple(
    Contestant(f"{name} default", "ours", Model(method, "default"))
    for name, method in TREES.items()
)
TABR_S = Contestant("TabR-S default", "published", Model("tabr-s", "default"))
NETWORKS = tuple(
    Contestant(f"{title} default", "ours", Model(method, "default"))
    for method, title in (
        ("realmlp", "RealMLP"),
        ("tabm", "TabM"),
        ("modern-nca", "ModernNCA"),
    )
)
FIVES = tuple(
    Contestant(f"five {name} tuned", "published", Model(method), "ensemble")
    for name, method in {**TREES, "TabR-S": "tabr-s"}.items()
)
# One network against single models, a pack against ensembles.
RIVALS: Mapping[Contestant, tuple[Contestant, ...]] = {
    DEFAULT: (*TUNED_TREES, TABR_S, *DEFAULT_TREES),
    BEST: (*FIVES, DEFAULT),
}


def runs_of(
    runs: Iterable[Run], contestants: Iterable[Contestant]
) -> Iterator[tuple[Contestant, str, Result]]:
    """Yield the runs of some contestants on our sets: who, the set, the result."""
    by_model = {(c.model, c.kind): c for c in contestants}
    labels: dict[tuple[str, str], str]
    labels = {(task.benchmark, task.name): task.label for task in TASKS}
    for kind, result in runs:
        contestant = by_model.get((Model(*name_parts(result.method)), kind))
        label = labels.get((result.benchmark, result.task))
        if contestant is not None and label in SETS:
            yield contestant, label, result


class Line(NamedTuple):
    """A set on a board: the splits, and a cell by name of each that has them all."""

    splits: frozenset[int]
    cells: Mapping[str, Cell]


@dataclass(frozen=True)
class Board:
    """A preset and its rivals on all sets that the preset was run on."""

    preset: Contestant
    rivals: tuple[Contestant, ...]
    results: Results
    lines: Mapping[str, Line]

    @property
    def names(self) -> list[str]:
        """The names of all that have a score anywhere, the preset first."""
        named = [c.name for c in (self.preset, *self.rivals)]
        return [
            n for n in named if any(n in line.cells for line in self.lines.values())
        ]

    def with_rivals(self) -> Board:
        """Return the board without the sets where nobody else has a score."""
        lines = {s: line for s, line in self.lines.items() if len(line.cells) > 1}
        return replace(self, lines=lines)

    @property
    def common_sets(self) -> list[str]:
        """The sets on which all that have scores anywhere have one."""
        names = set(self.names)
        return [s for s, line in self.lines.items() if names <= line.cells.keys()]

    def mean(self, label: str, name: str) -> float:
        """Return the mean score of a contestant on a set."""
        return self.lines[label].cells[name].score.mean

    def error(self, label: str, name: str) -> float:
        """Return its error: RMSE, or the share of rows with another class."""
        mean = self.mean(label, name)
        return 1 - mean if self.results.larger_is_better(label) else mean


def board(
    results: Results,
    preset: Contestant,
    rivals: tuple[Contestant, ...] | None = None,
) -> Board:
    """Return the board of a preset, whose runs say which splits count.

    A rival that lacks one of these splits has no cell: it would be a mean over others.
    None are the preset's usual rivals.
    """
    rivals, lines = RIVALS[preset] if rivals is None else rivals, {}
    for label in SETS:
        splits = frozenset(preset.splits(results, label))
        cells = {
            contestant.name: cell
            for contestant in (preset, *rivals)
            if splits <= contestant.splits(results, label)
            and (cell := contestant.cell(results, label, splits)) is not None
        }
        if splits:
            lines[label] = Line(splits, cells)
    return Board(preset, rivals, results, lines)
