from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from tabr.bench.methods import neighbors
from tabr.bench.methods.base import (
    ArrayMethod,
    Encoded,
    Floats,
    Setting,
    one_hot,
)
from tabr.bench.methods.mlp import MLP
from tabr.bench.methods.neighbors import WithNeighbors, XGBoostWithNeighbors
from tabr.bench.tasks.task import LabelledRows
from tabr.metrics import Score, rmse
from tabr.tables.normalize import Normalization
from tabr.tables.preprocessor import Arrays
from tests.bench.methods.checks import KINDS, SETTINGS, parts
from tests.bench.methods.test_xgboost import CALIFORNIA


class Spy(ArrayMethod):
    """A method that keeps what it gets and predicts zeros."""

    normalization: ClassVar[Normalization] = "none"

    def _fit(self, train: Encoded, val: Encoded, score: Score) -> None:
        self.seen = {"train": train.arrays, "val": val.arrays}

    def _predict(self, arrays: Arrays) -> Floats:
        self.seen["test"] = arrays
        return np.zeros(len(arrays.num))


class RawSpy(WithNeighbors, Spy):
    """It sees raw numbers, as trees do."""


class ScaledSpy(WithNeighbors, Spy):
    """It sees scaled numbers, as networks do."""

    normalization: ClassVar[Normalization] = "published-quantile"


class MLPWithNeighbors(WithNeighbors, MLP):
    """Any other method."""


def told(
    spy: type[WithNeighbors],
    kind: str,
    train: LabelledRows | None = None,
    **params: Any,
) -> tuple[Any, dict[str, NDArray[Any]]]:
    """Return the method and what each part's rows were told of their neighbours."""
    data = parts(kind)
    method: Any = spy(SETTINGS[kind], 0, **params).fit(train or data.train, data.val)
    method._predict(method._encoded(data.test).arrays)
    n_own = method.preprocessor.n_num
    return method, {name: seen.num[:, n_own:] for name, seen in method.seen.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_told_the_mean_of_their_nearest(kind: str) -> None:
    method, more = told(ScaledSpy, kind, n_neighbors=7)
    data = parts(kind)
    train = method._encoded(data.train)
    cardinalities = method.preprocessor.cardinalities
    candidates = one_hot(train.arrays, cardinalities).astype(float)
    labels = train.labels[:, None]
    if kind == "classes":
        labels = train.labels[:, None] == np.arange(3)

    for name, part in (("train", data.train), ("val", data.val), ("test", data.test)):
        for i, row in enumerate(one_hot(method._encoded(part).arrays, cardinalities)):
            distance = np.square(candidates - row).sum(1)
            if name == "train":
                distance[i] = np.inf
            near = np.argsort(distance)[:7]
            mean = np.concatenate([candidates[near].mean(0), labels[near].mean(0)])
            np.testing.assert_allclose(more[name][i], mean, rtol=1e-4, atol=1e-5)


def test_a_rows_own_columns_stay_as_they_are() -> None:
    method, _ = told(RawSpy, "regression")
    data = parts("regression")
    for name, part in (("train", data.train), ("val", data.val), ("test", data.test)):
        own, seen = method.preprocessor.transform(part.X), method.seen[name]
        np.testing.assert_array_equal(seen.num[:, : own.num.shape[1]], own.num)
        np.testing.assert_array_equal(seen.bin, own.bin)
        np.testing.assert_array_equal(seen.cat, own.cat)


def test_trees_and_networks_have_the_same_neighbours() -> None:
    raw, scaled = (told(spy, "regression")[1] for spy in (RawSpy, ScaledSpy))
    for name in raw:
        np.testing.assert_allclose(raw[name][:, -1], scaled[name][:, -1], atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_never_told_its_own_label(kind: str) -> None:
    train = parts(kind).train
    y = train.y.copy()
    # Labels change places, so that mean, spread and classes remain.
    first, second = 0, int(np.flatnonzero(y != y[0])[0])
    y[[first, second]] = y[[second, first]]
    before = told(RawSpy, kind, n_neighbors=len(y))[1]["train"]
    after = told(RawSpy, kind, LabelledRows(train.X, y), n_neighbors=len(y))[1]["train"]
    # All others are neighbours: the two see each other's label change, the rest none.
    changed = np.abs(after - before).max(1) > 1e-6
    assert np.flatnonzero(changed).tolist() == [first, second]
    assert np.abs(after - before).max() < 1


def test_where_rows_are_few_all_others_are_neighbours() -> None:
    data = parts("regression")
    few = LabelledRows(data.train.X.iloc[:20].reset_index(drop=True), data.train.y[:20])
    method, more = told(RawSpy, "regression", few)
    labels = method._encoded(few).labels
    others = (labels.sum() - labels) / 19
    np.testing.assert_allclose(more["train"][:, -1], others, atol=1e-5)
    np.testing.assert_allclose(more["val"][:, -1], labels.mean(), atol=1e-5)


def test_a_table_without_numbers_has_neighbours_too() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"new": rng.integers(0, 2, 60), "old": rng.integers(0, 2, 60)})
    y = (X["new"] + 2 * X["old"]).to_numpy(float)
    setting = Setting("regression", device="cpu", n_threads=1)
    method = XGBoostWithNeighbors(setting, 0, n_trees=50, n_neighbors=3)
    method.fit(LabelledRows(X[:40], y[:40]), LabelledRows(X[40:50], y[40:50]))
    assert rmse(y[50:], method.predict(X[50:])) < 0.1


def test_serves_other_methods() -> None:
    data = parts("regression")
    quick = {"width": 32, "n_layers": 1, "learning_rate": 0.01, "max_epochs": 15}
    method = MLPWithNeighbors(
        SETTINGS["regression"], 0, n_neighbors=8, batch_size=32, **quick
    )
    method.fit(data.train, data.val)
    assert rmse(data.test.y, method.predict(data.test.X)) < 0.7 * data.test.y.std()


def test_published_parameters_are_translated() -> None:
    config = {**CALIFORNIA, "neighbors": {"k": 96, "path": "somewhere"}}
    params = neighbors.XGBoostWithNeighbors.published(config)
    method = XGBoostWithNeighbors(SETTINGS["regression"], 0, **params)
    assert method.n_neighbors == 96
    assert method.options["max_depth"] == 9


def test_refuses_no_neighbours() -> None:
    with pytest.raises(ValueError, match="n_neighbors=0"):
        XGBoostWithNeighbors(SETTINGS["regression"], 0, n_neighbors=0)
