from types import SimpleNamespace

import pytest

from tabr.bench.progress import Forecast, Progress
from tabr.bench.results import Plan
from tabr.bench.runs import Item
from tabr.bench.tasks.catalog import select
from tabr.bench.workers import Failure
from tabr.text import duration

ADULT, CHURN = select(["adult", "churn"])


def item(task, seed: int = 0, method: str = "knn") -> Item:
    return Item(task, seed, Plan(method))


def test_a_forecast_prefers_what_is_nearest():
    forecast = Forecast()
    forecast.learn(item(CHURN), 2.0)
    rate = 2.0 / CHURN.cost
    assert forecast.of(item(CHURN, 1)) == 2.0
    assert forecast.of(item(ADULT)) == pytest.approx(rate * ADULT.cost)
    assert forecast.of(item(CHURN, 0, "mlp")) == pytest.approx(2.0)  # like all others
    forecast.learn(item(ADULT, 0, "mlp"), 100.0)
    assert forecast.of(item(CHURN, 0, "mlp")) == pytest.approx(
        100.0 / ADULT.cost * CHURN.cost
    )
    assert forecast.of(item(CHURN, 1)) == 2.0


def test_lines_tell_what_is_left(capsys: pytest.CaptureFixture[str]):
    items = [item(CHURN, seed) for seed in range(5)]
    progress = Progress(items, 2, n_workers=2)
    answer = SimpleNamespace(test=0.8, val=0.7, best_epoch=None, seconds=10.0)
    progress.report(items[1], Failure("too bad"))
    progress.report(items[0], answer)  # type: ignore[arg-type]
    summary = progress.close(12.0)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "5 to do, 2 done before",
        "knn-default churn split 0 seed 1: FAILED, too bad; 4 left",
        "knn-default churn split 0 seed 0: accuracy 0.8 (val 0.7), no epochs, 10.0 s;"
        " 3 left, about 15 s",
        "1 done, 1 failed, 3 left, 2 done before, in 12 s",
    ]
    assert (summary.n_done, summary.n_failed, summary.n_left) == (1, 1, 3)


def test_durations_are_short():
    assert [duration(s) for s in (0, 99, 120)] == ["0 s", "99 s", "2 min"]
