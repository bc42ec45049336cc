"""Scores of the model beside those of simple methods that saw the same candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tabr.metrics import class_scores, value_scores
from tabr.report.evidence import Evidence

MOST_CANDIDATES = 10_000  # that simple methods learn from
N_NEAREST = 10
MOST_TREES = 1000  # of all classes together
MOST_LEVELS = 200  # beyond it, codes of categories are read as numbers

SMALLER_IS_BETTER = ("RMSE", "MAE", "log-loss")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Scored:
    """A method with its scores."""

    name: str
    about: str
    scores: dict[str, float]


def score_methods(evidence: Evidence) -> list[Scored]:
    """Return the model first, then the constant, neighbours and boosted trees."""
    candidates = evidence.model.candidates_
    y, frame = candidates.y, candidates.frame
    chosen = np.arange(len(y))
    if len(y) > MOST_CANDIDATES:
        chosen = np.random.RandomState(0).permutation(len(y))[:MOST_CANDIDATES]
    prepare = evidence.model.preprocessor_.transform
    rows, others = prepare(frame.iloc[chosen]), prepare(evidence.frame)
    of = "candidates" if len(chosen) == len(y) else "random candidates"
    learned = f"{len(chosen):,} {of}"
    labels = y[chosen]
    members = evidence.model.n_members
    own = "one network" if members == 1 else f"mean of {members} networks"
    if evidence.codes is None:
        constant: Floats = np.full(len(evidence), float(np.mean(y)))
        about = "the mean of the candidates' labels"
    else:
        constant = np.tile(_shares(evidence, y), (len(evidence), 1))
        about = "the candidates' shares of classes"
    predictions = [
        ("TabR", own, evidence.prediction),
        ("constant", about, constant),
        (
            f"{min(N_NEAREST, len(chosen))} nearest neighbours",
            f"scikit-learn, on the prepared columns, of {learned}",
            _nearest(evidence, rows, labels, others),
        ),
        (
            "boosted trees",
            f"scikit-learn's histogram gradient boosting, of {learned}",
            _boosted(evidence, rows, labels, others),
        ),
    ]
    return [Scored(name, what, _scores(evidence, p)) for name, what, p in predictions]


def _scores(evidence: Evidence, prediction: Floats) -> dict[str, float]:
    if evidence.codes is None:
        return value_scores(evidence.truth, prediction)
    return class_scores(evidence.codes, prediction)


def _codes(evidence: Evidence, y: NDArray[Any]) -> NDArray[np.int64]:
    return np.asarray(evidence.model.target_.encode(y), np.int64)


def _shares(evidence: Evidence, y: NDArray[Any]) -> Floats:
    assert evidence.classes is not None
    counts = np.bincount(_codes(evidence, y), minlength=len(evidence.classes))
    shares: Floats = counts / counts.sum()
    return shares


def _nearest(evidence: Evidence, rows: Any, y: NDArray[Any], others: Any) -> Floats:
    """Predict by the plain mean of the nearest candidates' labels."""
    from scipy.sparse import csr_matrix, hstack
    from sklearn.neighbors import NearestNeighbors
    from sklearn.preprocessing import OneHotEncoder

    parts = [np.hstack([a.num, a.bin]) for a in (rows, others)]
    if rows.cat.shape[1]:
        encoder = OneHotEncoder(handle_unknown="ignore").fit(rows.cat)
        parts = [
            hstack([csr_matrix(part), encoder.transform(a.cat)]).tocsr()
            for part, a in zip(parts, (rows, others), strict=True)
        ]
    search = NearestNeighbors(n_neighbors=min(N_NEAREST, len(y))).fit(parts[0])
    near = search.kneighbors(parts[1], return_distance=False)
    if evidence.codes is None:
        mean: Floats = y.astype(np.float64)[near].mean(1)
        return mean
    shares = _shares(evidence, y)
    votes = np.eye(len(shares))[_codes(evidence, y)[near]].sum(1)
    # One vote more for what is usual: a class that nobody voted for stays possible.
    proba: Floats = (votes + shares) / (near.shape[1] + 1)
    return proba


def _boosted(evidence: Evidence, rows: Any, y: NDArray[Any], others: Any) -> Floats:
    """Predict by gradient-boosted trees with scikit-learn's defaults."""
    from sklearn.ensemble import (
        HistGradientBoostingClassifier,
        HistGradientBoostingRegressor,
    )

    def joined(arrays: Any) -> Floats:
        codes = np.where(arrays.cat < 0, np.nan, arrays.cat)  # no level: missing
        return np.hstack([arrays.num, arrays.bin, codes])

    n_plain = rows.num.shape[1] + rows.bin.shape[1]
    levels = evidence.model.preprocessor_.cardinalities
    few = [n_plain + k for k, n in enumerate(levels) if n <= MOST_LEVELS]
    settings: dict[str, Any] = {"categorical_features": few or None, "random_state": 0}
    if evidence.codes is None:
        trees = HistGradientBoostingRegressor(**settings)
        values: Floats = trees.fit(joined(rows), y).predict(joined(others))
        return values
    codes, shares = _codes(evidence, y), _shares(evidence, y)
    if len(np.unique(codes)) < 2:
        return np.tile(shares, (len(evidence), 1))
    n_trees = max(10, min(100, MOST_TREES // len(shares)))
    sorter = HistGradientBoostingClassifier(max_iter=n_trees, **settings)
    sorter.fit(joined(rows), codes)
    proba = np.zeros((len(evidence), len(shares)))
    proba[:, sorter.classes_] = sorter.predict_proba(joined(others))
    return proba
