"""The rule itself, against what it must mean."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproduction.results_folder import ResultsFolder
from tabr.bench.ranks import Score, compare, count_outcomes, pooled, ranks

scores = st.builds(Score, st.floats(-10, 10), st.floats(0, 3))
tables = st.dictionaries(st.sampled_from("abcdefg"), scores, min_size=1)


@given(tables, st.booleans())
def test_the_best_mean_has_rank_one_and_ranks_have_no_gaps(table, larger):
    found = ranks(table, larger_is_better=larger)
    choose = max if larger else min
    best = choose(table, key=lambda name: table[name].mean)
    assert found[best] == 1
    assert sorted(set(found.values())) == list(range(1, max(found.values()) + 1))


@given(tables)
def test_a_better_mean_never_has_a_worse_rank(table):
    found = ranks(table, larger_is_better=True)
    for one in table:
        for other in table:
            if table[one].mean > table[other].mean:
                assert found[one] <= found[other]


@given(scores, scores, st.booleans())
def test_a_duel_is_the_rank_of_two(one, other, larger):
    found = ranks({"one": one, "other": other}, larger_is_better=larger)
    outcome = compare(one, other, larger_is_better=larger)
    if one.mean != other.mean:
        assert outcome == found["other"] - found["one"]
    assert compare(other, one, larger_is_better=larger) == -outcome


def test_the_standard_deviation_of_the_better_one_counts():
    precise, vague = Score(1.0, 0.01), Score(0.9, 5.0)
    assert compare(precise, vague, larger_is_better=True) == 1
    assert compare(precise, vague, larger_is_better=False) == 0


@given(st.lists(st.lists(st.floats(-5, 5), min_size=4, max_size=4), min_size=1))
def test_pooled_is_the_score_of_all_runs(splits):
    parts = [Score(float(np.mean(runs)), float(np.std(runs))) for runs in splits]
    mean, std = pooled(parts)
    every = np.concatenate(splits)
    assert mean == pytest.approx(every.mean(), abs=1e-9)
    assert std == pytest.approx(every.std(), abs=1e-7)


def test_outcomes_are_counted():
    assert tuple(count_outcomes([1, 1, 0, -1])) == (2, 1, 1)
    assert tuple(count_outcomes([])) == (0, 0, 0)


def test_published_ensembles_have_the_average_ranks_of_the_paper():
    models = [f"{n} default" for n in ("XGBoost", "CatBoost", "LightGBM", "TabR-S")]
    rows = ResultsFolder().published(None, "ensemble of 5")
    rows = rows[rows["model"].isin(models) & ~rows["dataset"].str.startswith("why/")]
    found: dict[str, list[int]] = {name: [] for name in models}
    for _, part in rows.groupby("dataset"):
        table = {r.model: Score(r.test_mean, r.test_std) for r in part.itertuples()}
        larger = part["metric"].iloc[0] == "accuracy"
        for name, rank in ranks(table, larger_is_better=larger).items():
            found[name].append(rank)
    means = [round(float(np.mean(found[name])), 1) for name in models]
    deviations = [round(float(np.std(found[name])), 1) for name in models]
    assert {len(values) for values in found.values()} == {11}
    assert means == [3.4, 2.1, 2.5, 2.0]
    assert deviations == [0.9, 0.8, 0.9, 1.3]
