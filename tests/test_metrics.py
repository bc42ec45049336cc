"""Scores of predictions."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from tabr.errors import DataError, ParameterError
from tabr.metrics import (
    MEASURES,
    accuracy,
    class_scores,
    codes_of,
    find_measure,
    make_score,
    rmse,
    value_scores,
)


def test_rmse_and_accuracy_are_the_textbook_ones() -> None:
    assert rmse(np.array([1, 2]), np.array([1.0, 4.0])) == pytest.approx(2**0.5)
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    assert accuracy(np.array([0, 1, 1]), probabilities) == pytest.approx(2 / 3)


def test_default_scores_are_larger_for_better_predictions() -> None:
    y = np.array([1.0, 2.0])
    score = make_score(None, None, y, None)
    assert score(y) == 0 > score(y + 1)
    labels = np.array(["b", "a"])
    score = make_score(None, None, labels, np.array(["a", "b"]))
    assert score(np.array([[0.1, 0.9], [0.8, 0.2]])) == 1
    assert score(np.array([[0.9, 0.1], [0.8, 0.2]])) == 0.5


def test_a_scorer_sees_the_table_the_labels_and_the_predictions() -> None:
    seen = []

    def scorer(estimator, X, y) -> float:
        seen.append((estimator.predict(X), estimator.predict_proba(X), X, y))
        return 3.0

    classes, y, X = np.array(["a", "b"]), np.array(["a"]), object()
    assert make_score(scorer, X, y, classes)(np.array([[0.3, 0.7]])) == 3.0
    ((labels, probabilities, table, truth),) = seen
    assert labels.tolist() == ["b"]
    assert probabilities.tolist() == [[0.3, 0.7]]
    assert table is X and truth is y


def test_an_unknown_scorer_is_refused_before_training() -> None:
    with pytest.raises(ParameterError, match="'r3'; the closest are 'r2'"):
        make_score("r3", None, np.array([1.0]), None)
    with pytest.raises(ParameterError, match="however: 3"):
        make_score(3, None, np.array([1.0]), None)  # type: ignore[arg-type]


def test_scores_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    y, values = rng.normal(size=20), rng.normal(size=20)
    found = value_scores(y, values)
    assert found["RMSE"] == pytest.approx(metrics.root_mean_squared_error(y, values))
    assert found["MAE"] == pytest.approx(metrics.mean_absolute_error(y, values))
    assert found["R2"] == pytest.approx(metrics.r2_score(y, values))
    codes, proba = np.arange(20) % 3 // 2, rng.dirichlet([1, 1], 20)
    found, likeliest = class_scores(codes, proba), proba.argmax(1)
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(codes, likeliest))
    balanced = metrics.balanced_accuracy_score(codes, likeliest)
    assert found["balanced accuracy"] == pytest.approx(balanced)
    assert found["log-loss"] == pytest.approx(metrics.log_loss(codes, proba))
    assert found["ROC AUC"] == pytest.approx(metrics.roc_auc_score(codes, proba[:, 1]))
    precision = metrics.average_precision_score(codes, proba[:, 1])
    assert found["average precision"] == pytest.approx(precision)


def test_equal_probabilities_are_no_order():
    rng = np.random.default_rng(3)
    codes, share = rng.integers(0, 2, 50), rng.integers(0, 4, 50) / 4
    found = class_scores(codes, np.stack([1 - share, share], axis=1))
    assert found["ROC AUC"] == pytest.approx(metrics.roc_auc_score(codes, share))
    precision = metrics.average_precision_score(codes, share)
    assert found["average precision"] == pytest.approx(precision)


def test_scores_of_several_classes_are_means_over_each_against_the_rest():
    rng = np.random.default_rng(1)
    codes, proba = np.arange(30) % 3, rng.dirichlet([1, 1, 1], 30)
    found = class_scores(codes, proba)
    auc = metrics.roc_auc_score(codes, proba, multi_class="ovr")
    assert found["ROC AUC"] == pytest.approx(auc)
    precision = metrics.average_precision_score(codes, proba)
    assert found["average precision"] == pytest.approx(precision)


def test_scores_that_need_every_class_are_nan_without_one():
    for codes, n_classes in (([0, 1, 0], 3), ([1, 1, 1], 2), ([0, 0, 0], 1)):
        proba = np.full((3, n_classes), 1 / n_classes)
        found = class_scores(np.array(codes), proba)
        absent = {name for name, value in found.items() if np.isnan(value)}
        assert absent == {"ROC AUC", "average precision"}
    broken = np.array([[0.5, 0.5], [np.nan, np.nan]])
    assert np.isnan(MEASURES["roc-auc"].compute(np.array([0, 1]), broken))


# --- measures by name ---------------------------------------------------------------


@pytest.mark.parametrize("name", MEASURES)
def test_a_measure_is_scikit_learns_scorer_of_its_name(name: str):
    measure, rng = MEASURES[name], np.random.default_rng(2)
    assert find_measure(name) is find_measure(measure.scorer) is measure
    classes = np.array(["no", "yes"]) if measure.of_classes else None
    if classes is None:
        y, prediction = rng.normal(size=20), rng.normal(size=20)
    else:
        y, prediction = classes[np.arange(20) % 3 // 2], rng.dirichlet([1, 1], 20)
    score = make_score(name, None, y, classes)(prediction)
    assert score == make_score(measure.scorer, None, y, classes)(prediction)
    assert score == measure.sign * measure.compute(
        y if classes is None else codes_of(y, classes), prediction
    )
    if name != "average-precision":  # scikit-learn's does not take labels of text
        scorer = metrics.get_scorer(measure.scorer)
        plain = make_score(lambda *given: scorer(*given), None, y, classes)
        assert score == pytest.approx(plain(prediction))


def test_an_unknown_measure_and_one_of_the_other_kind_are_refused():
    with pytest.raises(ParameterError, match="a score must be one of rmse, mae, r2, "):
        find_measure("auc")
    with pytest.raises(ParameterError, match="a score of numbers must be one of rmse,"):
        find_measure("roc_auc", of_classes=False)
    with pytest.raises(ParameterError, match="however 'r2' came"):
        make_score("r2", None, np.array(["a"]), np.array(["a", "b"]))


@pytest.mark.parametrize("name", ["roc-auc", "average-precision", "r2"])
def test_a_score_without_a_meaning_for_the_rows_is_refused(name: str):
    y, classes = np.array(["a", "a"]), np.array(["a", "b"])
    if name == "r2":
        y, classes = np.array([1.0, 1.0]), None
    with pytest.raises(DataError, match=f"{name} has a meaning where there are rows"):
        make_score(name, None, y, classes)


def test_labels_that_are_no_class_have_no_place_among_them():
    codes = codes_of(np.array(["b", "c", "a"], object), np.array(["a", "b"]))
    assert codes.tolist() == [1, -1, 0]


@pytest.mark.parametrize("unit", [2.0**-1000, 2.0**1000])
def test_scores_of_numbers_know_no_unit(unit: float) -> None:
    rng = np.random.default_rng(0)
    y, values = rng.normal(size=50), rng.normal(size=50)
    plain = value_scores(y, values)
    for name, score in value_scores(y * unit, values * unit).items():
        assert score == plain[name] * (1 if name == "R2" else unit)


@pytest.mark.parametrize("value", [0.1, 1e-300, -3e300])
def test_a_constant_has_no_variance_to_explain(value: float) -> None:
    y = np.full(7, value)
    assert value_scores(y, y)["RMSE"] == 0
    assert np.isnan(value_scores(y, y)["R2"])
