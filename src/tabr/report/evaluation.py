"""What a model predicts for a labelled table: computed once, read by every section."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from tabr.errors import ParameterTypeError
from tabr.estimators import TabRClassifier, TabRRegressor
from tabr.metrics import class_scores, value_scores
from tabr.optional import cached_property
from tabr.prediction.explanation import NeighborTable
from tabr.prediction.uncertainty import Signals, intervals, sets
from tabr.tables.frame import name_of, random_rows, to_frame

Model = TabRClassifier | TabRRegressor
Floats = NDArray[np.float64]

MOST_ROWS = 10_000  # that the page looks at; more change no picture
EXPLAINED = 200  # rows of which effects are computed: each costs m predictions
COVERAGE = 0.9  # of intervals and sets


@dataclass(frozen=True)
class Evaluation:
    """n rows that the page is about, with labels, predictions and neighbours."""

    model: Model
    target: str  # the name of what is predicted
    n_table: int  # rows of the table; n may be fewer
    positions: NDArray[np.int64]  # of the rows in that table, (n,)
    frame: pd.DataFrame  # the rows, (n, columns)
    truth: NDArray[Any]  # their labels as the user gave them, (n,)
    codes: NDArray[np.int64] | None  # the same as numbers of classes; None for numbers
    prediction: Floats  # values (n,) or probabilities (n, classes)
    table: NeighborTable  # the neighbours, (n, m)
    labels: NDArray[Any]  # labels of the neighbours, (n, m)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.frame)

    @property
    def classes(self) -> NDArray[Any] | None:
        """The classes, or None for numbers."""
        return self.model.target_.classes

    def scores(self, prediction: Floats) -> dict[str, float]:
        """Return the scores of any prediction for these rows, by name."""
        if self.codes is None:
            return value_scores(self.truth, prediction)
        return class_scores(self.codes, prediction)

    @cached_property
    def errors(self) -> Floats:
        """How wrong each prediction is, (n,).

        The absolute error, or one minus the probability of the true class.
        """
        if self.codes is None:
            gaps: Floats = np.abs(self.truth.astype(np.float64) - self.prediction)
            return gaps
        of_truth: Floats = np.take_along_axis(self.prediction, self.codes[:, None], 1)
        return 1 - of_truth[:, 0]

    @cached_property
    def answers(self) -> NDArray[Any]:
        """What was predicted (n,): numbers or classes."""
        return self.model.target_.answers(self.prediction)

    @cached_property
    def typicality(self) -> Floats:
        """The share of held-out rows that are at least as far, (n,)."""
        return self.model.calibration_.typicality(self.table)

    def intervals(self, coverage: float = COVERAGE) -> Floats:
        """Return lower and upper ends (n, 2), as `predict_interval` does."""
        signals = Signals(self.prediction, self.table, self.labels)
        return intervals(self.model.calibration_, coverage, signals)

    def sets(self, coverage: float = COVERAGE) -> NDArray[np.bool_]:
        """Return sets of classes (n, classes), as `predict_set` does."""
        return sets(self.model.calibration_, coverage, self.prediction)


def evaluate(model: Model, X: Any, y: Any) -> Evaluation:
    """Return what the model predicts for the rows of X; of very many a random part."""
    if not isinstance(model, TabRClassifier | TabRRegressor):
        raise ParameterTypeError(
            "a report is about a TabRClassifier or a TabRRegressor, however "
            f"{type(model).__name__} came: give the estimator itself"
        )
    check_is_fitted(model, "members_")
    frame = model.preprocessor_.match(to_frame(X), caller="report")
    truth = model.target_.read(y, n_rows=len(frame), caller="report")
    n_table, positions = len(frame), random_rows(len(frame), MOST_ROWS)
    frame, truth = frame.iloc[positions].reset_index(drop=True), truth[positions]
    codes = model.target_.strata(truth)
    about = name_of(y) or "the target", n_table, positions, frame, truth, codes
    return Evaluation(model, *about, *model.signals(frame))


def share_from_retrieval(evaluation: Evaluation) -> tuple[float, int]:
    """Return the mean share of predictions that came from retrieval, and of how many.

    Each row takes many predictions, so it is the mean of a random part of the rows.
    """
    rows = random_rows(len(evaluation), EXPLAINED)
    explanation = evaluation.model.explain(evaluation.frame.iloc[rows])
    return float(explanation.share.mean()), len(rows)
