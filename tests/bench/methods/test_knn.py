"""k nearest neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

from tabr.bench.methods import METHODS
from tabr.bench.methods.base import one_hot
from tabr.bench.methods.knn import KNN
from tabr.metrics import rmse
from tests.bench.methods.checks import SETTINGS, parts


@pytest.mark.parametrize("kind", ["regression", "classes"])
@pytest.mark.parametrize("k", [1, 7, 1000])
def test_is_what_scikit_learn_finds(kind: str, k: int) -> None:
    data = parts(kind)
    method = METHODS["knn"].make(SETTINGS[kind], 0, k=k).fit(data.train, data.val)
    assert isinstance(method, KNN)

    def matrix(part):  # type: ignore[no-untyped-def]
        arrays = method.preprocessor.transform(part.X)
        return one_hot(arrays, method.preprocessor.cardinalities)

    make = KNeighborsRegressor if kind == "regression" else KNeighborsClassifier
    other = make(min(k, len(data.train.y)), algorithm="brute")
    other.fit(matrix(data.train), data.train.y)
    expected = (
        other.predict(matrix(data.test))
        if kind == "regression"
        else other.predict_proba(matrix(data.test))
    )
    np.testing.assert_allclose(method.predict(data.test.X), expected, atol=1e-5)


def test_without_k_takes_the_best_of_the_validation_part() -> None:
    data = parts("regression")
    make = METHODS["knn"].make
    chosen = make(SETTINGS["regression"], 0).fit(data.train, data.val)
    assert isinstance(chosen, KNN)
    scores = [
        rmse(
            data.val.y,
            make(SETTINGS["regression"], 0, k=k)
            .fit(data.train, data.val)
            .predict(data.val.X),
        )
        for k in range(1, 129)
    ]
    assert chosen.k == int(np.argmin(scores)) + 1


def test_k_must_be_positive() -> None:
    with pytest.raises(ValueError, match="k=0"):
        METHODS["knn"].make(SETTINGS["regression"], 0, k=0)
