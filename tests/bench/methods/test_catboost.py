from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tabr.bench.methods import catboost
from tabr.bench.tasks.task import LabelledRows
from tests.bench.methods.checks import SETTINGS, parts

# The tuned configuration of the published runs on California.
CALIFORNIA = {
    "model": {
        "bagging_temperature": 0.6740476770505535,
        "depth": 8,
        "early_stopping_rounds": 200,
        "iterations": 4000,
        "l2_leaf_reg": 1.6515416980300013,
        "leaf_estimation_iterations": 7,
        "learning_rate": 0.03423698442373933,
        "od_pval": 0.001,
        "task_type": "CPU",
        "thread_count": 4,
    }
}


def fitted(kind: str = "regression", **params: Any) -> catboost.CatBoost:
    data = parts(kind)
    method = catboost.CatBoost(SETTINGS[kind], 0, **{"n_trees": 20, **params})
    return method.fit(data.train, data.val)


def test_published_parameters_are_translated() -> None:
    params = catboost.CatBoost.published(CALIFORNIA)
    method = catboost.CatBoost(SETTINGS["regression"], 0, **params)
    assert method.options["depth"] == 8
    assert (method.n_trees, method.patience) == (4000, 200)


def test_categories_come_as_such() -> None:
    method = fitted()
    n_columns = len(method.model.feature_names_)
    assert method.model.get_cat_feature_indices() == [n_columns - 1]


def test_names_of_categories_do_not_matter() -> None:
    data = parts("regression")
    names = {"aa": "zz", "bb": "yy", "cc": "xx"}  # in the other order

    def renamed(X: pd.DataFrame) -> pd.DataFrame:
        return X.assign(town=X["town"].map(names))

    train, val = (
        LabelledRows(renamed(part.X), part.y) for part in (data.train, data.val)
    )
    method = catboost.CatBoost(SETTINGS["regression"], 0, n_trees=20).fit(train, val)
    np.testing.assert_allclose(
        method.predict(renamed(data.test.X)), fitted().predict(data.test.X)
    )


def test_it_is_stopped_by_the_published_test() -> None:
    params = fitted(patience=200).model.get_all_params()
    assert params["od_type"] == "IncToDec"
    assert params["od_pval"] == pytest.approx(0.001)
    assert params["od_wait"] == 200


def test_a_temperature_alone_does_nothing_on_a_cpu() -> None:
    X = parts("regression").test.X
    np.testing.assert_array_equal(
        fitted(bagging_temperature=0.1).predict(X),
        fitted(bagging_temperature=0.9).predict(X),
    )


def test_a_gpu_that_is_not_there_is_not_asked_for() -> None:
    assert fitted(task_type="GPU").model.get_all_params()["task_type"] == "CPU"


def test_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fitted(n_trees=2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["regression", "binary", "classes"])
def test_by_default_it_learns_as_the_library_does_alone(kind: str) -> None:
    library = pytest.importorskip("catboost")
    method = fitted(kind)
    make = (
        library.CatBoostRegressor
        if kind == "regression"
        else library.CatBoostClassifier
    )
    plain = make(iterations=20, allow_writing_files=False, logging_level="Silent")
    data = parts(kind)
    rows, held_out = (
        method._pool(method._encoded(part)) for part in (data.train, data.val)
    )
    plain.fit(rows, eval_set=held_out)
    mine, theirs = (model.get_all_params() for model in (method.model, plain))
    # What ends the training, and what tells the best number of trees.
    stopping = {"eval_metric", "od_pval", "od_type", "od_wait"}
    assert {name for name in mine if mine[name] != theirs.get(name)} <= stopping
