"""Wins, ties and losses against boosted trees, set by set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from reproduction.paper.scores import Cell, Model, Results, Scores, compare
from reproduction.runs import RunKind
from tabr.text import ABSENT


class WinTieLoss(NamedTuple):
    """Counts of tables where a method was better than another, as good, and worse."""

    win: int
    tie: int
    loss: int


TREES = {"XGBoost": "xgboost", "CatBoost": "catboost", "LightGBM": "lightgbm"}
WORDS = {1: "win", 0: "tie", -1: "loss"}  # of outcomes
N_PAPER = 43  # sets of the paper's second benchmark

# The models that the paper's table compares with trees on the second benchmark.
CHALLENGERS = {
    "MLP": Model("mlp"),
    "MLP-PLR": Model("mlp-plr"),
    "TabR-S": Model("tabr-s"),
    "TabR": Model("tabr"),
    "TabR-S default": Model("tabr-s", "default"),
}
# The paper's own counts over all its sets, of ensembles.
PAPER = {
    ("MLP", "XGBoost"): WinTieLoss(6, 11, 26),
    ("MLP", "CatBoost"): WinTieLoss(6, 8, 29),
    ("MLP", "LightGBM"): WinTieLoss(5, 11, 27),
    ("MLP-PLR", "XGBoost"): WinTieLoss(12, 17, 14),
    ("MLP-PLR", "CatBoost"): WinTieLoss(10, 11, 22),
    ("MLP-PLR", "LightGBM"): WinTieLoss(14, 15, 14),
    ("TabR-S", "XGBoost"): WinTieLoss(21, 13, 9),
    ("TabR-S", "CatBoost"): WinTieLoss(17, 11, 15),
    ("TabR-S", "LightGBM"): WinTieLoss(21, 15, 7),
    ("TabR", "XGBoost"): WinTieLoss(26, 14, 3),
    ("TabR", "CatBoost"): WinTieLoss(23, 13, 7),
    ("TabR", "LightGBM"): WinTieLoss(26, 14, 3),
    ("TabR-S default", "XGBoost"): WinTieLoss(28, 10, 5),
    ("TabR-S default", "CatBoost"): WinTieLoss(17, 16, 10),
    ("TabR-S default", "LightGBM"): WinTieLoss(25, 9, 9),
}


class SetOutcome(NamedTuple):
    """Two models on a set: their cells over common splits, and which is better.

    Attributes:
        label: The set.
        splits: Those that both models have.
        first: The cell of the first model.
        second: That of the other one.
        outcome: 1 if the first is better, -1 if it is worse, 0 if they are not apart.
    """

    label: str
    splits: frozenset[int]
    first: Cell
    second: Cell
    outcome: int


class Outcomes(NamedTuple):
    """One model against another, set by set.

    Attributes:
        ours: Our runs.
        same_sets: The published runs on the sets and splits of ours.
        all_sets: The published runs on all their sets.
    """

    ours: list[SetOutcome]
    same_sets: list[SetOutcome]
    all_sets: list[SetOutcome]

    @property
    def n_agreeing(self) -> int:
        """On how many sets ours and the published runs have the same outcome."""
        published = {line.label: line.outcome for line in self.same_sets}
        return sum(published.get(line.label) == line.outcome for line in self.ours)


def outcome_on(
    results: Results,
    scores: Scores,
    models: tuple[Model, Model],
    kind: RunKind,
    label: str,
    splits: frozenset[int] | None = None,
) -> SetOutcome | None:
    """Return the outcome on a set, over common splits; None if there are none."""
    first, second = (scores.splits(model, kind, label) for model in models)
    common = frozenset(first & second)
    if splits is not None:
        common &= splits
    cells = [scores.cell(model, kind, label, common) for model in models]
    if cells[0] is None or cells[1] is None:
        return None
    larger = results.larger_is_better(label)
    outcome = compare(cells[0].score, cells[1].score, larger_is_better=larger)
    return SetOutcome(label, common, cells[0], cells[1], outcome)


def outcomes_of(
    results: Results, models: tuple[Model, Model], kind: RunKind, sets: Sequence[str]
) -> Outcomes:
    """Return the outcomes on all sets, of our runs and of the published ones."""

    def lines(
        scores: Scores, splits: Mapping[str, frozenset[int] | None]
    ) -> list[SetOutcome]:
        compared = (
            outcome_on(results, scores, models, kind, label, chosen)
            for label, chosen in splits.items()
        )
        return [line for line in compared if line is not None]

    ours = lines(results.ours, dict.fromkeys(sets))
    same_sets = lines(results.published, {line.label: line.splits for line in ours})
    return Outcomes(ours, same_sets, lines(results.published, dict.fromkeys(sets)))


def second_sets(results: Results) -> list[str]:
    """Return the sets of the second benchmark that have runs of either side."""
    parts = (results.ours.parts, results.published.parts)
    labels = {label for side in parts for _, _, label in side}
    return sorted((s for s in labels if s.startswith("why/")), key=str.lower)


def count(lines: Sequence[SetOutcome]) -> WinTieLoss:
    """Return the numbers of wins, ties and losses."""
    outcomes = [line.outcome for line in lines]
    return WinTieLoss(outcomes.count(1), outcomes.count(0), outcomes.count(-1))


def count_text(lines: Sequence[SetOutcome]) -> str:
    """Return wins / ties / losses as text.

    >>> count_text([])
    '-'
    """
    return " / ".join(map(str, count(lines))) if lines else ABSENT


def second_outcomes(results: Results, kind: RunKind) -> dict[tuple[str, str], Outcomes]:
    """Return the comparisons of the second benchmark, as in the paper's table."""
    sets = second_sets(results)
    return {
        (name, tree): outcomes_of(
            results, (model, Model(method, model.config)), kind, sets
        )
        for name, model in CHALLENGERS.items()
        for tree, method in TREES.items()
    }


def rows(results: Results, kind: RunKind) -> list[list[str]]:
    """Return the lines of the table of the second benchmark."""
    lines = []
    for (name, tree), outcomes in second_outcomes(results, kind).items():
        paper = PAPER[name, tree] if kind == "ensemble" else None
        lines.append(
            [
                name,
                tree,
                str(len(outcomes.ours) or ABSENT),
                count_text(outcomes.ours),
                count_text(outcomes.same_sets),
                f"{outcomes.n_agreeing}" if outcomes.ours else ABSENT,
                count_text(outcomes.all_sets),
                " / ".join(map(str, paper)) if paper else ABSENT,
            ]
        )
    return lines


def side_lines(
    about: Mapping[str, str], outcomes: Outcomes, paper: WinTieLoss | None = None
) -> list[dict[str, object]]:
    """Return a line of counts for each side, which begins with what it is about."""
    sides = {
        "ours": count(outcomes.ours),
        "published, the same sets": count(outcomes.same_sets),
        "published, all their sets": count(outcomes.all_sets),
    }
    if paper is not None:
        sides["paper"] = paper
    return [
        {**about, "side": side, "sets": sum(counts), **counts._asdict()}
        for side, counts in sides.items()
    ]


def to_frame(results: Results, kind: RunKind) -> pd.DataFrame:
    """Return a line for each comparison and side."""
    lines = []
    for (name, tree), outcomes in second_outcomes(results, kind).items():
        paper = PAPER[name, tree] if kind == "ensemble" else None
        about = {"model": name, "against": tree, "kind": kind}
        lines += side_lines(about, outcomes, paper)
    return pd.DataFrame(lines)


def not_ours(results: Results) -> list[str]:
    """Return the published sets that nothing of ours can be compared on."""
    return [label for label in second_sets(results) if label not in results.at_hand]


def not_run(results: Results, kind: RunKind) -> str:
    """Return a sentence on models without runs of ours on the second benchmark."""
    run = {
        model
        for model, kind_of_run, label in results.ours.parts
        if kind_of_run == kind and label.startswith("why/")
    }
    wanted = dict(CHALLENGERS)
    for tree, method in TREES.items():
        wanted |= {tree: Model(method), f"{tree} default": Model(method, "default")}
    absent = [name for name, model in wanted.items() if model not in run]
    return f"Not run: {', '.join(absent) or 'nothing'}."
