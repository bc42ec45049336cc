"""What a setting asks of all methods: the score that the validation part decides by."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tabr.bench.methods import METHODS, Method
from tabr.errors import ParameterError
from tabr.metrics import make_score
from tests.bench.methods.checks import SETTINGS, parts
from tests.bench.methods.test_methods import SMALL

BY_EPOCHS = ("mlp", "tabr-s", "tabr-d", "modern-nca", "realmlp", "npt")


def fitted(name: str, kind: str, scoring: str | None, **more: Any) -> Method:
    setting = replace(SETTINGS[kind], scoring=scoring, **more)
    data = parts(kind)
    return METHODS[name].make(setting, 0, **SMALL[name]).fit(data.train, data.val)


def validation_score(method: Method, kind: str, scoring: str) -> float:
    """Return a score of the predictions for the validation part, larger is better."""
    val = parts(kind).val
    return make_score(scoring, val.X, val.y, method.classes)(method.predict(val.X))


@pytest.mark.parametrize("scoring", ["accuracy", "log-loss", "roc-auc"])
@pytest.mark.parametrize("name", BY_EPOCHS)
def test_the_best_epoch_of_a_network_is_that_by_the_scoring(name: str, scoring: str):
    scores: list[float] = []
    method = fitted(
        name, "binary", scoring, on_epoch=lambda epoch, score: scores.append(score)
    )
    assert method.best_epoch == int(np.argmax(scores))
    best = validation_score(method, "binary", scoring)
    assert best == pytest.approx(max(scores), abs=1e-5)


@pytest.mark.parametrize("name", ["mlp", "tabr-s"])
def test_another_scoring_keeps_another_epoch(name: str):
    epochs = {
        fitted(name, "classes", scoring).best_epoch
        for scoring in ("accuracy", "log-loss", "roc-auc", "average-precision")
    }
    assert len(epochs) > 1


def test_seeds_that_are_fitted_as_one_follow_the_scoring_too():
    setting, data = replace(SETTINGS["classes"], scoring="roc-auc"), parts("classes")
    entry = METHODS["tabr-s"]
    single, *joint = (entry.make(setting, 0, **SMALL["tabr-s"]) for _ in range(2))
    joint.append(entry.make(setting, 1, **SMALL["tabr-s"]))
    entry.method.fit_as_one(joint, data.train, data.val)
    assert joint[0].best_epoch == single.fit(data.train, data.val).best_epoch
    best = joint[1].estimator.members_[0].history.best_score  # type: ignore[attr-defined]
    assert validation_score(joint[1], "classes", "roc-auc") == pytest.approx(best)


def test_networks_that_are_fitted_as_one_are_tempered_each_by_itself():
    # The last epoch is the best to this score, and every third label is that of
    # another row: probabilities are far too sure.
    params = {"scoring": lambda model, X, y: time.perf_counter()}
    params |= {**SMALL["tabr-d"], "max_epochs": 30, "learning_rate": 0.01}
    entry, data = METHODS["tabr-d"], parts("classes")
    y = data.val.y.copy()
    y[::3] = np.roll(y[::3], 1)
    val = replace(data.val, y=y)
    methods: Any = [
        entry.make(SETTINGS["classes"], seed, **params) for seed in (0, 1, 0, 1)
    ]
    entry.method.fit_as_one(methods[:2], data.train, val)
    for joint, single in zip(methods[:2], methods[2:], strict=True):
        single.fit(data.train, val)
        assert joint.estimator.temperature_ == single.estimator.temperature_ > 1
        predictions = joint.predict(data.test.X)
        np.testing.assert_array_equal(predictions, single.predict(data.test.X))
    temperatures = {method.estimator.temperature_ for method in methods}
    assert len(temperatures) == 2


@pytest.mark.parametrize("scoring", ["mae", "rmse", "r2"])
def test_choices_of_methods_without_epochs_are_by_the_scoring(scoring: str):
    method = fitted("knn", "regression", scoring)
    setting, data = SETTINGS["regression"], parts("regression")
    scores = []
    for k in range(1, 129):
        other = METHODS["knn"].make(setting, 0, k=k).fit(data.train, data.val)
        scores.append(validation_score(other, "regression", scoring))
    assert method.k == int(np.argmax(scores)) + 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["realmlp", "npt", "anp"])
def test_methods_with_an_optimizer_of_their_own_refuse_settings_of_adamw(name: str):
    data = parts("regression")
    for more in ({"schedule": "drop"}, {"weight_average": 2.0}):
        method = METHODS[name].make(SETTINGS["regression"], 0, **SMALL[name], **more)
        with pytest.raises(ParameterError, match="with an optimizer of its own: leave"):
            method.fit(data.train, data.val)


@pytest.mark.parametrize("wrong", ["freeze_after", "record_context", "label_smoothing"])
def test_networks_refuse_settings_that_only_tabr_follows(wrong: str):
    with pytest.raises(ParameterError, match=f"however {wrong} came to MLP: leave it"):
        METHODS["mlp"].make(SETTINGS["binary"], 0, **{wrong: 1})


def test_the_scoring_of_all_methods_is_no_parameter_of_one():
    setting = replace(SETTINGS["binary"], scoring="log-loss")
    with pytest.raises(ParameterError, match="'log-loss' and 'f1' came: leave out one"):
        METHODS["tabr-s"].make(setting, 0, scoring="f1")


def test_scores_of_the_other_kind_are_refused():
    with pytest.raises(ParameterError, match="a score of classes must be one of acc"):
        fitted("mlp", "binary", "rmse")
