"""What the three libraries of boosted trees must do alike."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tabr.bench.methods import catboost, lightgbm, xgboost
from tabr.bench.methods.boosting import EVAL_METRICS, NEAREST_METRICS, Boosting
from tabr.bench.tasks.task import LabelledRows
from tabr.metrics import make_score
from tabr.optional import require
from tests.bench.methods.checks import KINDS, SETTINGS, parts

LIBRARIES: dict[str, type[Boosting]] = {
    "xgboost": xgboost.XGBoost,
    "lightgbm": lightgbm.LightGBM,
    "catboost": catboost.CatBoost,
}
each_library = pytest.mark.parametrize("name", LIBRARIES)


def labelled(kind: str) -> tuple[LabelledRows, LabelledRows]:
    """Return rows to learn from and others on which many trees are too many.

    Of numbers the others' labels are a small share of most rows, so that only the first
    trees make the prediction better, and the typical error best before the mean square.
    """
    data = parts(kind)
    if kind != "regression":
        return data.train, data.val
    share = np.where(np.arange(len(data.val.y)) % 5, 0.2, 0.8)
    return (
        LabelledRows(data.train.X, data.train.X["size"].to_numpy()),
        LabelledRows(data.val.X, share * data.val.X["size"].to_numpy()),
    )


def fitted(
    name: str, kind: str = "regression", scoring: str | None = None, **params: Any
) -> Boosting:
    setting = replace(SETTINGS[kind], scoring=scoring)
    method = LIBRARIES[name](setting, 0, **{"learning_rate": 0.1, **params})
    return method.fit(*labelled(kind))


def validation_score(method: Boosting, kind: str, scoring: str | None = None) -> float:
    val = labelled(kind)[1]
    return make_score(scoring, val.X, val.y, method.classes)(method.predict(val.X))


@each_library
def test_a_module_of_our_own_does_not_hide_the_library(name: str) -> None:
    library = require(name, extra="boost")
    assert library.__name__ == name
    assert library.__file__ != sys.modules[f"tabr.bench.methods.{name}"].__file__


@each_library
def test_a_missing_library_gives_the_line_that_installs_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'tabr\[boost\]'"):
        fitted(name, n_trees=1)


@each_library
@pytest.mark.parametrize("kind", KINDS)
def test_more_trees_never_make_the_validation_score_worse(name: str, kind: str) -> None:
    methods = [fitted(name, kind, n_trees=n) for n in (1, 4, 16, 64)]
    scores = np.array([validation_score(method, kind) for method in methods])
    assert (np.diff(scores) > -1e-6).all()
    assert methods[-1].best_epoch in range(1, 64)  # something was cut


@each_library
@pytest.mark.parametrize(("scoring", "kind"), EVAL_METRICS)
def test_more_trees_never_make_the_score_worse_that_was_asked_for(
    name: str, scoring: str, kind: str
) -> None:
    if name not in EVAL_METRICS[scoring, kind]:  # type: ignore[index]
        pytest.skip("the library has none")
    params = {"learning_rate": 0.5, "patience": 100}
    methods = [fitted(name, kind, scoring, n_trees=n, **params) for n in (1, 8, 64)]
    scores = [validation_score(method, kind, scoring) for method in methods]
    assert (np.diff(scores) > -1e-6).all()
    assert {method.stopped_by for method in methods} == {None}


@each_library
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_better_by_a_score_than_what_was_stopped_by_it(
    name: str, kind: str
) -> None:
    names = [s for (s, k), own in EVAL_METRICS.items() if k == kind and name in own]
    params = {"learning_rate": 0.05 if kind == "regression" else 0.3, "n_trees": 64}
    methods = {scoring: fitted(name, kind, scoring, **params) for scoring in names}
    assert len({method.best_epoch for method in methods.values()}) > 1
    for scoring in names:
        scores = {s: validation_score(m, kind, scoring) for s, m in methods.items()}
        assert scores[scoring] == pytest.approx(max(scores.values()), abs=1e-6)


@each_library
@pytest.mark.parametrize("kind", ["binary", "classes"])
def test_another_scoring_keeps_another_number_of_trees(name: str, kind: str) -> None:
    params = {"learning_rate": 0.5, "n_trees": 64}
    scorings = ("accuracy", "log-loss", "roc-auc")
    assert len({fitted(name, kind, s, **params).best_epoch for s in scorings}) > 1


@each_library
@pytest.mark.parametrize(("scoring", "kind"), NEAREST_METRICS)
def test_what_is_nearest_is_taken_and_told(name: str, scoring: str, kind: str) -> None:
    nearest = NEAREST_METRICS[scoring, kind].get(name)  # type: ignore[index]
    if nearest is None:
        pytest.skip("the library has none")
    method = fitted(name, kind, scoring, n_trees=8)
    assert method.stopped_by == nearest
    assert method.best_epoch in range(1, 9)


@pytest.mark.parametrize(
    ("name", "usual"),
    [
        ("xgboost", "merror"),
        ("lightgbm", "multi_error and multi_logloss"),
        ("catboost", "Accuracy"),
    ],
)
def test_what_a_library_cannot_be_stopped_by_is_told(name: str, usual: str) -> None:
    method, plain = (
        fitted(name, "classes", scoring, n_trees=20)
        for scoring in ("balanced-accuracy", None)
    )
    assert (method.stopped_by, plain.stopped_by) == (usual, None)
    assert method.best_epoch == plain.best_epoch


def test_the_guide_has_the_names_of_the_libraries() -> None:
    text = (Path(__file__).parents[3] / "docs" / "baselines.md").read_text("utf-8")
    section = text.split("## What boosted trees stop by")[1].split("\n## ")[0]
    words = set(re.findall(r"`([\w:=-]+)", section))
    tables = [*EVAL_METRICS.items(), *NEAREST_METRICS.items()]
    assert words >= {scoring for (scoring, _), _ in tables}
    assert words >= {name for _, names in tables for name in names.values()}


@each_library
def test_patience_ends_the_training(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = []
    for patience in (20, 400):
        updates = count_updates(name, monkeypatch)
        method = fitted(name, n_trees=400, patience=patience)
        if isinstance(method, catboost.CatBoost):
            rounds.append(len(method.model.get_evals_result()["validation"]["RMSE"]))
        else:
            rounds.append(len(updates))
    assert rounds[0] < 200 and rounds[1] == 400


def count_updates(name: str, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return a list that grows with every round of XGBoost or LightGBM."""
    rounds: list[None] = []
    if name != "catboost":
        booster = require(name, extra="boost").Booster
        update = booster.update

        def counted(*args: Any, **kwargs: Any) -> Any:
            rounds.append(None)
            return update(*args, **kwargs)

        monkeypatch.setattr(booster, "update", counted)
    return rounds


@pytest.mark.parametrize(
    ("name", "one_split"),
    [
        ("xgboost", {"max_depth": 1, "reg_lambda": 0.0}),
        ("lightgbm", {"num_leaves": 2}),
    ],
)
def test_a_tree_predicts_the_mean_of_each_leaf(
    name: str, one_split: dict[str, Any]
) -> None:
    method = fitted(name, n_trees=1, learning_rate=1.0, **one_split)
    train = labelled("regression")[0]
    prediction = method.predict(train.X)
    leaves = np.unique(prediction)
    assert len(leaves) == 2
    for leaf in leaves:
        assert train.y[prediction == leaf].mean() == pytest.approx(leaf, abs=1e-5)


@each_library
def test_numbers_come_as_they_are(name: str) -> None:
    assert fitted(name, n_trees=1).preprocessor.normalization == "none"


@each_library
@pytest.mark.parametrize("wrong", ["n_trees", "patience"])
def test_refuses_no_trees_and_no_patience(name: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=f"{wrong}=0"):
        LIBRARIES[name](SETTINGS["regression"], 0, **{wrong: 0})


@each_library
def test_refuses_what_is_no_parameter(name: str) -> None:
    with pytest.raises(ValueError, match="however, n_tree, trees came"):
        LIBRARIES[name](SETTINGS["regression"], 0, trees=5, n_tree=4)
