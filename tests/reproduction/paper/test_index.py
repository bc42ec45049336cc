"""The first page."""

from __future__ import annotations

from pathlib import Path

from reproduction.paper.index import coverage_rows, never_run, to_markdown
from tabr.bench.methods import METHODS

from ..folders import add_runs, publish, results_of


def test_a_folder_without_runs_claims_nothing(tmp_path: Path) -> None:
    publish(tmp_path, {})
    text = to_markdown(results_of(tmp_path))
    assert "no clear step run yet; nothing to compare" in text
    assert "0 of 15 comparisons of ensembles" in text
    assert "of TabR-S: not run" in text
    assert "0 models timed" in text


def test_a_cell_of_two_tables_is_counted_once(tmp_path: Path) -> None:
    # Both methods stand in the table of steps and in that of the ablation.
    add_runs(tmp_path, "california", "mlp-tuned", [0.49, 0.50])
    add_runs(tmp_path, "california", "step-0-tuned", [0.60])
    add_runs(tmp_path, "california", "tabr-s-default", [0.40])
    add_runs(tmp_path, "california", "xgboost-default", [0.50])
    publish(
        tmp_path,
        {
            ("california", "MLP", "single"): (0.499, 0.004),
            ("california", "design dp-qk-v-self-scaled", "single"): (0.484, 0.006),
        },
    )
    text = to_markdown(results_of(tmp_path))
    assert (
        "0 of 1 clear steps go the published way; on the paper's own splits 1 of"
        in text
    )
    assert "1 of 2 cells within 2 published standard deviations" in text
    assert "losses of TabR-S: XGBoost 1 / 0 / 0 |" in text
    assert "| `mlp`, tuned | a GPU | 2 on 1 | - | - | - |" in text


def test_runs_and_sets_are_counted_for_each_model(tmp_path: Path) -> None:
    publish(tmp_path, {})
    add_runs(tmp_path, "adult", "mlp-tuned", [0.8, 0.8], hardware="a CPU")
    add_runs(tmp_path, "house", "mlp-tuned", [0.8])
    add_runs(tmp_path, "why/rl", "mlp-tuned", [0.8, 0.8, 0.8], split=1)
    add_runs(tmp_path, "why/rl", "mlp-tuned", [0.8], split=2)
    add_runs(tmp_path, "why/rl", "knn-default", [0.8], kind="ensemble")
    results = results_of(tmp_path)
    assert coverage_rows(results) == [
        ["`knn`, default", "a GPU", "-", "-", "-", "1 on 1"],
        ["`mlp`, tuned", "a CPU and a GPU", "3 on 2", "4 on 1", "-", "-"],
    ]
    assert set(METHODS) - set(never_run(results)) == {"knn", "mlp"}
