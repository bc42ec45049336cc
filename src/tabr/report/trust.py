"""How far predictions can be trusted: coverage, reliability, confusion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tabr.errors import DataError
from tabr.report.evidence import COVERAGE, Evidence
from tabr.text import cell

LEVELS = (0.5, 0.6, 0.7, 0.8, COVERAGE, 0.95)
N_BINS = 10
MOST_CLASSES = 12  # lines of a confusion matrix

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Coverage:
    """How often intervals or sets hold the truth.

    Attributes:
        asked: Coverages that were asked for.
        observed: Shares of rows that were covered.
        at: The observed share at `COVERAGE`.
        chance: By how much `at` differs by chance, as two standard deviations.
        size: Median width of intervals, or mean number of classes, at `COVERAGE`.
        single: Share of sets with one class; None for numbers.
    """

    asked: tuple[float, ...]
    observed: tuple[float, ...]
    at: float
    chance: float
    size: float
    single: float | None


def measure_coverage(evidence: Evidence) -> Coverage | None:
    """Return the observed coverages; None if too few rows were held out to say."""
    asked, observed = [], []
    for level in LEVELS:
        try:
            observed.append(_covered(evidence, level))
        except DataError:  # more rows are needed than were held out
            continue
        asked.append(level)
    if COVERAGE not in asked:
        return None
    single = None
    if evidence.codes is None:
        ends = evidence.intervals()
        size = float(np.median(ends[:, 1] - ends[:, 0]))
    else:
        n_classes = evidence.sets().sum(1)
        size, single = float(n_classes.mean()), float((n_classes == 1).mean())
    chance = 2 * float(np.sqrt(COVERAGE * (1 - COVERAGE) / len(evidence)))
    at = observed[asked.index(COVERAGE)]
    return Coverage(tuple(asked), tuple(observed), at, chance, size, single)


def _covered(evidence: Evidence, level: float) -> float:
    if evidence.codes is None:
        low, high = evidence.intervals(level).T
        return float(((evidence.truth >= low) & (evidence.truth <= high)).mean())
    inside = np.take_along_axis(evidence.sets(level), evidence.codes[:, None], 1)
    return float(inside.mean())


@dataclass(frozen=True)
class Reliability:
    """Probabilities against what happened, in bins of equally many rows.

    Attributes:
        given: Mean probabilities, (bins,).
        happened: Shares of rows in which it was so, (bins,).
        counts: Rows, (bins,).
        what: Whose probability it is.
        gap: Mean distance of the two over rows: the expected calibration error.
    """

    given: Floats
    happened: Floats
    counts: NDArray[np.int64]
    what: str
    gap: float


def measure_reliability(evidence: Evidence) -> Reliability:
    """Look at the second of two classes, or else at the likeliest class."""
    assert evidence.codes is not None and evidence.classes is not None
    if len(evidence.classes) == 2:
        given, came = evidence.prediction[:, 1], evidence.codes == 1
        what = f"probability of {cell(evidence.classes[1])}"
    else:
        given = evidence.prediction.max(1)
        came = evidence.prediction.argmax(1) == evidence.codes
        what = "probability of the predicted class"
    order = np.argsort(given, kind="stable")
    bins = np.array_split(order, min(N_BINS, len(order)))
    means = np.array([given[rows].mean() for rows in bins])
    shares = np.array([came[rows].mean() for rows in bins])
    counts = np.array([len(rows) for rows in bins])
    gap = float((counts * np.abs(means - shares)).sum() / counts.sum())
    return Reliability(means, shares, counts, what, gap)


@dataclass(frozen=True)
class Confusion:
    """Counts of rows by true class (lines) and predicted class (columns)."""

    names: list[str]
    counts: list[list[int]]
    shares: list[list[float]]  # of each line


def measure_confusion(evidence: Evidence) -> Confusion:
    """Count; of very many classes the frequent ones, and all others together."""
    assert evidence.codes is not None and evidence.classes is not None
    n = len(evidence.classes)
    names: list[Any] = [cell(label) for label in evidence.classes]
    place = np.arange(n)
    if n > MOST_CLASSES:
        seen = np.bincount(evidence.codes, minlength=n)
        kept = np.sort(np.argsort(-seen, kind="stable")[: MOST_CLASSES - 1])
        place = np.full(n, len(kept))
        place[kept] = np.arange(len(kept))
        names = [names[k] for k in kept] + [f"{n - len(kept)} others"]
    k = len(names)
    cells = place[evidence.codes] * k + place[evidence.prediction.argmax(1)]
    counts = np.bincount(cells, minlength=k * k).reshape(k, k)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return Confusion(names, counts.tolist(), shares.tolist())
