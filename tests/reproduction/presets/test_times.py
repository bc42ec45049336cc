"""Seconds of a fit, each hardware by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from reproduction.presets.boards import DEFAULT
from reproduction.presets.text import time_table
from reproduction.presets.times import comparable, mean_seconds, times
from reproduction.results_folder import ResultsFolder

from ..folders import add_runs


def test_times_of_a_cpu_and_a_gpu_are_never_in_one_mean(tmp_path: Path) -> None:
    add = {"hardware": "a CPU", "threads": 1, "workers": 1}
    add_runs(tmp_path, "california", "tabr-d-default", [0.4], seconds=2.0, **add)
    add_runs(tmp_path, "house", "tabr-d-default", [3e4], seconds=8.0, **add)
    add_runs(tmp_path, "adult", "tabr-d-default", [0.9], seconds=50.0)
    add_runs(tmp_path, "house", "catboost-default", [3e4], seconds=9.0, **add)
    add_runs(tmp_path, "california", "catboost-default", [0.4], seconds=1.0, **add)
    add_runs(tmp_path, "churn", "catboost-default", [0.8], seconds=77.0, **add)
    by_hardware = times(ResultsFolder(tmp_path).runs)
    assert list(by_hardware) == ["a CPU", "a GPU"]
    own, trees = by_hardware["a CPU"]
    assert own.contestant == DEFAULT
    assert mean_seconds(own, own.seconds) == pytest.approx(4.0)
    assert comparable([own, trees]) == ([own, trees], ["california", "house"])
    assert mean_seconds(trees, ["california", "house"]) == pytest.approx(3.0)
    table = time_table(by_hardware)
    assert "| a CPU | preset default | 1 | 1 | 2 | 4.0 | 2 | 2.0 to 8.0 | 2 |" in table
    assert "| a GPU | preset default | all | 4 | 1 | 50.0 | 1 |" in table


def test_who_ran_on_few_sets_does_not_leave_only_these(tmp_path: Path) -> None:
    for label in ("california", "house", "adult"):
        add_runs(tmp_path, label, "tabr-d-default", [0.4])
    add_runs(tmp_path, "house", "tabr-best-default", [0.4], seconds=9.0)
    (rows,) = times(ResultsFolder(tmp_path).runs).values()
    enough, common = comparable(rows)
    assert [row.contestant for row in enough] == [DEFAULT]
    assert common == ["adult", "california", "house"]
    assert "| preset best | all | 4 | 1 | - | - | 9.0 to 9.0 | 1 |" in time_table(
        {"a GPU": rows}
    )
