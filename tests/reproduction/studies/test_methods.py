"""Presets, trees and nearest rows, each as its users would call it, on small tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from reproduction.studies.methods import (
    N_NEAREST,
    N_TREES,
    PATIENCE,
    STUDY_METHODS,
    NearestRows,
    Split,
    labelled,
    run_method,
    scores,
    with_days,
)
from tabr.bench.tasks.task import LabelledRows
from tests.bench.tables import TINY, timed

HERE = {**TINY, "device": "cpu"}


def split_of(kind: str, n: int = 150) -> Split:
    """Rows with a number, a category, of which labels are made, and a date."""
    frame = timed("when", n)
    frame["town"] = pd.Categorical(np.resize(["Ulm", "Bonn", "Kiel"], n))
    frame["target"] = frame.a + (frame.town == "Ulm")
    if kind == "classification":
        frame["target"] = np.where(frame.target > 0, 7, 3)
    parts = [labelled(frame[k::3]) for k in range(3)]
    return Split(kind, *parts)


@pytest.mark.parametrize("kind", ["regression", "classification"])
@pytest.mark.parametrize("name", STUDY_METHODS)
def test_every_method_has_scores_that_its_seed_repeats(name: str, kind: str) -> None:
    split, measures = split_of(kind), ("rmse", "accuracy", "log-loss")
    with_stop, without, again = (
        run_method(name, one, 1, HERE, measures)
        for one in (split, split._replace(stop=None), split._replace(stop=None))
    )
    names = ["rmse"] if kind == "regression" else ["accuracy", "log-loss"]
    for record in (with_stop, without, again):
        assert record.pop("seconds") > 0 and record.pop("hardware")
        record.pop("commit")
        assert list(record) == names and all(record[name] > 0 for name in names)
    assert without == again


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_trees_have_defaults_and_stop_where_there_are_rows_for_it(kind: str) -> None:
    split = split_of(kind).with_tables(with_days)
    assert split.stop is not None
    # What was learned is soon of no use to rows with shuffled labels.
    y = np.random.default_rng(0).permutation(split.stop.y)
    for stop in (None, LabelledRows(split.stop.X, y)):
        own = split._replace(stop=stop)
        catboost = STUDY_METHODS["catboost"].fit(own, 0, {})
        lightgbm = STUDY_METHODS["lightgbm"].fit(own, 0, {})
        assert catboost.get_cat_feature_indices() == [2]
        if stop is None:
            assert (catboost.tree_count_, lightgbm.n_estimators) == (1000, 100)
        else:
            assert 0 < catboost.tree_count_ < N_TREES - PATIENCE
            assert 0 < lightgbm.best_iteration_ < N_TREES - PATIENCE


@pytest.mark.parametrize("name", ["default", "best"])
def test_presets_are_those_of_the_library(name: str) -> None:
    method = {"default": "tabr-d", "best": "tabr-best"}[name]
    model = STUDY_METHODS[method].fit(split_of("regression"), 3, HERE)
    assert (model.preset, model.random_state, model.width) == (name, 3, 8)


def test_scores_are_scikit_learn_s_and_know_classes_without_a_training_row() -> None:
    class Even:
        classes_ = np.array([2, 5])

        def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
            return np.stack([1 - X.a, X.a], axis=1)

    rng = np.random.default_rng(0)
    X, two = pd.DataFrame({"a": rng.uniform(0.1, 0.9, 40)}), np.resize([5, 2, 2], 40)
    rows = LabelledRows(X, two)
    found = scores(Split("classification", rows, rows), Even(), ("log-loss", "roc-auc"))
    assert found["log-loss"] == pytest.approx(log_loss(two, Even().predict_proba(X)))
    assert found["roc-auc"] == pytest.approx(roc_auc_score(two == 5, X.a), rel=1e-5)
    # One row in four is of a class that nobody could learn.
    three = LabelledRows(X, np.resize([5, 2, 2, 3], 40))
    found = scores(Split("classification", rows, three), Even(), ("log-loss",))
    assert found["log-loss"] > -np.log(np.finfo(float).eps) / 4


def test_nearest_rows_are_those_of_standardised_numbers() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=50), "b": 1000 * rng.normal(size=50)})
    y = rng.normal(size=50)
    scaled = ((X - X.mean()) / X.std(ddof=0)).to_numpy()
    distance = ((scaled[:, None] - scaled[None]) ** 2).sum(2)
    near = distance.argsort(1)[:, :N_NEAREST]
    values = NearestRows(of_classes=False).fit(X, y).predict(X)
    np.testing.assert_allclose(values, y[near].mean(1))
    classes = NearestRows(of_classes=True).fit(X, y > 0)
    votes = (y > 0)[near].sum(1)
    expected = (votes + (y > 0).mean()) / (N_NEAREST + 1)
    np.testing.assert_allclose(classes.predict_proba(X)[:, 1], expected)
