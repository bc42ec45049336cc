"""Scores of predictions, larger is better, and scikit-learn scorers without a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from tabr.errors import ParameterError
from tabr.text import closest

# Predictions are values (n,) in regression and probabilities (n, classes) otherwise.
Scoring = str | Callable[[Any, Any, Any], float]
Score = Callable[[NDArray[Any]], float]


def rmse(y: NDArray[Any], prediction: NDArray[Any]) -> float:
    """Return the root of the mean squared error of values (n,)."""
    return float(np.sqrt(np.mean(np.square(np.asarray(y, float) - prediction))))


def accuracy(codes: NDArray[Any], probabilities: NDArray[Any]) -> float:
    """Return the share of rows whose likeliest class (n, classes) is theirs."""
    return float(np.mean(probabilities.argmax(1) == codes))


def log_loss(codes: NDArray[Any], probabilities: NDArray[Any]) -> float:
    """Return the mean of -log of what true classes were given, (n, classes)."""
    of_truth = probabilities[np.arange(len(codes)), codes]
    return float(-np.log(np.clip(of_truth, np.finfo(float).eps, 1)).mean())


def value_scores(y: NDArray[Any], values: NDArray[Any]) -> dict[str, float]:
    """Return the scores of predicted values (n,); R2 is nan where y is constant."""
    y = np.asarray(y, float)
    error, spread = y - values, float(np.square(y - y.mean()).sum())
    r2 = 1 - float(np.square(error).sum()) / spread if spread > 0 else float("nan")
    return {"RMSE": rmse(y, values), "MAE": float(np.abs(error).mean()), "R2": r2}


def class_scores(codes: NDArray[Any], proba: NDArray[Any]) -> dict[str, float]:
    """Return the scores of probabilities (n, classes) for the true codes (n,)."""
    from sklearn.metrics import roc_auc_score

    hit = proba.argmax(1) == codes
    present = np.unique(codes)
    scores = {
        "accuracy": accuracy(codes, proba),
        "balanced accuracy": float(np.mean([hit[codes == c].mean() for c in present])),
        "log-loss": log_loss(codes, proba),
    }
    if proba.shape[1] == 2:
        both = len(present) == 2
        auc = roc_auc_score(codes, proba[:, 1]) if both else float("nan")
        scores["ROC AUC"] = float(auc)
    return scores


class _Predicted(BaseEstimator):
    """An estimator whose predictions are already there, for scorers."""

    def __init__(self, prediction: NDArray[Any]) -> None:
        self.prediction = prediction

    def __sklearn_is_fitted__(self) -> bool:
        return True


class _PredictedValues(RegressorMixin, _Predicted):
    def predict(self, X: object) -> NDArray[Any]:
        return self.prediction


class _PredictedClasses(ClassifierMixin, _Predicted):
    def __init__(self, prediction: NDArray[Any], classes: NDArray[Any]) -> None:
        super().__init__(prediction)
        self.classes = classes

    @property
    def classes_(self) -> NDArray[Any]:
        return self.classes

    def predict(self, X: object) -> NDArray[Any]:
        labels: NDArray[Any] = self.classes[self.prediction.argmax(1)]
        return labels

    def predict_proba(self, X: object) -> NDArray[Any]:
        return self.prediction


def make_score(
    scoring: Scoring | None,
    X: object,
    y: NDArray[Any],
    classes: NDArray[Any] | None,
) -> Score:
    """Return the function from predictions for X to their score.

    Args:
        scoring: A name or scorer as scikit-learn takes it; None is the negative RMSE
            in regression and the accuracy otherwise.
        X: The table that the predictions are for; handed to the scorer.
        y: Its labels as the user gave them.
        classes: Labels in the order of the columns of probabilities, or None.
    """
    if scoring is None and classes is None:
        return lambda prediction: -rmse(y, prediction)
    if scoring in (None, "neg_log_loss") and classes is not None:
        position = {label: code for code, label in enumerate(classes.tolist())}
        codes = np.array([position[label] for label in y.tolist()])
        if scoring is None:
            return lambda prediction: accuracy(codes, prediction)
        return lambda prediction: -log_loss(codes, prediction)

    # A second of imports, rarely needed.
    from sklearn.metrics import get_scorer, get_scorer_names

    if not callable(scoring) and scoring not in (names := get_scorer_names()):
        raise ParameterError(
            "scoring must be a scorer of scikit-learn or its name, however:"
            f" {scoring!r}; the closest are {closest(str(scoring), names)}"
        )
    scorer = get_scorer(scoring)

    def score(prediction: NDArray[Any]) -> float:
        estimator: _Predicted = (
            _PredictedValues(prediction)
            if classes is None
            else _PredictedClasses(prediction, classes)
        )
        return float(scorer(estimator, X, y))

    return score
