"""How sure a prediction is, from its neighbours: split conformal prediction.

Rows that were held out tell how wrong predictions are. A *score* measures each of their
errors; the quantile of the scores, with a correction for their number, covers the error
of a new row with the probability asked for, if it comes from where they came from. That
holds whatever the scores are; good scores make intervals short where neighbours agree.

* A number's score is the error divided by a width: how far the labels of neighbours
  spread, and never much less than usual.
* A class's score is one minus the probability that it was given.

A row is *far* if its nearest candidates are farther from it than those of almost all
rows that were held out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tabr.errors import DataError, ParameterError
from tabr.prediction.explanation import NeighborTable
from tabr.tables.targets import Target

Floats = NDArray[np.float64]

_NEAREST = 5  # candidates whose mean distance says how far a row is
MOST_ROWS = 10_000  # that calibration looks at


@dataclass(frozen=True)
class Calibration:
    """What held-out rows taught about errors.

    Attributes:
        scores: Their scores, sorted.
        distances: Their distances to the nearest candidates, sorted.
        spread: The usual spread of neighbours' labels; 0 for classes.
    """

    scores: Floats
    distances: Floats
    spread: float

    def limit(self, coverage: float) -> float:
        """Return the score that a share `coverage` of new rows does not exceed."""
        if not 0 < coverage < 1:
            raise ParameterError(f"`0 < coverage < 1` must hold, however: {coverage=}")
        n = len(self.scores)
        rank = math.ceil((n + 1) * coverage)
        if rank > n:
            needed = math.ceil(coverage / (1 - coverage))
            raise DataError(
                f"coverage {coverage} needs {needed} rows that were held out, however "
                f"there are {n}: call calibrate with more, or ask for less"
            )
        return float(self.scores[rank - 1])

    def typicality(self, table: NeighborTable) -> Floats:
        """Return the share (n,) of held-out rows that are at least as far."""
        away = distance(table)
        n_nearer = np.searchsorted(self.distances, away, side="left")
        n = len(self.distances)
        share: Floats = (n - n_nearer + 1) / (n + 1)
        return share


class Signals(NamedTuple):
    """What one search says of n rows.

    Attributes:
        predictions: Values (n,) or probabilities (n, classes).
        table: Neighbours, (n, m).
        labels: Their labels (n, m), as the user gave them.
    """

    predictions: Floats
    table: NeighborTable
    labels: NDArray[Any]

    def take(self, index: NDArray[np.int64]) -> Signals:
        """Return the rows at index."""
        table = NeighborTable._make(part[index] for part in self.table)
        return Signals(self.predictions[index], table, self.labels[index])


def joined(parts: Sequence[Signals]) -> Signals:
    """Return the signals of several parts of rows, one after the other.

    Parts may have different numbers of neighbours; missing ones are nobody.
    """
    if len(parts) == 1:
        return parts[0]
    m = max(part.labels.shape[1] for part in parts)

    def padded(arrays: Sequence[NDArray[Any]], nobody: Any) -> NDArray[Any]:
        return np.concatenate(
            [
                np.pad(a, [(0, 0), (0, m - a.shape[1])], constant_values=nobody)
                for a in arrays
            ]
        )

    ids, weights, distances = zip(*(part.table for part in parts), strict=True)
    table = NeighborTable(
        padded(ids, -1), padded(weights, 0.0), padded(distances, np.inf)
    )
    labels = padded([part.labels for part in parts], parts[0].labels.flat[0])
    return Signals(np.concatenate([part.predictions for part in parts]), table, labels)


def calibrate(signals: Signals, y: NDArray[Any], target: Target) -> Calibration:
    """Learn from the errors of predictions for rows whose labels y (n,) are known."""
    distances = np.sort(distance(signals.table))
    if target.classes is None:
        spread = spreads(signals)
        usual = float(np.median(spread)) or 1.0
        scores = np.abs(y - signals.predictions) / _widths(spread, usual)
        return Calibration(np.sort(scores), distances, usual)
    codes = target.encode(y)
    of_truth = np.take_along_axis(signals.predictions, codes[:, None], 1)[:, 0]
    return Calibration(np.sort(1 - of_truth), distances, 0.0)


def intervals(calibration: Calibration, coverage: float, signals: Signals) -> Floats:
    """Return lower and upper ends (n, 2)."""
    limit = calibration.limit(coverage)
    reach = limit * _widths(spreads(signals), calibration.spread)
    return np.stack([signals.predictions - reach, signals.predictions + reach], 1)


def sets(
    calibration: Calibration, coverage: float, probabilities: Floats
) -> NDArray[np.bool_]:
    """Return which classes are in the sets (n, classes); the likeliest always is."""
    inside = 1 - probabilities <= calibration.limit(coverage)
    inside[np.arange(len(inside)), probabilities.argmax(1)] = True
    return inside


def spreads(signals: Signals) -> Floats:
    """Return the weighted standard deviations (n,) of neighbours' labels."""
    table = signals.table
    exists = table.ids >= 0
    values = np.where(exists, signals.labels, 0.0).astype(np.float64)
    # A power of two is exact and keeps squares of huge and tiny labels finite.
    exponent = np.frexp(np.abs(values).max(initial=0.0))[1]
    values = np.ldexp(values, -exponent)
    total = np.maximum(table.weights.sum(1, keepdims=True), 1e-12)
    weights = table.weights / total
    mean = (weights * values).sum(1, keepdims=True)
    spread = np.sqrt((weights * (values - mean) ** 2).sum(1))
    low = np.where(exists, values, np.inf).min(1, initial=np.inf)
    high = np.where(exists, values, -np.inf).max(1, initial=-np.inf)
    spread = np.where(low < high, spread, 0.0)  # of equal labels but for rounding
    of_labels: Floats = np.ldexp(spread, exponent)
    return of_labels


def _widths(spread: Floats, usual: float) -> Floats:
    """Return the widths of intervals before they are scaled (n,).

    Half is what is usual: where few neighbours happen to agree, the model may err too.
    """
    return 0.5 * (spread + usual)


def distance(table: NeighborTable) -> Floats:
    """Return how far rows are from their nearest candidates (n,); inf if none."""
    near = np.sort(np.where(table.ids >= 0, table.distances, np.inf), 1)[:, :_NEAREST]
    exists = np.isfinite(near)
    total = np.where(exists, near, 0.0).sum(1)
    n_near = np.maximum(exists.sum(1), 1)
    mean: Floats = np.where(exists.any(1), total / n_near, np.inf)
    return mean
