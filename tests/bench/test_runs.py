from dataclasses import replace
from types import SimpleNamespace

import pytest

from tabr.bench.results import Plan
from tabr.bench.runs import Forecast, Progress, Run, SeedCounts, batches_of, runs_of
from tabr.bench.tasks.catalog import select
from tabr.bench.workers import Failure

from .test_results import RESULT

ADULT, CHURN, DIAMOND, COVTYPE = select(["adult", "churn", "diamond", "covtype"])


def test_long_tasks_and_the_second_benchmark_may_have_other_numbers_of_seeds():
    wine = select(["why/wine"])[0]
    seeds = SeedCounts(15, n_long=3, n_why=1)
    assert [seeds.of(task) for task in (CHURN, COVTYPE, wine)] == [15, 3, 1]
    assert SeedCounts(2, n_long=3).of(COVTYPE) == SeedCounts(2).of(wine) == 2
    runs = runs_of([CHURN, COVTYPE], seeds)
    assert [run.seed for run in runs if run.task is COVTYPE] == [0, 1, 2]
    assert len(runs) == 18


def test_a_method_is_left_out_of_tasks_that_it_cannot_do():
    for plan in (Plan("dkl"), Plan("modern-nca", "tuned")):
        assert runs_of([CHURN], SeedCounts(1), [plan]) == []


def test_a_line_names_the_method_and_a_config_that_is_not_the_default():
    assert str(Run(CHURN, 3)) == "tabr-s churn split 0 seed 3"
    assert str(Run(CHURN, 3, Plan("knn", "tuned"))) == "knn-tuned churn split 0 seed 3"


def test_successive_seeds_of_a_method_that_can_are_one_batch():
    trial, trees = Plan("tabr-s", "trial", {"width": 8}), Plan("xgboost")
    runs = [
        *(Run(CHURN, seed, trial) for seed in (0, 1, 2, 4, 5)),
        *(Run(DIAMOND, seed, trial) for seed in (6, 7)),
        *(Run(DIAMOND, seed, trees) for seed in (8, 9)),
    ]
    assert [len(batch.runs) for batch in batches_of(runs, 2)] == [2, 1, 2, 2, 1, 1]
    assert [batch.runs for batch in batches_of(runs, 1)] == [(run,) for run in runs]
    assert [run for batch in batches_of(runs, 9) for run in batch.runs] == runs


def make_run(task, seed: int = 0, method: str = "knn") -> Run:
    return Run(task, seed, Plan(method))


def test_a_forecast_prefers_what_is_nearest():
    forecast = Forecast()
    forecast.add(make_run(CHURN), 2.0)
    rate = 2.0 / CHURN.cost
    assert forecast.of(make_run(CHURN, 1)) == 2.0
    assert forecast.of(make_run(ADULT)) == pytest.approx(rate * ADULT.cost)
    assert forecast.of(make_run(CHURN, 0, "mlp")) == pytest.approx(
        2.0
    )  # like all others
    forecast.add(make_run(ADULT, 0, "mlp"), 100.0)
    assert forecast.of(make_run(CHURN, 0, "mlp")) == pytest.approx(
        100.0 / ADULT.cost * CHURN.cost
    )
    assert forecast.of(make_run(CHURN, 1)) == 2.0


def test_lines_tell_the_scoring_and_once_what_stops_instead():
    plan, lines = Plan("xgboost", scoring="balanced-accuracy"), list[str]()
    runs = [Run(CHURN, seed, plan) for seed in range(2)]
    progress = Progress(runs, 0, n_workers=1, log=lines.append)
    scores = {"val": {"balanced-accuracy": 0.75}, "test": {"balanced-accuracy": 0.5}}
    outcome = replace(RESULT, scores=scores, stopped_by="error")
    for run in runs:
        progress.add(run, outcome)
    progress.close(1.0)
    about, middle = "xgboost@balanced-accuracy churn split 0", "balanced accuracy 0.5"
    assert lines[1:-1] == [
        f"{about} seed 0: {middle} (val 0.75), 2.0 s; 1 left, about 2 s",
        "xgboost has no balanced-accuracy to stop by on churn: it stops by error",
        f"{about} seed 1: {middle} (val 0.75), 2.0 s; 0 left",
    ]


def test_lines_tell_what_is_left():
    runs, lines = [make_run(CHURN, seed) for seed in range(5)], list[str]()
    progress = Progress(runs, 2, n_workers=2, log=lines.append)
    outcome = SimpleNamespace(test=0.8, val=0.7, best_epoch=None, seconds=10.0)
    progress.add(runs[1], Failure("too bad"))
    progress.add(runs[0], outcome)  # type: ignore[arg-type]
    summary = progress.close(12.0)
    assert lines == [
        "5 runs to do, 2 done before",
        "knn churn split 0 seed 1: FAILED, too bad; 4 left",
        "knn churn split 0 seed 0: accuracy 0.8 (val 0.7), 10.0 s; 3 left, about 15 s",
        "1 done, 1 failed, 3 left, 2 done before, in 12 s",
    ]
    assert (summary.n_done, summary.n_failed, summary.n_left) == (1, 1, 3)
