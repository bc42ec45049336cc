"""Wins, ties and losses against boosted trees, set by set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from reproduction.paper.scores import Cell, Model, Results, RunKind, Scores
from reproduction.paper.text import DASH
from tabr.bench.ranks import WinTieLoss, compare, count_outcomes

TREES = {"XGBoost": "xgboost", "CatBoost": "catboost", "LightGBM": "lightgbm"}
OUTCOMES = {1: "win", 0: "tie", -1: "loss"}
N_PAPER = 43  # sets of the paper's second benchmark

# Who stands against the trees on the second benchmark, as in the paper's table.
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


class Duel(NamedTuple):
    """Two models on a set: their cells over the splits that both have, who won."""

    label: str
    splits: frozenset[int]
    one: Cell
    other: Cell
    outcome: int


class Match(NamedTuple):
    """All that is known of one model against another.

    Attributes:
        ours: Our runs.
        same: The published runs on the sets and splits of ours.
        every: The published runs on all their sets.
    """

    ours: list[Duel]
    same: list[Duel]
    every: list[Duel]

    @property
    def n_agreeing(self) -> int:
        """On how many sets ours and the published runs have the same outcome."""
        published = {compare.label: compare.outcome for compare in self.same}
        return sum(
            published.get(compare.label) == compare.outcome for compare in self.ours
        )


def meet(
    results: Results,
    scores: Scores,
    models: tuple[Model, Model],
    kind: RunKind,
    label: str,
    splits: frozenset[int] | None = None,
) -> Duel | None:
    """Let two models meet on a set, over the splits that both have; None if none."""
    both = [scores.splits(model, kind, label) for model in models]
    common = frozenset(
        both[0] & both[1] if splits is None else both[0] & both[1] & splits
    )
    one, other = (scores.cell(model, kind, label, common) for model in models)
    if one is None or other is None:
        return None
    larger = results.larger_is_better(label)
    outcome = compare(one.score, other.score, larger_is_better=larger)
    return Duel(label, common, one, other, outcome)


def match(
    results: Results, one: Model, other: Model, kind: RunKind, sets: Sequence[str]
) -> Match:
    """Let two models meet on all sets, in our runs and in the published ones."""
    models = (one, other)
    ours = [meet(results, results.ours, models, kind, label) for label in sets]
    found = [compare for compare in ours if compare is not None]
    theirs = results.published
    same = [meet(results, theirs, models, kind, d.label, d.splits) for d in found]
    every = [meet(results, theirs, models, kind, label) for label in sets]
    return Match(
        found,
        [compare for compare in same if compare is not None],
        [compare for compare in every if compare is not None],
    )


def second_sets(results: Results) -> list[str]:
    """Return the sets of the second benchmark that have runs of either side."""
    parts = (results.ours.parts, results.published.parts)
    labels = {label for side in parts for _, _, label in side}
    return sorted((s for s in labels if s.startswith("why/")), key=str.lower)


def count(duels: Sequence[Duel]) -> WinTieLoss:
    """Count wins, ties and losses."""
    return count_outcomes([compare.outcome for compare in duels])


def record_text(duels: Sequence[Duel]) -> str:
    """Write wins / ties / losses.

    >>> record_text([])
    '-'
    """
    return " / ".join(map(str, count(duels))) if duels else DASH


def matches(results: Results, kind: RunKind) -> dict[tuple[str, str], Match]:
    """Return the matches of the second benchmark, as in the paper's table."""
    sets = second_sets(results)
    return {
        (name, tree): match(results, model, Model(method, model.config), kind, sets)
        for name, model in CHALLENGERS.items()
        for tree, method in TREES.items()
    }


def rows(results: Results, kind: RunKind) -> list[list[str]]:
    """Return the lines of the table of the second benchmark."""
    lines = []
    for (name, tree), found in matches(results, kind).items():
        paper = PAPER[name, tree] if kind == "ensemble" else None
        lines.append(
            [
                name,
                tree,
                str(len(found.ours) or DASH),
                record_text(found.ours),
                record_text(found.same),
                f"{found.n_agreeing}" if found.ours else DASH,
                record_text(found.every),
                " / ".join(map(str, paper)) if paper else DASH,
            ]
        )
    return lines


def to_frame(results: Results, kind: RunKind) -> pd.DataFrame:
    """Return a line for each match and side."""
    lines = []
    for (name, tree), found in matches(results, kind).items():
        sides = {
            "ours": count(found.ours),
            "published, the same sets": count(found.same),
            "published, all their sets": count(found.every),
        }
        if kind == "ensemble":
            sides["paper"] = PAPER[name, tree]
        for side, counts in sides.items():
            line = {"model": name, "against": tree, "kind": kind, "side": side}
            lines.append({**line, "sets": sum(counts), **counts._asdict()})
    return pd.DataFrame(lines)


def not_ours(results: Results) -> list[str]:
    """Return the published sets that nothing of ours can be compared on."""
    return [label for label in second_sets(results) if label not in results.at_hand]


def not_run(results: Results, kind: RunKind) -> str:
    """Name the models and trees that have no runs of ours on the second benchmark."""
    run = {
        model
        for model, found, label in results.ours.parts
        if found == kind and label.startswith("why/")
    }
    wanted = dict(CHALLENGERS)
    for tree, method in TREES.items():
        wanted |= {tree: Model(method), f"{tree} default": Model(method, "default")}
    absent = [name for name, model in wanted.items() if model not in run]
    return f"Not run: {', '.join(absent) or 'nothing'}."
