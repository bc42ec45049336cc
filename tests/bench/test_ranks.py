"""The rule of ranks against what it must mean, and the standings by it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproduction.results_folder import RESULTS, ResultsFolder
from reproduction.runs import read_table
from tabr.bench.ranks import (
    Score,
    average_ranks_text,
    pooled,
    ranks,
    read_results,
    standings,
    to_record,
    to_text,
)
from tabr.bench.results import Plan, Result, result_path, write
from tabr.bench.tasks.catalog import select
from tabr.errors import DataError, ParameterError

ROOT = Path(__file__).parents[2]
CHURN, DIAMOND = select(["churn", "diamond"])
scores = st.builds(Score, st.floats(-10, 10), st.floats(0, 3))
tables = st.dictionaries(st.sampled_from("abcdefg"), scores, min_size=1)


@given(tables, st.booleans())
def test_the_best_mean_has_rank_one_and_ranks_have_no_gaps(table, larger):
    rank_of = ranks(table, larger_is_better=larger)
    choose = max if larger else min
    best = choose(table, key=lambda name: table[name].mean)
    assert rank_of[best] == 1
    assert sorted(set(rank_of.values())) == list(range(1, max(rank_of.values()) + 1))


@given(tables)
def test_a_better_mean_never_has_a_worse_rank(table):
    rank_of = ranks(table, larger_is_better=True)
    for a, b in itertools.product(table, repeat=2):
        if table[a].mean > table[b].mean:
            assert rank_of[a] <= rank_of[b]


@given(st.lists(st.lists(st.floats(-5, 5), min_size=4, max_size=4), min_size=1))
def test_pooled_is_the_score_of_all_runs(splits):
    parts = [Score(float(np.mean(runs)), float(np.std(runs))) for runs in splits]
    mean, std = pooled(parts)
    runs = np.concatenate(splits)
    assert mean == pytest.approx(runs.mean(), abs=1e-9)
    assert std == pytest.approx(runs.std(), abs=1e-7)


def test_published_ensembles_have_the_average_ranks_of_the_paper():
    models = [f"{n} default" for n in ("XGBoost", "CatBoost", "LightGBM", "TabR-S")]
    rows = ResultsFolder().published(None, "ensemble of 5")
    rows = rows[rows["model"].isin(models) & ~rows["dataset"].str.startswith("why/")]
    rank_lists: dict[str, list[int]] = {name: [] for name in models}
    for _, part in rows.groupby("dataset"):
        table = {r.model: Score(r.test_mean, r.test_std) for r in part.itertuples()}
        larger = part["metric"].iloc[0] == "accuracy"
        for name, rank in ranks(table, larger_is_better=larger).items():
            rank_lists[name].append(rank)
    means = [round(float(np.mean(rank_lists[name])), 1) for name in models]
    deviations = [round(float(np.std(rank_lists[name])), 1) for name in models]
    assert {len(values) for values in rank_lists.values()} == {11}
    assert means == [3.4, 2.1, 2.5, 2.0]
    assert deviations == [0.9, 0.8, 0.9, 1.3]


# --- standings ----------------------------------------------------------------------


def put(
    out: Path,
    task,
    method: str,
    split: int,
    seed: int,
    test: float,
    scores: dict[str, float] | None = None,
) -> None:
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
        scores=None if scores is None else {"val": {}, "test": scores},
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
    table = standings(read_results(tmp_path, CHURN), CHURN).set_index("method")
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
    table = standings(read_results(tmp_path, DIAMOND), DIAMOND)
    assert table["method"].tolist() == ["mlp-default", "knn-default"]
    assert table["rank"].tolist() == [1, 2]
    lines = to_text(table, DIAMOND).splitlines()
    assert lines[0] == "diamond: RMSE of the test rows, lower is better"
    assert lines[3].split() == ["1", "mlp", "0.1000", "±", "0.0000", "1", "1.0"]


def test_ranks_follow_the_score_that_is_asked_for(tmp_path: Path):
    for seed in (0, 1):
        more = {"log-loss": 0.3 + seed / 100, "roc-auc": 0.9}
        put(tmp_path, CHURN, "knn", 0, seed, 0.7, {"accuracy": 0.7, **more})
        more = {"log-loss": 0.4 + seed / 100, "roc-auc": 0.8}
        put(tmp_path, CHURN, "mlp", 0, seed, 0.8, {"accuracy": 0.8, **more})
    results = read_results(tmp_path, CHURN)
    for scoring, first, better in (
        (None, "mlp-default", "accuracy of the test rows, higher is better"),
        ("log-loss", "knn-default", "log-loss of the test rows, lower is better"),
        ("roc-auc", "knn-default", "ROC AUC of the test rows, higher is better"),
    ):
        table = standings(results, CHURN, scoring)
        assert table["method"][0] == first and table["rank"].tolist() == [1, 2]
        assert to_text(table, CHURN, scoring).splitlines()[0] == f"churn: {better}"
        record = to_record(table, CHURN, scoring)
        assert record["metric"] == (scoring or "accuracy")
        assert record["larger_is_better"] == (scoring != "log-loss")
    table = standings(results, CHURN, "log-loss")
    assert table["score"].tolist() == [0.305, 0.405]
    lines = average_ranks_text([(CHURN, table)], "log-loss").splitlines()
    assert lines[1].split() == ["1.00", "±", "0.00", "knn"]


def test_other_scores_that_runs_have_kept_are_further_columns(tmp_path: Path):
    put(tmp_path, DIAMOND, "knn", 0, 0, 0.2, {"rmse": 0.2, "mae": 0.1, "r2": 0.5})
    put(tmp_path, DIAMOND, "mlp", 0, 0, 0.1)  # from before
    results = read_results(tmp_path, DIAMOND)
    table = standings(results, DIAMOND)
    assert table["method"].tolist() == ["mlp-default", "knn-default"]
    assert table.columns[-2:].tolist() == ["mae", "r2"]
    lines = to_text(table, DIAMOND).splitlines()
    assert lines[2].split() == [
        "rank",
        "method",
        "RMSE",
        "MAE",
        "R2",
        "runs",
        "seconds",
    ]
    assert lines[3].split() == [
        "1",
        "mlp",
        "0.1000",
        "±",
        "0.0000",
        "-",
        "-",
        "1",
        "1.0",
    ]
    by_mae = standings(results, DIAMOND, "mae")
    assert by_mae["method"].tolist() == ["knn-default", "mlp-default"]
    lines = to_text(by_mae, DIAMOND, "mae").splitlines()
    assert [line.split()[:3] for line in lines[3:5]] == [
        ["1", "knn", "0.1000"],
        ["-", "mlp", "-"],  # its runs have not kept it
    ]
    assert to_record(by_mae, DIAMOND, "mae")["standings"][1]["rank"] is None
    assert "mlp" not in average_ranks_text([(DIAMOND, by_mae)], "mae")
    with pytest.raises(DataError, match="standings by mae need runs that kept it"):
        standings([r for r in results if r.scores is None], DIAMOND, "mae")
    with pytest.raises(ParameterError, match="of numbers, as diamond has, must be one"):
        standings(results, DIAMOND, "roc-auc")


def test_columns_line_up(tmp_path: Path):
    for seed, test in enumerate((0.811, 0.8093, 0.7)):
        put(tmp_path, CHURN, "knn", 0, seed, test)
        put(tmp_path, CHURN, "xgboost-neighbors", 0, seed, test + 0.05)
    lines = to_text(
        standings(read_results(tmp_path, CHURN), CHURN), CHURN
    ).splitlines()[2:5]
    assert len({line.index("±") for line in lines[1:]}) == 1
    assert len({len(line) for line in lines}) == 1


def test_average_ranks_are_among_the_methods_that_all_tables_have(tmp_path: Path):
    for method, test in (("knn", 0.7), ("mlp", 0.8), ("xgboost", 0.9)):
        put(tmp_path, CHURN, method, 0, 0, test)
    put(tmp_path, DIAMOND, "knn", 0, 0, 0.1)
    put(tmp_path, DIAMOND, "mlp", 0, 0, 0.2)
    tables = [
        (task, standings(read_results(tmp_path, task), task))
        for task in (CHURN, DIAMOND)
    ]
    lines = average_ranks_text(tables).splitlines()[1:]
    assert [line.split() for line in lines] == [
        ["1.50", "±", "0.50", "knn"],
        ["1.50", "±", "0.50", "mlp"],
    ]


def test_without_results_it_says_how_to_make_them(tmp_path: Path):
    with pytest.raises(
        DataError, match="has none of churn: make them with `tabr bench"
    ):
        read_results(tmp_path, CHURN)
    put(tmp_path, CHURN, "knn", 0, 0, 0.7)
    assert len(read_results(tmp_path, CHURN, ["knn-default"])) == 1
    with pytest.raises(DataError, match="has none of churn"):
        read_results(tmp_path, CHURN, ["mlp-default"])


def test_the_record_has_what_the_text_has(tmp_path: Path):
    put(tmp_path, CHURN, "knn", 0, 0, 0.7)
    record = to_record(standings(read_results(tmp_path, CHURN), CHURN), CHURN)
    (line,) = record.pop("standings")
    assert record == {"task": "churn", "metric": "accuracy", "larger_is_better": True}
    assert (line["rank"], line["method"], line["score"]) == (1, "knn-default", 0.7)
    assert line["n_parameters"] is None  # JSON has no NaN


def test_the_example_of_the_guide_is_that_of_the_results():
    runs = [run.result for run in read_table(RESULTS / "example.csv")]
    (name,) = {run.task for run in runs}
    task = replace(DIAMOND, name=name, benchmark="own")
    text = to_text(standings(runs, task), task)
    assert text in (ROOT / "docs" / "lab.md").read_text("utf-8")
