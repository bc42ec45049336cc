"""Scores of predictions."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from tabr.errors import ParameterError
from tabr.metrics import accuracy, class_scores, make_score, rmse, value_scores


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
