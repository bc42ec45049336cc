"""The scores of our runs and of the paper's, in one shape."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from reproduction.results_folder import ResultsFolder
from reproduction.runs import Run, RunKind, time_of_a_fit
from tabr.bench.methods import METHODS
from tabr.bench.ranks import Score, pooled, ranks
from tabr.bench.results import Result, name_parts
from tabr.bench.tasks.catalog import TASKS

KINDS: tuple[RunKind, ...] = ("ensemble", "single")  # the paper's tables come first
_PUBLISHED_KINDS: Mapping[str, RunKind] = {
    "single": "single",
    "ensemble of 5": "ensemble",
}
_CONFIGS = ("tuned", "default")
# Where the published SAINT was repaired, the paper shows the repaired one.
_OTHER_NAMES = {"SAINT (fixed)": "saint"}
_SECOND = re.compile(r"why/(?:classif|regression)-\w+-\w+-(\d+)-(.+)")


class Model(NamedTuple):
    """A method of the registry and where its parameters come from."""

    method: str
    config: str = "tuned"


class Cell(NamedTuple):
    """The runs of one model on one set, summed up.

    Attributes:
        score: Their mean and standard deviation.
        n_runs: How many there are.
        seconds: Mean time of a fit, of those runs that shared the hardware with the
            fewest others; not a number if it is not known.
        hardware: Where they ran, as far as it is known.
        workers: How many runs shared the hardware while these were timed, the fewest
            and the most.
    """

    score: Score
    n_runs: int
    seconds: float = math.nan
    hardware: tuple[str, ...] = ()
    workers: tuple[int, int] = (1, 1)


def compare(first: Score, second: Score, *, larger_is_better: bool) -> int:
    """Return 1 if the first is better, -1 if it is worse, 0 if they are not apart."""
    scores = {"first": first, "second": second}
    rank_of = ranks(scores, larger_is_better=larger_is_better)
    return rank_of["second"] - rank_of["first"]


Parts = Mapping[int, Cell]  # a cell for each split


@dataclass(frozen=True)
class Scores:
    """Cells by model, kind and set; a set of several splits has a cell for each."""

    parts: Mapping[tuple[Model, RunKind, str], Parts]

    def splits(self, model: Model, kind: RunKind, label: str) -> set[int]:
        """Return the splits of a set that have runs."""
        return set(self.parts.get((model, kind, label), {}))

    def cell(
        self,
        model: Model,
        kind: RunKind,
        label: str,
        splits: Collection[int] | None = None,
    ) -> Cell | None:
        """Return all runs of a model on a set, or on some of its splits, as one cell.

        None if there are no runs. Splits have the same weight, whatever their seeds.
        """
        parts = self.parts.get((model, kind, label), {})
        cells = [c for s, c in sorted(parts.items()) if splits is None or s in splits]
        return _pooled_cell(cells) if cells else None

    def labels(self, model: Model, kind: RunKind) -> list[str]:
        """Return the sets on which a model was run."""
        return [label for m, k, label in self.parts if (m, k) == (model, kind)]


class Results(NamedTuple):
    """Both sides, and the measure of each set: "rmse" or "accuracy"."""

    ours: Scores
    published: Scores
    metrics: Mapping[str, str]

    @property
    def at_hand(self) -> set[str]:
        """The sets with runs of ours: the others may lack a table here."""
        return {label for _, _, label in self.ours.parts}

    def larger_is_better(self, label: str) -> bool:
        """Whether a larger score of a set is better."""
        return self.metrics[label] == "accuracy"


def read_results(folder: ResultsFolder) -> Results:
    """Return the runs and the published figures of a results folder."""
    published, metrics = _published(folder)
    metrics |= {task.label: task.metric for task in TASKS}
    return Results(_ours(folder.runs), published, metrics)


def _ours(runs: Iterable[Run]) -> Scores:
    """Return runs by cell, without those that no figure can be compared with."""
    comparable: dict[tuple[str, str], str]
    comparable = {(t.benchmark, t.name): t.label for t in TASKS if t.comparable}
    groups: dict[tuple[Model, RunKind, str], dict[int, list[Result]]] = {}
    for kind, result in runs:
        model = Model(*name_parts(result.method))
        label = comparable.get((result.benchmark, result.task))
        if label is None or model.method not in METHODS:
            continue
        if model.config in _CONFIGS:
            splits = groups.setdefault((model, kind, label), defaultdict(list))
            splits[result.split].append(result)
    return Scores(
        {
            key: {split: _cell(part) for split, part in splits.items()}
            for key, splits in groups.items()
        }
    )


def _cell(results: list[Result]) -> Cell:
    score = pooled(Score(result.test, 0.0) for result in results)
    hardware = tuple(sorted({result.hardware for result in results}))
    seconds, fewest = time_of_a_fit((r.seconds, r.workers) for r in results)
    return Cell(score, len(results), seconds, hardware, (fewest, fewest))


def _pooled_cell(cells: list[Cell]) -> Cell:
    return Cell(
        pooled(cell.score for cell in cells),
        sum(cell.n_runs for cell in cells),
        math.fsum(cell.seconds for cell in cells) / len(cells),
        tuple(sorted({name for cell in cells for name in cell.hardware})),
        (min(c.workers[0] for c in cells), max(c.workers[1] for c in cells)),
    )


def _published(folder: ResultsFolder) -> tuple[Scores, dict[str, str]]:
    models = _published_models()
    parts: dict[tuple[Model, RunKind, str], dict[int, Cell]] = {}
    metrics: dict[str, str] = {}
    rows = folder.all_published.fillna({"gpu": ""})
    for row in rows.to_dict("records"):
        label, split = place(str(row["dataset"]))
        metrics[label] = str(row["metric"])
        if row["model"] in models:
            key = (models[row["model"]], _PUBLISHED_KINDS[row["kind"]], label)
            parts.setdefault(key, {})[split] = Cell(
                Score(float(row["test_mean"]), float(row["test_std"])),
                int(row["runs"]),
                float(row["train_seconds"]),
                tuple(name for name in row["gpu"].split("; ") if name),
            )
    return Scores(parts), metrics


def _published_models() -> dict[str, Model]:
    """Return the model behind each published name that we have a method for."""
    names = {e.published: name for name, e in METHODS.items() if e.published}
    names |= _OTHER_NAMES
    tuned = {name: Model(method, "tuned") for name, method in names.items()}
    default = {f"{n} default": Model(method, "default") for n, method in names.items()}
    return tuned | default


def place(published: str) -> tuple[str, int]:
    """Return our label and the split of a set from its published name.

    >>> place("why/classif-num-medium-4-wine")
    ('why/wine', 4)
    >>> place("higgs-small")
    ('higgs-small', 0)
    """
    match = _SECOND.fullmatch(published)
    return (f"why/{match[2]}", int(match[1])) if match else (published, 0)
