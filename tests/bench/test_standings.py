from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reproduction.results_folder import RESULTS, ROOT
from reproduction.runs import read_table
from tabr.bench.ranks import Score, average_ranks_text, ranks, standings, to_text
from tabr.bench.results import Plan, Result, result_path, write
from tabr.bench.tasks.catalog import select
from tabr.errors import DataError

CHURN, DIAMOND = select(["churn", "diamond"])


def put(out: Path, task, method: str, split: int, seed: int, test: float) -> None:
    plan = Plan(method)
    result = Result(
        benchmark=task.benchmark,
        task=task.name,
        method=plan.name,
        split=split,
        seed=seed,
        params={},
        test=test,
        val=test,
        seconds=1.0 + seed,
        best_epoch=None,
        n_parameters=None,
        hardware="a machine",
        workers=1,
        versions={},
    )
    path = result_path(out, task, seed, plan)
    write(result, path.with_name(f"split-{split}-seed-{seed}.json"))


def test_scores_are_those_of_all_runs_and_ranks_follow_the_rule(tmp_path: Path):
    rng = np.random.default_rng(0)
    scores = {}
    for method, mean in (("knn", 0.70), ("mlp", 0.80), ("xgboost", 0.805)):
        tests = rng.normal(mean, 0.01, (2, 3))
        for (split, seed), test in np.ndenumerate(tests):
            put(tmp_path, CHURN, method, split, seed, test)
        scores[Plan(method).name] = Score(tests.mean(), tests.std())
    table = standings(tmp_path, CHURN).set_index("method")
    expected = ranks(scores, larger_is_better=True)
    for name, score in scores.items():
        assert table["score"][name] == pytest.approx(score.mean)
        assert table["std"][name] == pytest.approx(score.std)
        assert table["rank"][name] == expected[name]
        assert table["runs"][name] == 6 and table["seconds"][name] == 2.0
    assert table["score"].is_monotonic_decreasing


def test_the_smallest_error_is_the_best(tmp_path: Path):
    put(tmp_path, DIAMOND, "knn", 0, 0, 0.2)
    put(tmp_path, DIAMOND, "mlp", 0, 0, 0.1)
    table = standings(tmp_path, DIAMOND)
    assert table["method"].tolist() == ["mlp-default", "knn-default"]
    assert table["rank"].tolist() == [1, 2]
    lines = to_text(table, DIAMOND).splitlines()
    assert lines[0] == "diamond: RMSE of the test rows, lower is better"
    assert lines[3].split() == ["1", "mlp", "0.1000", "±", "0.0000", "1", "1.0"]


def test_columns_line_up(tmp_path: Path):
    for seed, test in enumerate((0.811, 0.8093, 0.7)):
        put(tmp_path, CHURN, "knn", 0, seed, test)
        put(tmp_path, CHURN, "xgboost-neighbors", 0, seed, test + 0.05)
    lines = to_text(standings(tmp_path, CHURN), CHURN).splitlines()[2:5]
    assert len({line.index("±") for line in lines[1:]}) == 1
    assert len({len(line) for line in lines}) == 1


def test_average_ranks_are_among_the_methods_that_all_tables_have(tmp_path: Path):
    for method, test in (("knn", 0.7), ("mlp", 0.8), ("xgboost", 0.9)):
        put(tmp_path, CHURN, method, 0, 0, test)
    put(tmp_path, DIAMOND, "knn", 0, 0, 0.1)
    put(tmp_path, DIAMOND, "mlp", 0, 0, 0.2)
    tables = [(task, standings(tmp_path, task)) for task in (CHURN, DIAMOND)]
    lines = average_ranks_text(tables).splitlines()[1:]
    assert [line.split() for line in lines] == [
        ["1.50", "±", "0.50", "knn"],
        ["1.50", "±", "0.50", "mlp"],
    ]


def test_without_results_it_says_how_to_make_them(tmp_path: Path):
    with pytest.raises(
        DataError, match="has none of churn: make them with `tabr bench"
    ):
        standings(tmp_path, CHURN)


def test_the_example_of_the_guide_is_that_of_the_results(tmp_path: Path):
    runs = [run.result for run in read_table(RESULTS / "example.csv")]
    (name,) = {run.task for run in runs}
    task = replace(DIAMOND, name=name, benchmark="own")
    for run in runs:
        plan = Plan(*run.method.rsplit("-", 1))
        write(
            run, result_path(tmp_path, replace(task, split=run.split), run.seed, plan)
        )
    text = to_text(standings(tmp_path, task), task)
    assert text in (ROOT / "docs" / "lab.md").read_text("utf-8")
