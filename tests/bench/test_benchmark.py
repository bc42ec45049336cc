import os
import time
from pathlib import Path

import pytest

from tabr.bench.benchmark import FIRST_METHODS, Benchmark, run_all, run_benchmark
from tabr.bench.methods import METHODS
from tabr.bench.results import Plan, read, result_path
from tabr.bench.runs import Run, SeedCounts, runs_of
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.selection import TaskSelection
from tabr.bench.tasks.task import UserTable
from tabr.bench.workers import Resources
from tabr.errors import DataError, ParameterError

from .tables import TINY, files, write_churn, write_diamond, write_user_table

TRIAL = Plan("tabr-s", "trial", TINY)
CPU = Resources("cpu")
CHURN, DIAMOND = select(["churn", "diamond"])


def test_seeds_that_are_fitted_as_one_give_what_each_gives_alone(tmp_path: Path):
    write_churn(tmp_path)
    runs = runs_of([CHURN], SeedCounts(3), [TRIAL])
    single, joint = tmp_path / "single", tmp_path / "joint"
    run_all(runs, tmp_path, single, CPU)
    run_all(runs, tmp_path, joint, CPU, seeds_per_fit=3)
    for run in runs:
        results = [read(run.path(out)) for out in (single, joint)]
        # On a CPU members are fitted one by one: bit by bit the same.
        assert len({(r.val, r.test, r.best_epoch) for r in results}) == 1
        assert [r.workers for r in results] == [1, 3]


class Crash(int):
    """A seed that ends the process that reads it."""

    def __reduce__(self):
        return os._exit, (7,)


def test_runs_are_done_once_and_failures_do_not_stop_them(tmp_path: Path):
    write_churn(tmp_path)
    table = write_diamond(tmp_path)
    table.assign(target=float("inf")).to_parquet(tmp_path / "diamond.parquet")
    out = tmp_path / "out"
    runs = [
        Run(CHURN, Crash(9), TRIAL),
        Run(CHURN, 0, TRIAL),
        Run(CHURN, 1, TRIAL),
        Run(DIAMOND, 0, TRIAL),
    ]

    lines: list[str] = []
    summary = run_all(runs, tmp_path, out, CPU, log=lines.append)
    assert (summary.n_done, summary.n_failed, summary.n_left) == (2, 2, 0)
    assert lines[0] == "4 runs to do, 0 done before"
    assert lines[1].startswith(
        "tabr-s-trial diamond split 0 seed 0: FAILED, "
    )  # the longer first
    assert lines[1].endswith("; 3 left")  # nothing to estimate the time from
    assert "seed 9: FAILED, the process ended with status 7; 2 left" in lines[2]
    assert lines[3].startswith("tabr-s-trial churn split 0 seed 0: accuracy 0.")
    assert lines[4].endswith("; 0 left")
    assert lines[5].startswith("2 done, 2 failed, 0 left, 0 done before, in ")
    assert len(lines) == 6
    paths = files(out)
    assert paths == [result_path(out, CHURN, seed, TRIAL) for seed in (0, 1)]

    times = [path.stat().st_mtime_ns for path in paths]
    summary = run_all(runs[1:3], tmp_path, out, CPU)
    assert (summary.n_before, summary.n_done) == (2, 0)
    assert [path.stat().st_mtime_ns for path in paths] == times


def test_budget_ends_what_runs_and_leaves_nothing_half_written(tmp_path: Path):
    write_churn(tmp_path)
    slow = {**TINY, "max_epochs": 10**9, "patience": 10**9}
    runs = runs_of([CHURN], SeedCounts(3), [Plan("tabr-s", "trial", slow)])
    start = time.monotonic()
    summary = run_all(runs, tmp_path, tmp_path / "out", CPU, budget_seconds=4)
    assert time.monotonic() - start < 15
    assert (summary.n_done, summary.n_failed, summary.n_left) == (0, 0, 3)
    assert not (tmp_path / "out").exists()


def test_standings_are_those_of_the_methods_that_ran(tmp_path: Path):
    path, out = tmp_path / "mine.csv", tmp_path / "out"
    write_user_table(path)
    selection = TaskSelection(UserTable(path, "price"), n_splits=2)
    for methods in (["knn"], ["mlp"]):
        benchmark = Benchmark(
            selection, methods, params={}, seeds=SeedCounts(1), config="default"
        )
        summary, tables = run_benchmark(benchmark, out, CPU)
        assert (summary.n_done, summary.n_before) == (2, 0)
        ((task, table),) = tables
        assert task.label.startswith("own/mine-")
        assert table["method"].tolist() == [f"{methods[0]}-default"]
        assert table["runs"].tolist() == [2]


def test_runs_of_another_scoring_are_other_runs(tmp_path: Path):
    write_churn(tmp_path)
    out, tables = tmp_path / "out", TaskSelection(labels=["churn"], data=tmp_path)
    for scoring in (None, "accuracy", "neg_log_loss"):
        benchmark = Benchmark(
            tables, ["lightgbm"], seeds=SeedCounts(1), scoring=scoring
        )
        summary, ((_, table),) = run_benchmark(benchmark, out, CPU)
        assert (summary.n_done, summary.n_before) == (1, 0)
    assert table["method"].tolist() == ["lightgbm-default@log-loss"]
    names = ("", "@accuracy", "@log-loss")
    paths = [out / "default" / "churn" / f"lightgbm-default{name}" for name in names]
    assert [path.parent for path in files(out)] == paths
    epochs = [read(path).best_epoch for path in files(out)]
    assert len(set(epochs)) > 1
    result = read(files(out)[-1])
    assert table["score"].tolist() == [result.scores["test"]["log-loss"]]


def test_a_scoring_that_does_not_fit_a_task_is_refused(tmp_path: Path):
    selection = TaskSelection(labels=["churn", "diamond"], data=tmp_path)
    benchmark = Benchmark(selection, ["knn"], scoring="rmse")
    with pytest.raises(ParameterError, match="of classes, as churn has, must be one"):
        benchmark.runs(tmp_path)


def test_methods_depend_on_whose_table_it_is(tmp_path: Path):
    table = TaskSelection(UserTable(tmp_path / "mine.csv", "price"))
    assert Benchmark(table).method_names == list(FIRST_METHODS)
    assert Benchmark(TaskSelection()).method_names == ["tabr-s"]
    assert Benchmark(table, ["knn", "mlp", "knn"]).method_names == ["knn", "mlp"]
    assert Benchmark(table, ["all"]).method_names == list(METHODS)


def test_a_named_method_without_runs_is_refused(tmp_path: Path):
    selection = TaskSelection(labels=["churn"], data=tmp_path)
    with pytest.raises(DataError, match="however dkl cannot predict these tasks"):
        Benchmark(selection, ["knn", "dkl"]).runs(tmp_path)
    with pytest.raises(DataError, match="has no tuned parameters for them"):
        Benchmark(selection, ["modern-nca"], "tuned").runs(tmp_path)
    methods = {run.plan.method for run in Benchmark(selection, ["all"]).runs(tmp_path)}
    assert "knn" in methods and "dkl" not in methods
