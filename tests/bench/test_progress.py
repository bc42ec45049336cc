from types import SimpleNamespace

import pytest

from tabr.bench.progress import Forecast, Progress
from tabr.bench.results import Plan
from tabr.bench.runs import Run
from tabr.bench.tasks.catalog import select
from tabr.bench.workers import Failure
from tabr.text import duration

ADULT, CHURN = select(["adult", "churn"])


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


def test_durations_are_short():
    assert [duration(s) for s in (0, 99, 120)] == ["0 s", "99 s", "2 min"]
