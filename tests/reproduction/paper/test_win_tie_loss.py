"""Wins, ties and losses, against a slow count from the published file."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from reproduction.paper import win_tie_loss
from reproduction.paper.scores import KINDS, Model
from reproduction.results_folder import PUBLISHED, RESULTS
from reproduction.runs import RunKind

from ..folders import add_runs, publish, results_of


def slow_count(model: str, tree: str, kind: str) -> list[int]:
    """Count from runs drawn so that each split has its mean and deviation exactly."""
    runs: dict[tuple[str, str], list[float]] = {}
    accuracy = set()
    with (RESULTS / PUBLISHED).open() as file:
        for row in csv.DictReader(file):
            name = row["dataset"]
            if name.startswith("why/") and row["kind"] == kind:
                group, level, size, _, *rest = name.split("-")
                table = "-".join([group, level, size, *rest])
                mean, std = float(row["test_mean"]), float(row["test_std"])
                pair = [mean - std, mean + std]
                runs.setdefault((row["model"], table), []).extend(pair)
                if row["metric"] == "accuracy":
                    accuracy.add(table)
    counts = [0, 0, 0]
    for table in sorted({table for _, table in runs}):
        if (model, table) in runs and (tree, table) in runs:
            sign = 1 if table in accuracy else -1
            one, other = (
                sign * np.array(runs[model, table]),
                sign * np.array(runs[tree, table]),
            )
            better = one if one.mean() > other.mean() else other
            if abs(one.mean() - other.mean()) <= better.std():
                counts[1] += 1
            else:
                counts[0 if better is one else 2] += 1
    return counts


@pytest.mark.parametrize(
    ("kind", "published"), [("single", "single"), ("ensemble", "ensemble of 5")]
)
def test_published_counts_are_those_of_a_slow_transcription(
    kind: RunKind, published: str
) -> None:
    pairs = win_tie_loss.second_outcomes(results_of(RESULTS), kind)
    for (name, tree), outcomes in pairs.items():
        if name == "TabR":
            names = ("TabR (PLR-lite)", tree)
        elif name.endswith("default"):
            names = (name, f"{tree} default")
        else:
            names = (name, tree)
        counts = win_tie_loss.count(outcomes.all_sets)
        assert list(counts) == slow_count(*names, published)


def test_the_counts_of_the_paper_are_of_all_its_sets() -> None:
    assert {sum(record) for record in win_tie_loss.PAPER.values()} == {
        win_tie_loss.N_PAPER
    }
    assert win_tie_loss.PAPER.keys() == {
        (name, tree) for name in win_tie_loss.CHALLENGERS for tree in win_tie_loss.TREES
    }


def rl(split: int) -> str:
    return f"why/classif-cat-medium-{split}-rl"


def test_models_meet_on_the_splits_that_both_have(tmp_path: Path) -> None:
    pair = Model("tabr-s", "default"), Model("xgboost", "default")
    add_runs(tmp_path, "why/rl", "tabr-s-default", [0.9, 0.9], split=0)
    add_runs(tmp_path, "why/rl", "tabr-s-default", [0.1, 0.1], split=1)
    add_runs(tmp_path, "why/rl", "xgboost-default", [0.8, 0.8], split=0)
    add_runs(tmp_path, "why/wine", "tabr-s-default", [0.8])  # nobody to meet
    figures = {}
    for split, score in enumerate([0.7, 0.1, 0.1]):
        figures[rl(split), "TabR-S default", "single"] = (score, 0.0)
        figures[rl(split), "XGBoost default", "single"] = (0.5, 0.0)
    publish(tmp_path, figures)
    results = results_of(tmp_path)
    sets = win_tie_loss.second_sets(results)
    assert sets == ["why/rl", "why/wine"]
    outcomes = win_tie_loss.outcomes_of(results, pair, "single", sets)
    (line,) = outcomes.ours
    assert (line.label, line.splits, line.outcome) == ("why/rl", {0}, 1)
    # The published runs win on that split, though they lose over all splits.
    assert [line.outcome for line in outcomes.same_sets] == [1]
    assert [line.outcome for line in outcomes.all_sets] == [-1]
    assert outcomes.n_agreeing == 1


def test_rows_show_both_sides_and_dashes_where_nothing_was_run(tmp_path: Path) -> None:
    add_runs(tmp_path, "why/rl", "tabr-s-default", [0.9, 0.9], kind="ensemble")
    add_runs(tmp_path, "why/rl", "xgboost-default", [0.8, 0.8], kind="ensemble")
    publish(
        tmp_path,
        {
            (rl(0), "TabR-S default", "ensemble of 5"): (0.7, 0.0),
            (rl(0), "XGBoost default", "ensemble of 5"): (0.8, 0.0),
        },
    )
    results = results_of(tmp_path)
    rows = {tuple(row[:2]): row[2:] for row in win_tie_loss.rows(results, "ensemble")}
    assert len(rows) == 15
    won = ["1", "1 / 0 / 0", "0 / 0 / 1", "0", "0 / 0 / 1", "28 / 10 / 5"]
    assert rows["TabR-S default", "XGBoost"] == won
    assert rows["TabR", "CatBoost"] == ["-", "-", "-", "-", "-", "23 / 13 / 7"]
    assert all(row[-1] == "-" for row in win_tie_loss.rows(results, "single"))
    text = win_tie_loss.not_run(results, "ensemble")
    assert "TabR-S default" not in text and "LightGBM default" in text
    frame = win_tie_loss.to_frame(results, "ensemble")
    assert len(frame) == 15 * 4
    assert (frame["sets"] == frame[["win", "tie", "loss"]].sum(axis=1)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_comparison_of_ours_has_its_published_one(kind: RunKind) -> None:
    results = results_of(RESULTS)
    for outcomes in win_tie_loss.second_outcomes(results, kind).values():
        labels = [line.label for line in outcomes.ours]
        assert [line.label for line in outcomes.same_sets] == labels
        assert set(labels) <= {line.label for line in outcomes.all_sets}
