"""What a model says of a labelled table: asked once, read by every section."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from tabr.errors import ParameterTypeError
from tabr.estimators import TabRClassifier, TabRRegressor
from tabr.prediction.explanation import NeighborTable
from tabr.prediction.uncertainty import Signals, intervals, sets
from tabr.tables.frame import to_frame

Model = TabRClassifier | TabRRegressor
Floats = NDArray[np.float64]

MOST_ROWS = 10_000  # that the page looks at; more change no picture
EXPLAINED = 200  # rows of which effects are computed: each costs m predictions
COVERAGE = 0.9  # of intervals and sets


@dataclass(frozen=True)
class Evidence:
    """n rows that the page is about, with labels, predictions and neighbours.

    Attributes:
        model: Who was asked.
        target: The name of what is predicted.
        n_given: Rows of the table; n may be fewer.
        positions: Of the rows in that table, (n,).
        frame: The rows, (n, columns).
        truth: Their labels as the user gave them, (n,).
        codes: The same as positions in `classes_`, (n,); None for numbers.
        prediction: Values (n,) or probabilities (n, classes).
        table: Their neighbours, (n, m).
        labels: Labels of the neighbours, (n, m).
    """

    model: Model
    target: str
    n_given: int
    positions: NDArray[np.int64]
    frame: pd.DataFrame
    truth: NDArray[Any]
    codes: NDArray[np.int64] | None
    prediction: Floats
    table: NeighborTable
    labels: NDArray[Any]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.frame)

    @property
    def classes(self) -> NDArray[Any] | None:
        """The classes, or None for numbers."""
        return self.model.classes_ if isinstance(self.model, TabRClassifier) else None

    @cached_property
    def errors(self) -> Floats:
        """How wrong each prediction is, (n,).

        The absolute error, or one minus the probability of the true class.
        """
        if self.codes is None:
            gaps: Floats = np.abs(self.truth.astype(np.float64) - self.prediction)
            return gaps
        given: Floats = np.take_along_axis(self.prediction, self.codes[:, None], 1)
        return 1 - given[:, 0]

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


def gather(model: Model, X: Any, y: Any) -> Evidence:
    """Ask the model for the rows of X; of very many rows a random part."""
    if not isinstance(model, TabRClassifier | TabRRegressor):
        raise ParameterTypeError(
            "a report is about a TabRClassifier or a TabRRegressor, however "
            f"{type(model).__name__} came: give the estimator itself"
        )
    check_is_fitted(model, "members_")
    frame = model.preprocessor_.match(to_frame(X), caller="report")
    truth = model.target_.read(y, n_rows=len(frame), caller="report")
    n_given, positions = len(frame), np.arange(len(frame))
    if n_given > MOST_ROWS:
        order = np.random.RandomState(0).permutation(n_given)
        positions = np.sort(order[:MOST_ROWS])
    frame, truth = frame.iloc[positions].reset_index(drop=True), truth[positions]
    codes = None
    if isinstance(model, TabRClassifier):
        codes = np.asarray(model.target_.encode(truth), np.int64)
    prediction, table, labels = model.signals(frame)
    return Evidence(
        model,
        _name_of(y),
        n_given,
        positions,
        frame,
        truth,
        codes,
        prediction,
        table,
        labels,
    )


def _name_of(y: Any) -> str:
    """Return the name of the labels, where they have one."""
    columns = getattr(y, "columns", None)
    name = getattr(y, "name", None) if columns is None else next(iter(columns), None)
    return "the target" if name is None or callable(name) else str(name)


def share_from_retrieval(evidence: Evidence) -> tuple[float, int]:
    """Return the mean share of predictions that came from retrieval, and of how many.

    It takes the predictions without neighbours, so a random part of the rows is asked.
    """
    rows = np.random.RandomState(0).permutation(len(evidence))[:EXPLAINED]
    found = evidence.model.explain(evidence.frame.iloc[np.sort(rows)])
    return float(found.share.mean()), len(rows)
