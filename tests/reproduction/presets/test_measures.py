"""Log loss and others of runs that have kept them."""

from __future__ import annotations

from pathlib import Path

from reproduction.presets.measures import measure_lines
from reproduction.presets.text import measure_table
from reproduction.results_folder import ResultsFolder

from ..folders import add_runs


def kept(loss: float) -> dict[str, dict[str, float]]:
    return {"val": {}, "test": {"log-loss": loss, "roc-auc": 0.9}}


def test_only_common_splits_and_runs_with_scores_count(tmp_path: Path) -> None:
    add_runs(tmp_path, "why/rl", "tabr-d-default", [0.9, 0.9], scores=kept(0.3))
    add_runs(tmp_path, "why/rl", "tabr-d-default", [0.9], split=1, scores=kept(9.0))
    add_runs(tmp_path, "why/rl", "catboost-default", [0.9], scores=kept(0.2))
    add_runs(tmp_path, "why/rl", "xgboost-default", [0.9])
    add_runs(tmp_path, "adult", "tabr-d-default", [0.9], scores=kept(0.3))
    lines = measure_lines(ResultsFolder(tmp_path).runs)
    assert [(line.label, line.measure.name) for line in lines] == [
        ("why/rl", "log-loss"),
        ("why/rl", "roc-auc"),
    ]
    assert lines[0].splits == {0}
    assert lines[0].best == {"CatBoost default"}
    table = measure_table(lines)
    assert "| log-loss ↓ | 1 | 0.3000 ± 0.0000 | **0.2000** (1 run) |" in table
    assert "XGBoost" not in table


def test_trees_that_log_loss_stopped_stand_apart(tmp_path: Path) -> None:
    add_runs(tmp_path, "why/rl", "tabr-d-default", [0.9], scores=kept(0.3))
    for config, loss in (("default", 0.4), ("default@log-loss", 0.2)):
        method = f"catboost-{config}"
        add_runs(tmp_path, "why/rl", method, [0.9], scores=kept(loss))
    losses = measure_lines(ResultsFolder(tmp_path).runs)[0]
    means = {name: cell.score.mean for name, cell in losses.cells.items()}
    assert means == {
        "preset default": 0.3,
        "CatBoost default": 0.4,
        "CatBoost default, stopped by log loss": 0.2,
    }


def test_trees_alone_make_no_line(tmp_path: Path) -> None:
    add_runs(tmp_path, "adult", "catboost-default", [0.9], scores=kept(0.2))
    add_runs(tmp_path, "adult", "xgboost-default", [0.9], scores=kept(0.2))
    assert measure_lines(ResultsFolder(tmp_path).runs) == []
