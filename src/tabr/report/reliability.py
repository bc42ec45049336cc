"""How far predictions can be relied on: coverage, reliability, confusion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tabr.errors import DataError
from tabr.report.evaluation import COVERAGE, Evaluation
from tabr.text import cell

LEVELS = (0.5, 0.6, 0.7, 0.8, COVERAGE, 0.95)
N_BINS = 10
MOST_CLASSES = 12  # lines of a confusion matrix

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Coverage:
    """How often intervals or sets hold the truth."""

    asked: tuple[float, ...]  # coverages that were asked for
    observed: tuple[float, ...]  # shares of rows that were covered
    at: float  # the observed share at `COVERAGE`
    chance: float  # by how much it differs by chance, as two standard deviations
    size: float  # median width, or mean number of classes, at `COVERAGE`
    single: float | None  # share of sets with one class; None for numbers


def measure_coverage(evaluation: Evaluation) -> Coverage | None:
    """Return the observed coverages; None if too few rows were held out for them."""
    asked, observed = [], []
    for level in LEVELS:
        try:
            observed.append(_covered(evaluation, level))
        except DataError:  # more rows are needed than were held out
            continue
        asked.append(level)
    if COVERAGE not in asked:
        return None
    single = None
    if evaluation.codes is None:
        ends = evaluation.intervals()
        size = float(np.median(ends[:, 1] - ends[:, 0]))
    else:
        n_classes = evaluation.sets().sum(1)
        size, single = float(n_classes.mean()), float((n_classes == 1).mean())
    chance = 2 * float(np.sqrt(COVERAGE * (1 - COVERAGE) / len(evaluation)))
    at = observed[asked.index(COVERAGE)]
    return Coverage(tuple(asked), tuple(observed), at, chance, size, single)


def _covered(evaluation: Evaluation, level: float) -> float:
    if evaluation.codes is None:
        low, high = evaluation.intervals(level).T
        return float(((evaluation.truth >= low) & (evaluation.truth <= high)).mean())
    inside = np.take_along_axis(evaluation.sets(level), evaluation.codes[:, None], 1)
    return float(inside.mean())


@dataclass(frozen=True)
class Reliability:
    """Probabilities against what happened, in bins of equally many rows."""

    predicted: Floats  # mean probabilities, (bins,)
    observed: Floats  # shares of rows in which it was so, (bins,)
    counts: NDArray[np.int64]  # rows, (bins,)
    what: str  # what the probability is of
    gap: float  # mean distance of the two over rows: expected calibration error


def measure_reliability(evaluation: Evaluation) -> Reliability:
    """Return the reliability of the second of two classes, or of the likeliest one."""
    assert evaluation.codes is not None and evaluation.classes is not None
    if len(evaluation.classes) == 2:
        predicted, observed = evaluation.prediction[:, 1], evaluation.codes == 1
        what = f"probability of {cell(evaluation.classes[1])}"
    else:
        predicted = evaluation.prediction.max(1)
        observed = evaluation.prediction.argmax(1) == evaluation.codes
        what = "probability of the predicted class"
    order = np.argsort(predicted, kind="stable")
    bins = np.array_split(order, min(N_BINS, len(order)))
    means = np.array([predicted[rows].mean() for rows in bins])
    shares = np.array([observed[rows].mean() for rows in bins])
    counts = np.array([len(rows) for rows in bins])
    gap = float((counts * np.abs(means - shares)).sum() / counts.sum())
    return Reliability(means, shares, counts, what, gap)


@dataclass(frozen=True)
class Confusion:
    """Counts of rows by true class (lines) and predicted class (columns)."""

    names: list[str]
    counts: list[list[int]]
    shares: list[list[float]]  # of each line


def measure_confusion(evaluation: Evaluation) -> Confusion:
    """Return the counts; of very many classes the rare ones share a line."""
    assert evaluation.codes is not None and evaluation.classes is not None
    n = len(evaluation.classes)
    names: list[Any] = [cell(label) for label in evaluation.classes]
    place = np.arange(n)
    if n > MOST_CLASSES:
        seen = np.bincount(evaluation.codes, minlength=n)
        kept = np.sort(np.argsort(-seen, kind="stable")[: MOST_CLASSES - 1])
        place = np.full(n, len(kept))
        place[kept] = np.arange(len(kept))
        names = [names[k] for k in kept] + [f"{n - len(kept)} others"]
    k = len(names)
    cells = place[evaluation.codes] * k + place[evaluation.prediction.argmax(1)]
    counts = np.bincount(cells, minlength=k * k).reshape(k, k)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return Confusion(names, counts.tolist(), shares.tolist())
