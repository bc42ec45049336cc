"""What was run."""

from __future__ import annotations

from pathlib import Path

from reproduction.paper import coverage
from reproduction.paper.scores import read_results
from tabr.bench.methods import METHODS

from .made import keep, publish


def test_runs_and_sets_are_counted_for_each_model(tmp_path: Path) -> None:
    publish(tmp_path, {})
    keep(tmp_path, "adult", "mlp-tuned", [0.8, 0.8], hardware="a CPU")
    keep(tmp_path, "house", "mlp-tuned", [0.8])
    keep(tmp_path, "why/rl", "mlp-tuned", [0.8, 0.8, 0.8], split=1)
    keep(tmp_path, "why/rl", "mlp-tuned", [0.8], split=2)
    keep(tmp_path, "why/rl", "knn-default", [0.8], kind="ensemble")
    results = read_results(tmp_path)
    assert coverage.rows(results) == [
        ["`knn`, default", "a GPU", "-", "-", "-", "1 on 1"],
        ["`mlp`, tuned", "a CPU and a GPU", "3 on 2", "4 on 1", "-", "-"],
    ]
    assert set(METHODS) - set(coverage.never_run(results)) == {"knn", "mlp"}
