"""The preset and its rivals on common splits, and the halves of the sets."""

from __future__ import annotations

from pathlib import Path

from reproduction.presets.boards import BEST, DEFAULT, SETS, board, halves
from reproduction.results_folder import ResultsFolder

from ..folders import add_runs, publish, results_of

RL = "why/classif-cat-medium-{}-rl"


def test_the_sets_are_those_at_hand_in_alphabetical_order() -> None:
    run = {(r.result.benchmark, r.result.task) for r in ResultsFolder().runs}
    labels = {name if where == "default" else f"why/{name}" for where, name in run}
    assert set(SETS) == labels
    assert list(SETS) == sorted(SETS, key=str.lower)


def test_each_set_is_in_one_half_in_turn() -> None:
    chosen_on, kept = halves()
    assert (len(chosen_on), len(kept)) == (14, 13)
    assert chosen_on[:2] == ("adult", "california")
    assert kept[:2] == ("black-friday", "churn")
    assert sorted([*chosen_on, *kept], key=str.lower) == list(SETS)
    assert halves(SETS[::-1]) == halves(SETS)


def test_rivals_are_compared_on_the_splits_of_the_preset(tmp_path: Path) -> None:
    figures = {}
    for split, score in enumerate([0.7, 0.1, 0.1]):
        figures[RL.format(split), "XGBoost", "single"] = (score, 0.0)
    figures[RL.format(1), "CatBoost", "single"] = (0.9, 0.0)
    publish(tmp_path, figures)
    add_runs(tmp_path, "why/rl", "tabr-d-default", [0.8])
    line = board(results_of(tmp_path), DEFAULT).lines["why/rl"]
    assert line.splits == {0}
    assert line.cells["XGBoost tuned"].score.mean == 0.7
    assert "CatBoost tuned" not in line.cells  # it has another split alone


def test_the_pack_is_compared_with_ensembles(tmp_path: Path) -> None:
    figures = {
        ("california", "XGBoost", "single"): (0.4, 0.0),
        ("california", "XGBoost", "ensemble of 5"): (0.3, 0.0),
    }
    publish(tmp_path, figures, n_runs=3)
    add_runs(tmp_path, "california", "tabr-best-default", [0.35])
    results = results_of(tmp_path)
    assert board(results, DEFAULT).lines == {}
    cells = board(results, BEST).lines["california"].cells
    assert {name: cell.score.mean for name, cell in cells.items()} == {
        "preset best": 0.35,
        "five XGBoost tuned": 0.3,
    }
