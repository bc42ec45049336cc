"""Scores of predictions, larger is better, and scikit-learn scorers without a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from tabr.errors import DataError, ParameterError
from tabr.text import closest

# Predictions are values (n,) in regression and probabilities (n, classes) otherwise.
Scoring = str | Callable[[Any, Any, Any], float]
Score = Callable[[NDArray[Any]], float]


def rmse(y: NDArray[Any], prediction: NDArray[Any]) -> float:
    """Return the root of the mean squared error of values (n,)."""
    y, prediction, exponent = _scaled(y, prediction)
    error = np.sqrt(np.mean(np.square(y - prediction)))
    return float(np.ldexp(error, exponent))


def _scaled(y: NDArray[Any], values: NDArray[Any]) -> tuple[Any, Any, int]:
    """Return both over a power of two, and its exponent.

    That is exact, and keeps the squares of huge and of tiny numbers finite.
    """
    y, values = np.asarray(y, float), np.asarray(values, float)
    largest = max(np.abs(part).max(initial=0.0) for part in (y, values))
    exponent = int(np.frexp(largest)[1]) if np.isfinite(largest) else 0
    return np.ldexp(y, -exponent), np.ldexp(values, -exponent), exponent


def accuracy(codes: NDArray[Any], probabilities: NDArray[Any]) -> float:
    """Return the share of rows whose likeliest class (n, classes) is theirs."""
    return float(np.mean(probabilities.argmax(1) == codes))


def log_loss(codes: NDArray[Any], probabilities: NDArray[Any]) -> float:
    """Return the mean of -log of what true classes were given, (n, classes)."""
    of_truth = probabilities[np.arange(len(codes)), codes]
    return float(-np.log(np.clip(of_truth, np.finfo(float).eps, 1)).mean())


def r2(y: NDArray[Any], values: NDArray[Any]) -> float:
    """Return the share of the variance that values (n,) explain; nan without any."""
    y, values, _ = _scaled(y, values)
    error, spread = y - values, float(np.square(y - y.mean()).sum())
    varies = spread > 0 and y.min() < y.max()  # rounding may move the mean of equals
    return 1 - float(np.square(error).sum()) / spread if varies else float("nan")


def mae(y: NDArray[Any], values: NDArray[Any]) -> float:
    """Return the mean absolute error of values (n,)."""
    y, values, exponent = _scaled(y, values)
    return float(np.ldexp(np.abs(y - values).mean(), exponent))


def balanced_accuracy(codes: NDArray[Any], probabilities: NDArray[Any]) -> float:
    """Return the mean of the accuracies of the classes that there are."""
    hit = probabilities.argmax(1) == codes
    return float(np.mean([hit[codes == code].mean() for code in np.unique(codes)]))


def roc_auc(codes: NDArray[Any], probabilities: NDArray[Any]) -> float:
    """Return the area under the ROC curve; nan where a class has no row.

    Of several classes it is the mean over each against the rest.
    """

    def area(n_true: NDArray[Any], n: NDArray[Any]) -> float:
        ranks = n.cumsum() - (n - 1) / 2  # equal probabilities share the mean rank
        total = n_true.sum()
        above = (n_true * ranks).sum() - total * (total + 1) / 2
        return float(above / (total * (n.sum() - total)))

    return _one_against_rest(area, codes, probabilities)


def average_precision(codes: NDArray[Any], probabilities: NDArray[Any]) -> float:
    """Return the average precision of the second class; nan where a class has no row.

    Of several classes it is the mean over each against the rest.
    """

    def area(n_true: NDArray[Any], n: NDArray[Any]) -> float:
        n_true, n = n_true[::-1], n[::-1]  # the likeliest first
        precision = n_true.cumsum() / n.cumsum()
        return float((n_true * precision).sum() / n_true.sum())

    return _one_against_rest(area, codes, probabilities)


def _one_against_rest(
    area: Callable[[NDArray[Any], NDArray[Any]], float],
    codes: NDArray[Any],
    probabilities: NDArray[Any],
) -> float:
    """Return the mean area over the classes, of two that of the second.

    An area sees how many rows have each probability, rising, and how many of them are
    of the class.
    """
    n_classes = probabilities.shape[1]
    if len(np.unique(codes)) < max(2, n_classes) or np.isnan(probabilities).any():
        return float("nan")
    areas = []
    for code in [1] if n_classes == 2 else range(n_classes):
        _, place, n = np.unique(
            probabilities[:, code], return_inverse=True, return_counts=True
        )
        areas.append(area(np.bincount(place, codes == code, len(n)), n))
    return float(np.mean(areas))


@dataclass(frozen=True)
class Measure:
    """A score of predictions, and its names.

    Attributes:
        name: As options and results have it.
        label: As people read it.
        scorer: As scikit-learn's scorers have it.
        of_classes: Whether it is of probabilities, or else of values.
        smaller_is_better: Whether it is an error.
        compute: Labels (n,), or codes of classes, and predictions -> the score; nan
            where it has no meaning.
    """

    name: str
    label: str
    scorer: str
    of_classes: bool
    smaller_is_better: bool
    compute: Callable[[NDArray[Any], NDArray[Any]], float]

    @property
    def sign(self) -> float:
        """The number that makes it larger for better predictions."""
        return -1.0 if self.smaller_is_better else 1.0


# All that is measured, in the order of tables; the first of each kind is the paper's.
MEASURES: Mapping[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure("rmse", "RMSE", "neg_root_mean_squared_error", False, True, rmse),
        Measure("mae", "MAE", "neg_mean_absolute_error", False, True, mae),
        Measure("r2", "R2", "r2", False, False, r2),
        Measure("accuracy", "accuracy", "accuracy", True, False, accuracy),
        Measure(
            "balanced-accuracy",
            "balanced accuracy",
            "balanced_accuracy",
            True,
            False,
            balanced_accuracy,
        ),
        Measure("log-loss", "log-loss", "neg_log_loss", True, True, log_loss),
        Measure("roc-auc", "ROC AUC", "roc_auc", True, False, roc_auc),
        Measure(
            "average-precision",
            "average precision",
            "average_precision",
            True,
            False,
            average_precision,
        ),
    )
}
_BY_ANY_NAME: Mapping[str, Measure] = {
    **MEASURES,
    **{measure.scorer: measure for measure in MEASURES.values()},
    "roc_auc_ovr": MEASURES["roc-auc"],
}


def find_measure(
    name: str, *, of_classes: bool | None = None, task: str = ""
) -> Measure:
    """Return a measure by its name or that of scikit-learn's scorer.

    Args:
        name: One of `MEASURES`, or a scorer such as "neg_log_loss".
        of_classes: Whether classes are predicted, and not numbers; a measure of the
            other kind is refused. None takes both.
        task: What a refusal names as the task.
    """
    measure = _BY_ANY_NAME.get(name)
    if measure is not None and of_classes in (None, measure.of_classes):
        return measure
    names = [m.name for m in MEASURES.values() if of_classes in (None, m.of_classes)]
    what = {None: "", True: " of classes", False: " of numbers"}[of_classes]
    what += f", as {task} has," if task else ""
    raise ParameterError(
        f"a score{what} must be one of {', '.join(names)} or scikit-learn's name of it,"
        f" however {name!r} came: choose one of these"
    )


def paper_measure(*, of_classes: bool) -> Measure:
    """Return what the paper measures: the accuracy of classes, the RMSE of numbers."""
    return MEASURES["accuracy" if of_classes else "rmse"]


def known_measure(scoring: Scoring | None, *, of_classes: bool) -> Measure | None:
    """Return the measure that a scoring names, None if it is another scorer."""
    if scoring is None:
        return paper_measure(of_classes=of_classes)
    if isinstance(scoring, str) and scoring in _BY_ANY_NAME:
        return find_measure(scoring, of_classes=of_classes)
    return None


def value_scores(y: NDArray[Any], values: NDArray[Any]) -> dict[str, float]:
    """Return the scores of predicted values (n,); R2 is nan where y is constant."""
    measures = [m for m in MEASURES.values() if not m.of_classes]
    return {measure.label: measure.compute(y, values) for measure in measures}


def class_scores(codes: NDArray[Any], proba: NDArray[Any]) -> dict[str, float]:
    """Return the scores of probabilities (n, classes) for the true codes (n,).

    ROC AUC and average precision are those of the second class; of several classes
    they are means over each against the rest, and nan unless every class has rows.
    """
    measures = [m for m in MEASURES.values() if m.of_classes]
    return {measure.label: measure.compute(codes, proba) for measure in measures}


def codes_of(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the places of labels (n,) among the classes, -1 of others."""
    position = {label: code for code, label in enumerate(classes.tolist())}
    codes = [position.get(label, -1) for label in labels.tolist()]
    return np.array(codes, dtype=np.int64)


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
        scoring: The name of a measure, or a scorer of scikit-learn or its name; None is
            the negative RMSE in regression and the accuracy otherwise.
        X: The table that the predictions are for; handed to the scorer.
        y: Its labels as the user gave them.
        classes: Labels in the order of the columns of probabilities, or None.
    """
    measure = known_measure(scoring, of_classes=classes is not None)
    if measure is not None:
        return _measured(measure, y, classes)

    # A second of imports, rarely needed.
    from sklearn.metrics import get_scorer, get_scorer_names

    if not callable(scoring) and scoring not in (names := get_scorer_names()):
        near = closest(str(scoring), sorted({*names, *MEASURES}))
        raise ParameterError(
            "scoring must be a scorer of scikit-learn or its name, or one of"
            f" {', '.join(MEASURES)}, however: {scoring!r}; the closest are {near}"
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


def _measured(measure: Measure, y: NDArray[Any], classes: NDArray[Any] | None) -> Score:
    """Return a measure for labels y as a score; one without a meaning is refused."""
    truth = y if classes is None else codes_of(y, classes)
    compute, sign, guess = measure.compute, measure.sign, np.zeros(len(y))
    if classes is not None:
        guess = np.full((len(y), len(classes)), 1 / len(classes))
    if np.isnan(compute(truth, guess)):
        rows = "every class" if measure.of_classes else "different labels"
        raise DataError(
            f"{measure.name} has a meaning where there are rows of {rows}, however the"
            " rows to stop early by have not: choose another scoring, or more such rows"
        )
    return lambda prediction: sign * compute(truth, prediction)
