"""How much each recipe or model counts in a mean, learned from held-out rows.

The best weights on few rows are mostly luck. So rows are drawn with replacement many
times, the best weights are found for each draw, and their mean is taken: where nobody
is better beyond chance, the draws disagree and the mean is near equal. It is then moved
half way to equal weights, and who would keep next to nothing gets nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar, nnls

Floats = NDArray[np.float64]

_DRAWS = 60
_STEPS = 100  # of expectation and maximisation, for classes
_MOST_ROWS = 20_000  # that are looked at
_LEAST = 0.25  # of an equal share: who would get less gets nothing
_EQUAL = 0.5  # of the weights that is shared out equally
_WORTH = 2.0  # nats by which a temperature must lower the loss of all rows together


def blend_weights(
    predictions: Floats, y: NDArray[Any], codes: NDArray[np.int64] | None = None
) -> Floats:
    """Return weights (k,) of k predictors, which sum to one.

    Args:
        predictions: Values (k, n) or probabilities (k, n, classes) for rows that none
            of the predictors learned from.
        y: The rows' labels (n,).
        codes: The columns of the rows' true classes (n,); None for values.
    """
    k, n = predictions.shape[:2]
    if k == 1:
        return np.ones(1)
    generator = np.random.RandomState(0)
    chosen = np.arange(n)
    if n > _MOST_ROWS:
        chosen = np.sort(generator.permutation(n)[:_MOST_ROWS])
    if codes is None:
        errors = predictions[:, chosen] - np.asarray(y, float)[chosen]
        best: Callable[[Floats], Floats] = _Squares(errors)
    else:
        best = _LogLoss(predictions[:, chosen, codes[chosen]])
    n = len(chosen)
    draws = [
        best(np.bincount(generator.randint(n, size=n), minlength=n).astype(float))
        for _ in range(_DRAWS)
    ]
    mean: Floats = np.mean(draws, axis=0)
    kept = mean >= min(_LEAST / k, mean.max())
    mean = np.where(kept, mean, 0.0)
    weights: Floats = _EQUAL * kept / kept.sum() + (1 - _EQUAL) * mean / mean.sum()
    return weights


class _Squares:
    """The weights of least squared error, of counted rows."""

    def __init__(self, errors: Floats) -> None:
        self.errors = errors / max(np.abs(errors).max(), np.finfo(float).tiny)

    def __call__(self, counts: Floats) -> Floats:
        """Return the best weights (k,) for counts (n,) of rows."""
        k = len(self.errors)
        gram = (self.errors * counts) @ self.errors.T
        gram += np.eye(k) * (1e-9 * np.trace(gram) / k + np.finfo(float).tiny)
        root = np.linalg.cholesky(gram).T
        # One more equation, that they sum to one, weighs more than all others.
        heavy = 1e3 * np.abs(root).max()
        equations = np.vstack([root, np.full(k, heavy)])
        weights, _ = nnls(equations, np.append(np.zeros(k), heavy))
        total: Floats = weights / weights.sum()
        return total


class _LogLoss:
    """The weights of least log loss, of counted rows."""

    def __init__(self, of_truth: Floats) -> None:
        self.of_truth = np.maximum(of_truth, 1e-12)  # (k, n)

    def __call__(self, counts: Floats) -> Floats:
        """Return the best weights (k,) for counts (n,) of rows."""
        drawn = counts > 0
        of_truth, shares = self.of_truth[:, drawn], counts[drawn] / counts.sum()
        weights = np.full(len(of_truth), 1 / len(of_truth))
        for _ in range(_STEPS):
            weights = weights * (of_truth @ (shares / (weights @ of_truth)))
        return weights


def temperature(
    probabilities: Callable[[float], Floats], codes: NDArray[np.int64]
) -> float:
    """Return what logits are to be divided by, so that log loss is least.

    It is 1 where another one hardly helps.

    Args:
        probabilities: Those of held-out rows (n, classes) at a temperature.
        codes: The columns of their true classes (n,).
    """
    rows = np.arange(len(codes))

    def loss(log_temperature: float) -> float:
        of_truth = probabilities(float(np.exp(log_temperature)))[rows, codes]
        return float(-np.log(np.maximum(of_truth, 1e-12)).sum())

    found = minimize_scalar(loss, bounds=(-0.7, 0.7), method="bounded")
    if loss(0.0) - found.fun < _WORTH:
        return 1.0
    return round(float(np.exp(found.x)), 6)  # what the optimizer knows of it


def tempered(predictions: Floats, t: float) -> Floats:
    """Return p ** (1 / t) of probabilities (n, classes), made to sum to one again.

    That divides their logarithms by t. Values (n,) have no temperature but 1.

    >>> tempered(np.array([[0.8, 0.2]]), 2.0).round(3)
    array([[0.667, 0.333]])
    """
    if t == 1:
        return predictions
    # A row's largest becomes 1: no power of it vanishes.
    powers = (predictions / predictions.max(1, keepdims=True)) ** (1 / t)
    total: Floats = powers / powers.sum(1, keepdims=True)
    return total
