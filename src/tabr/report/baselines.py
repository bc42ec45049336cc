"""Scores of the model and of simple methods that learn from the same candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tabr.metrics import MEASURES
from tabr.report.evaluation import Evaluation, Model
from tabr.tables.frame import random_rows
from tabr.tables.preprocessor import Arrays
from tabr.text import number

MOST_CANDIDATES = 10_000  # that simple methods learn from
N_NEAREST = 10
MOST_TREES = 1000  # of all classes together
MOST_LEVELS = 200  # beyond it, codes of categories are read as numbers

SMALLER_IS_BETTER = tuple(m.label for m in MEASURES.values() if m.smaller_is_better)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MethodScores:
    """A method with its scores."""

    name: str
    about: str
    scores: dict[str, float]


def score_methods(evaluation: Evaluation) -> list[MethodScores]:
    """Return the model first, then the constant, neighbours and boosted trees."""
    model, candidates = evaluation.model, evaluation.model.candidates_
    y, n_members = candidates.y, len(model.members_)
    chosen = random_rows(len(y), MOST_CANDIDATES)
    features, new_features = (
        _joined(model.preprocessor_.transform(frame))
        for frame in (candidates.frame.iloc[chosen], evaluation.frame)
    )
    table = model, features, y[chosen], new_features
    networks = "one network" if n_members == 1 else f"mean of {n_members} networks"
    usual = "the mean of the candidates' labels"
    if evaluation.classes is not None:
        usual = "the candidates' shares of classes"
    nearest = f"{min(N_NEAREST, len(chosen))} nearest neighbours"
    source = "candidates" if len(chosen) == len(y) else "random candidates"
    source = f"of {number(len(chosen))} {source}"
    prepared = f"scikit-learn, on the prepared columns, {source}"
    boosting = f"scikit-learn's histogram gradient boosting, {source}"
    predictions = [
        ("TabR", networks, evaluation.prediction),
        ("constant", usual, _constant(model, y, len(evaluation))),
        (nearest, prepared, _nearest(*table)),
        ("boosted trees", boosting, _boosted(*table)),
    ]
    return [
        MethodScores(name, about, evaluation.scores(prediction))
        for name, about, prediction in predictions
    ]


def _joined(arrays: Arrays) -> Floats:
    """Return numbers, flags and codes of levels; a code without a level is missing."""
    codes = np.where(arrays.cat < 0, np.nan, arrays.cat)
    return np.hstack([arrays.num, arrays.bin, codes])


def _constant(model: Model, y: NDArray[Any], n: int) -> Floats:
    """Return n times what is usual among the labels."""
    return np.repeat(model.target_.usual(y)[None], n, axis=0)


def _nearest(model: Model, features: Floats, y: NDArray[Any], new: Floats) -> Floats:
    """Return predictions by the plain mean of the nearest candidates' labels."""
    from sklearn.compose import make_column_transformer
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    target, n = model.target_, min(N_NEAREST, len(y))
    width = features.shape[1]
    levels = list(range(width - len(model.preprocessor_.cardinalities), width))
    one_hot = (OneHotEncoder(handle_unknown="ignore"), levels)
    encode = make_column_transformer(one_hot, remainder="passthrough")
    search = make_pipeline(encode, KNeighborsRegressor(n))
    if target.classes is None:
        mean: Floats = search.fit(features, y).predict(new)
        return mean
    labels = np.eye(target.n_classes)[target.encode(y)]
    votes: Floats = n * search.fit(features, labels).predict(new)
    # One vote more for what is usual: a class without a vote stays possible.
    return (votes + target.usual(y)) / (n + 1)


def _boosted(model: Model, features: Floats, y: NDArray[Any], new: Floats) -> Floats:
    """Return predictions by gradient-boosted trees with scikit-learn's defaults."""
    from sklearn.ensemble import (
        HistGradientBoostingClassifier,
        HistGradientBoostingRegressor,
    )

    target, levels = model.target_, model.preprocessor_.cardinalities
    first = features.shape[1] - len(levels)
    few = [first + k for k, n in enumerate(levels) if n <= MOST_LEVELS]
    settings: dict[str, Any] = {"categorical_features": few or None, "random_state": 0}
    if target.classes is None:
        trees = HistGradientBoostingRegressor(**settings)
        values: Floats = trees.fit(features, y).predict(new)
        return values
    codes = target.encode(y)
    if len(np.unique(codes)) < 2:
        return _constant(model, y, len(new))
    n_trees = max(10, min(100, MOST_TREES // target.n_classes))
    classifier = HistGradientBoostingClassifier(max_iter=n_trees, **settings)
    classifier.fit(features, codes)
    proba = np.zeros((len(new), target.n_classes))
    proba[:, classifier.classes_] = classifier.predict_proba(new)
    return proba
