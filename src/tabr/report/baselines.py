"""Scores of the model and of simple methods that learn from the same candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tabr.metrics import class_scores, value_scores
from tabr.report.evaluation import Evaluation, random_rows
from tabr.text import number

MOST_CANDIDATES = 10_000  # that simple methods learn from
N_NEAREST = 10
MOST_TREES = 1000  # of all classes together
MOST_LEVELS = 200  # beyond it, codes of categories are read as numbers

SMALLER_IS_BETTER = ("RMSE", "MAE", "log-loss")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MethodScores:
    """A method with its scores."""

    name: str
    about: str
    scores: dict[str, float]


def score_methods(evaluation: Evaluation) -> list[MethodScores]:
    """Return the model first, then the constant, neighbours and boosted trees."""
    candidates = evaluation.model.candidates_
    y, frame = candidates.y, candidates.frame
    chosen = random_rows(len(y), MOST_CANDIDATES)
    transform = evaluation.model.preprocessor_.transform
    train, test = transform(frame.iloc[chosen]), transform(evaluation.frame)
    labels = y[chosen]
    source = "candidates" if len(chosen) == len(y) else "random candidates"
    source = f"{number(len(chosen))} {source}"
    members = evaluation.model.n_members
    networks = "one network" if members == 1 else f"mean of {members} networks"
    if evaluation.codes is None:
        constant: Floats = np.full(len(evaluation), float(np.mean(y)))
        about = "the mean of the candidates' labels"
    else:
        constant = np.tile(_shares(evaluation, y), (len(evaluation), 1))
        about = "the candidates' shares of classes"
    predictions = [
        ("TabR", networks, evaluation.prediction),
        ("constant", about, constant),
        (
            f"{min(N_NEAREST, len(chosen))} nearest neighbours",
            f"scikit-learn, on the prepared columns, of {source}",
            _nearest(evaluation, train, labels, test),
        ),
        (
            "boosted trees",
            f"scikit-learn's histogram gradient boosting, of {source}",
            _boosted(evaluation, train, labels, test),
        ),
    ]
    return [
        MethodScores(name, about, _scores(evaluation, prediction))
        for name, about, prediction in predictions
    ]


def _scores(evaluation: Evaluation, prediction: Floats) -> dict[str, float]:
    if evaluation.codes is None:
        return value_scores(evaluation.truth, prediction)
    return class_scores(evaluation.codes, prediction)


def _codes(evaluation: Evaluation, y: NDArray[Any]) -> NDArray[np.int64]:
    return np.asarray(evaluation.model.target_.encode(y), np.int64)


def _shares(evaluation: Evaluation, y: NDArray[Any]) -> Floats:
    assert evaluation.classes is not None
    counts = np.bincount(_codes(evaluation, y), minlength=len(evaluation.classes))
    shares: Floats = counts / counts.sum()
    return shares


def _nearest(evaluation: Evaluation, train: Any, y: NDArray[Any], test: Any) -> Floats:
    """Return predictions by the plain mean of the nearest candidates' labels."""
    from scipy.sparse import csr_matrix, hstack
    from sklearn.neighbors import NearestNeighbors
    from sklearn.preprocessing import OneHotEncoder

    parts = [np.hstack([arrays.num, arrays.bin]) for arrays in (train, test)]
    if train.cat.shape[1]:
        encoder = OneHotEncoder(handle_unknown="ignore").fit(train.cat)
        parts = [
            hstack([csr_matrix(part), encoder.transform(arrays.cat)]).tocsr()
            for part, arrays in zip(parts, (train, test), strict=True)
        ]
    search = NearestNeighbors(n_neighbors=min(N_NEAREST, len(y))).fit(parts[0])
    near = search.kneighbors(parts[1], return_distance=False)
    if evaluation.codes is None:
        mean: Floats = y.astype(np.float64)[near].mean(1)
        return mean
    shares = _shares(evaluation, y)
    votes = np.eye(len(shares))[_codes(evaluation, y)[near]].sum(1)
    # One vote more for what is usual: a class without a vote stays possible.
    proba: Floats = (votes + shares) / (near.shape[1] + 1)
    return proba


def _boosted(evaluation: Evaluation, train: Any, y: NDArray[Any], test: Any) -> Floats:
    """Return predictions by gradient-boosted trees with scikit-learn's defaults."""
    from sklearn.ensemble import (
        HistGradientBoostingClassifier,
        HistGradientBoostingRegressor,
    )

    def joined(arrays: Any) -> Floats:
        codes = np.where(arrays.cat < 0, np.nan, arrays.cat)  # no level: missing
        return np.hstack([arrays.num, arrays.bin, codes])

    n_numbers = train.num.shape[1] + train.bin.shape[1]
    levels = evaluation.model.preprocessor_.cardinalities
    few = [n_numbers + k for k, n in enumerate(levels) if n <= MOST_LEVELS]
    settings: dict[str, Any] = {"categorical_features": few or None, "random_state": 0}
    if evaluation.codes is None:
        trees = HistGradientBoostingRegressor(**settings)
        values: Floats = trees.fit(joined(train), y).predict(joined(test))
        return values
    codes, shares = _codes(evaluation, y), _shares(evaluation, y)
    if len(np.unique(codes)) < 2:
        return np.tile(shares, (len(evaluation), 1))
    n_trees = max(10, min(100, MOST_TREES // len(shares)))
    classifier = HistGradientBoostingClassifier(max_iter=n_trees, **settings)
    classifier.fit(joined(train), codes)
    proba = np.zeros((len(evaluation), len(shares)))
    proba[:, classifier.classes_] = classifier.predict_proba(joined(test))
    return proba
