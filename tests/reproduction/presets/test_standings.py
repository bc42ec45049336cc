"""Counts, ranks and gaps."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from reproduction.paper.win_tie_loss import WinTieLoss
from reproduction.presets.boards import DEFAULT, SETS, Board, board
from reproduction.presets.standings import count, gaps_closed, mean_ranks

from ..folders import add_runs, publish, results_of

RIVAL = "XGBoost tuned"


def make(out: Path) -> Board:
    """Return a board of a better set, a tie and a set with a single run."""
    publish(
        out,
        {
            ("california", "XGBoost", "single"): (0.5, 0.001),
            ("house", "XGBoost", "single"): (31000.0, 100.0),
            ("adult", "XGBoost", "single"): (0.90, 0.0),
            ("california", "CatBoost", "single"): (0.6, 0.0),
            ("house", "CatBoost", "single"): (29000.0, 0.0),
            ("adult", "CatBoost", "single"): (0.85, 0.0),
        },
    )
    add_runs(out, "california", "tabr-d-default", [0.39, 0.41])
    add_runs(out, "house", "tabr-d-default", [30000.0, 31800.0])
    add_runs(out, "adult", "tabr-d-default", [0.80])
    return board(results_of(out), DEFAULT)


def test_means_and_outcomes_by_the_papers_rule_are_counted_apart(
    tmp_path: Path,
) -> None:
    counts = count(make(tmp_path), RIVAL, SETS)
    assert (counts.better, counts.worse) == (2, 1)
    # House is no further than its deviation; adult has one run, so no deviation.
    assert counts.outcomes == WinTieLoss(1, 1, 0)


def test_errors_of_both_kinds_are_averaged_as_ratios(tmp_path: Path) -> None:
    made = make(tmp_path)
    assert count(made, RIVAL, ["adult"]).error == pytest.approx(100)  # .2 over .1
    assert count(made, RIVAL, ["california"]).error == pytest.approx(-20)
    both = count(made, RIVAL, ["adult", "california"]).error
    assert both == pytest.approx(100 * (math.sqrt(2 * 0.8) - 1))
    assert math.isnan(count(made, RIVAL, ["churn"]).error)


def test_ranks_and_gaps_are_over_sets_that_all_have(tmp_path: Path) -> None:
    made = make(tmp_path)
    names = [DEFAULT.name, RIVAL, "CatBoost tuned"]
    # Ranks on adult 3 1 2, california 1 2 3, house 2 3 1.
    assert mean_ranks(made, SETS) == dict.fromkeys(names, 2.0)
    assert gaps_closed(made, ["adult"]) == pytest.approx(
        {DEFAULT.name: 0.0, RIVAL: 1.0, "CatBoost tuned": 0.5}
    )
    add_runs(tmp_path, "churn", "tabr-d-default", [0.8])
    assert board(results_of(tmp_path), DEFAULT).common_sets == [
        "adult",
        "california",
        "house",
    ]


def test_equal_scores_share_their_rank_and_close_no_gap(tmp_path: Path) -> None:
    publish(tmp_path, {("california", "XGBoost", "single"): (0.5, 0.0)})
    add_runs(tmp_path, "california", "tabr-d-default", [0.5])
    made = board(results_of(tmp_path), DEFAULT)
    assert mean_ranks(made, SETS) == {DEFAULT.name: 1.5, RIVAL: 1.5}
    assert gaps_closed(made, SETS) == {}
    counts = count(made, RIVAL, SETS)
    assert (counts.better, counts.worse) == (0, 0)
