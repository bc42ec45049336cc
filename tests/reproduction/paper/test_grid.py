"""Tables of models and sets, from known numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from reproduction.paper.grid import (
    Grid,
    Row,
    average_ranks,
    comparisons,
    counted_sets,
    fill,
    improved,
    set_ranks,
    shared,
    to_frame,
)

from ..folders import add_runs, publish, results_of

ROWS = (
    Row("MLP", ("mlp",)),
    Row("XGBoost", ("xgboost",)),
    Row("TabR", ("tabr", "tabr-lr")),
)
SETS = ("california", "adult", "house")


@pytest.fixture
def grid(tmp_path: Path) -> Grid:
    publish(
        tmp_path,
        {
            ("california", "MLP", "single"): (0.50, 0.02),
            ("california", "XGBoost", "single"): (0.43, 0.01),
            ("california", "TabR (LR)", "single"): (0.42, 0.02),
            ("adult", "MLP", "single"): (0.85, 0.01),
            ("adult", "XGBoost", "single"): (0.87, 0.01),
            ("adult", "TabR (PLR-lite)", "single"): (0.80, 0.01),
            ("adult", "TabR (LR)", "single"): (0.99, 0.01),
            ("house", "XGBoost", "single"): (3.0, 0.0),
            ("house", "TabR (PLR-lite)", "single"): (2.0, 0.0),
        },
    )
    add_runs(tmp_path, "california", "mlp-tuned", [0.44, 0.46])
    add_runs(tmp_path, "california", "xgboost-tuned", [0.43, 0.45])
    add_runs(tmp_path, "california", "tabr-tuned", [0.1])  # there the paper has tabr-lr
    add_runs(tmp_path, "california", "tabr-lr-tuned", [0.40, 0.42])
    add_runs(tmp_path, "adult", "xgboost-tuned", [0.86, 0.88])
    add_runs(tmp_path, "adult", "tabr-tuned", [0.80])
    add_runs(tmp_path, "house", "xgboost-tuned", [3.0, 3.0])
    add_runs(tmp_path, "house", "tabr-tuned", [2.5, 2.7])
    return fill(results_of(tmp_path), ROWS, SETS)


def test_a_row_means_the_method_that_was_published(grid: Grid) -> None:
    assert grid.ours["california"]["TabR"].score.mean == pytest.approx(0.41)
    assert grid.published["adult"]["TabR"].score.mean == 0.80
    assert "MLP" not in grid.ours["adult"] and "MLP" not in grid.published["house"]


def test_ranks_follow_from_the_numbers(grid: Grid) -> None:
    found = set_ranks(grid, grid.ours, "california")
    assert found == {"TabR": 1, "XGBoost": 2, "MLP": 2}
    found = set_ranks(grid, grid.published, "california")
    assert found == {"TabR": 1, "XGBoost": 1, "MLP": 2}
    found = set_ranks(grid, grid.published, "adult")
    assert found == {"XGBoost": 1, "MLP": 2, "TabR": 3}


def test_ranks_are_averaged_over_the_sets_that_all_rows_have(grid: Grid) -> None:
    # No MLP of ours on adult; nobody has one on house, so that house counts.
    assert counted_sets(grid) == ["california", "house"]
    ours = average_ranks(grid, shared(grid, grid.ours), counted_sets(grid))
    assert ours == {"MLP": (2, 0), "XGBoost": (2, 0), "TabR": (1, 0)}
    published = average_ranks(grid, grid.published, SETS)
    assert published["XGBoost"].mean == pytest.approx(4 / 3)
    assert published["TabR"].mean == pytest.approx(5 / 3)
    assert published["TabR"].std == pytest.approx((8 / 9) ** 0.5)


def test_a_row_that_was_never_run_does_not_hold_the_others_up(grid: Grid) -> None:
    rows = (*ROWS, Row("kNN", ("knn",)))
    assert counted_sets(fill(grid.results, rows, SETS)) == ["california", "house"]


def test_one_row_alone_has_no_rank(grid: Grid) -> None:
    alone = fill(grid.results, ROWS[:1], SETS)
    assert set_ranks(alone, alone.ours, "california") == {}
    assert counted_sets(alone) == []


def test_a_step_improves_if_it_is_better_by_its_own_deviation(grid: Grid) -> None:
    assert improved(grid, grid.published, "california") == {"XGBoost"}
    assert improved(grid, grid.published, "adult") == {"XGBoost"}
    assert improved(grid, grid.ours, "california") == {"TabR"}


def test_cells_are_held_to_two_published_deviations(grid: Grid) -> None:
    found = {(c.row, c.label): c for c in comparisons(grid)}
    assert ("MLP", "adult") not in found
    assert found["XGBoost", "california"].is_within
    assert found["XGBoost", "california"].better_by_stds == pytest.approx(-1)
    assert not found["MLP", "california"].is_within
    assert found["MLP", "california"].better_by_stds == pytest.approx(2.5)
    assert not found["TabR", "house"].is_within  # a deviation of zero
    assert found["XGBoost", "house"].is_within


def test_one_published_run_and_wrong_formulas_set_no_bound(tmp_path: Path) -> None:
    publish(tmp_path, {("california", "kNN", "single"): (0.5, 0.0)}, n_runs=1)
    add_runs(tmp_path, "california", "knn-tuned", [0.6])
    results = results_of(tmp_path)
    assert comparisons(fill(results, [Row("kNN", ("knn",))], SETS)) == []
    publish(tmp_path, {("california", "kNN", "single"): (0.5, 0.0)}, n_runs=2)
    results = results_of(tmp_path)
    row = Row("kNN", ("knn",))
    assert len(comparisons(fill(results, [row], SETS))) == 1
    assert comparisons(fill(results, [row._replace(comparable=False)], SETS)) == []


def test_the_file_has_a_line_for_each_cell(grid: Grid) -> None:
    frame = to_frame(grid).set_index(["model", "set"])
    assert len(frame) == 9
    line = frame.loc["TabR", "california"]
    assert (line["method"], line["ours_runs"], line["ours_rank"]) == ("tabr-lr", 2, 1)
    assert frame["ours"].isna().sum() == 2
    assert frame.loc["MLP", "california"]["better_by_published_stds"] > 2
