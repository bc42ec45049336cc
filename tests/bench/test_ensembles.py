from pathlib import Path

import numpy as np

from tabr.bench.ensembles import SIZE, ensemble_path, make_ensembles
from tabr.bench.results import Plan, read, read_predictions, result_path
from tabr.bench.runs import items_of, run_all
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import load
from tabr.bench.workers import Place
from tabr.metrics import rmse

from .tables import TINY, write_churn, write_diamond


def run(folder: Path, out: Path, label: str, n_seeds: int, plan: Plan):
    (task,) = select([label])
    items = items_of([task], n_seeds, plans=[plan], keep_predictions=True)
    summary = run_all(items, folder, out, place=Place("cpu"))
    assert summary.n_failed == 0
    return task


def test_five_seeds_are_averaged_and_scored(tmp_path: Path):
    write_churn(tmp_path)
    write_diamond(tmp_path)
    out, plan = tmp_path / "out", Plan("mlp", "trial", {"max_epochs": 2})
    for label in ("churn", "diamond"):
        task = run(tmp_path, out, label, SIZE + 1, plan)
        assert make_ensembles([(task, plan)], SIZE + 1, out, tmp_path) == 1
        found = read(ensemble_path(out, task, 0, plan))
        singles = [result_path(out, task, seed, plan) for seed in range(SIZE)]
        said = np.mean([read_predictions(s).test for s in singles], axis=0)
        y = load(task, tmp_path).test.y
        if task.metric == "rmse":
            expected = rmse(y, said) / task.scale
        else:
            expected = np.mean(said.argmax(1) == y)
        assert found.test == expected
        assert found.seconds == round(sum(read(s).seconds for s in singles), 3)
        assert make_ensembles([(task, plan)], SIZE + 1, out, tmp_path) == 0


def test_predictions_are_those_that_were_scored(tmp_path: Path):
    write_churn(tmp_path)
    plan = Plan("tabr-s", "trial", TINY)
    task = run(tmp_path, tmp_path / "out", "churn", 1, plan)
    path = result_path(tmp_path / "out", task, 0, plan)
    said, parts = read_predictions(path), load(task, tmp_path)
    assert said.scores(task, parts) == (read(path).val, read(path).test)


def test_a_run_without_its_predictions_is_done_again_if_they_are_wanted(tmp_path: Path):
    write_churn(tmp_path)
    out, plan = tmp_path / "out", Plan("knn", "trial")
    (task,) = select(["churn"])
    items = items_of([task], 1, plans=[plan])
    assert run_all(items, tmp_path, out, place=Place("cpu")).n_done == 1
    items = items_of([task], 1, plans=[plan], keep_predictions=True)
    assert run_all(items, tmp_path, out, place=Place("cpu")).n_done == 1
    assert run_all(items, tmp_path, out, place=Place("cpu")).n_before == 1
