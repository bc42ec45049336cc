from pathlib import Path

import numpy as np

from tabr.bench.benchmark import run_all
from tabr.bench.ensembles import SIZE, ensemble_path, make_ensembles
from tabr.bench.results import Plan, read, read_predictions, result_path
from tabr.bench.runs import SeedCounts, runs_of
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import load
from tabr.bench.workers import Resources
from tabr.metrics import rmse

from .tables import write_churn, write_diamond

CPU = Resources("cpu")


def run(folder: Path, out: Path, label: str, n_seeds: int, plan: Plan):
    (task,) = select([label])
    runs = runs_of([task], SeedCounts(n_seeds), [plan], keep_predictions=True)
    summary = run_all(runs, folder, out, CPU)
    assert summary.n_failed == 0
    return task


def test_five_seeds_are_averaged_and_scored(tmp_path: Path):
    write_churn(tmp_path)
    write_diamond(tmp_path)
    out, plan = tmp_path / "out", Plan("mlp", "trial", {"max_epochs": 2})
    for label in ("churn", "diamond"):
        task = run(tmp_path, out, label, SIZE + 1, plan)
        assert make_ensembles([(task, plan)], SIZE + 1, out, tmp_path) == 1
        ensemble = read(ensemble_path(out, task, 0, plan))
        singles = [result_path(out, task, seed, plan) for seed in range(SIZE)]
        mean = np.mean([read_predictions(s).test for s in singles], axis=0)
        y = load(task, tmp_path).test.y
        if task.metric == "rmse":
            expected = rmse(y, mean) / task.scale
        else:
            expected = np.mean(mean.argmax(1) == y)
        assert ensemble.test == ensemble.scores["test"][task.metric] == expected
        assert ensemble.seconds == round(sum(read(s).seconds for s in singles), 3)
        assert make_ensembles([(task, plan)], SIZE + 1, out, tmp_path) == 0


def test_a_run_without_its_predictions_is_done_again_if_they_are_wanted(tmp_path: Path):
    write_churn(tmp_path)
    out, plan = tmp_path / "out", Plan("knn", "trial")
    (task,) = select(["churn"])
    runs = runs_of([task], SeedCounts(1), [plan])
    assert run_all(runs, tmp_path, out, CPU).n_done == 1
    runs = runs_of([task], SeedCounts(1), [plan], keep_predictions=True)
    assert run_all(runs, tmp_path, out, CPU).n_done == 1
    assert run_all(runs, tmp_path, out, CPU).n_before == 1
