"""What every method must do, on small tables of three kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest
from numpy.typing import NDArray

from tabr.bench.methods import METHODS, Entry, Method, Setting
from tabr.bench.tasks.task import LabelledRows, SplitTable
from tabr.metrics import accuracy, rmse

KINDS = ("regression", "binary", "classes")
SETTINGS = {
    kind: Setting(
        "regression" if kind == "regression" else "classification",
        column_kinds={"town": "categorical"},
        device="cpu",
        n_threads=1,
    )
    for kind in KINDS
}
SEED_DOES_NOTHING = {"knn"}  # it draws no random number


def table(kind: str, n: int = 240, seed: int = 0) -> tuple[pd.DataFrame, NDArray[Any]]:
    """Return rows of every kind of column, and labels that depend on all of them."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({
        "size": rng.normal(size=n),
        "age": rng.uniform(1, 90, n),
        "new": rng.integers(0, 2, n),
        "town": rng.choice(["aa", "bb", "cc"], n),
    })  # fmt: skip
    X.loc[rng.random(n) < 0.05, "age"] = np.nan
    signal = X["size"] + X["age"].fillna(45) / 30 + X["new"] + (X["town"] == "bb")
    y = signal.to_numpy() * 10
    if kind == "regression":
        return X, y
    bounds = [0.5] if kind == "binary" else [0.33, 0.66]
    codes = np.searchsorted(np.quantile(y, bounds), y)
    return X, np.array(["low", "mid", "top"])[codes]


def parts(kind: str) -> SplitTable:
    X, y = table(kind)

    def part(rows: slice) -> LabelledRows:
        return LabelledRows(X.iloc[rows].reset_index(drop=True), y[rows])

    return SplitTable(part(slice(0, 140)), part(slice(140, 190)), part(slice(190, 240)))


def fitted(entry: Entry, kind: str, params: dict[str, Any], seed: int = 0) -> Method:
    data = parts(kind)
    return entry.make(SETTINGS[kind], seed, **params).fit(data.train, data.val)


def check_shapes(method: Method, kind: str) -> None:
    prediction = method.predict(parts(kind).test.X)
    n_classes = {"regression": None, "binary": 2, "classes": 3}[kind]
    assert prediction.shape == ((50,) if n_classes is None else (50, n_classes))
    assert prediction.dtype == np.float64
    assert np.isfinite(prediction).all()


def check_probabilities(method: Method, kind: str) -> None:
    if kind != "regression":
        prediction = method.predict(parts(kind).test.X)
        assert (prediction >= 0).all()
        np.testing.assert_allclose(prediction.sum(1), 1, atol=1e-6)


def check_better_than_a_constant(method: Method, kind: str) -> None:
    data = parts(kind)
    prediction = method.predict(data.test.X)
    if kind == "regression":
        assert rmse(data.test.y, prediction) < 0.9 * data.test.y.std()
    else:
        codes = np.unique(data.test.y, return_inverse=True)[1]
        share = np.bincount(codes).max() / len(codes)
        assert accuracy(codes, prediction) > share + 0.05


def check_a_row_is_predicted_alone(method: Method, kind: str) -> None:
    X = parts(kind).test.X
    together = method.predict(X)
    alone = np.concatenate([method.predict(X.iloc[[i]]) for i in (0, 7, 49)])
    np.testing.assert_allclose(alone, together[[0, 7, 49]], rtol=1e-3, atol=1e-4)
    order = np.arange(len(X))[::-1]
    np.testing.assert_allclose(
        method.predict(X.iloc[order])[order], together, rtol=1e-3, atol=1e-4
    )


def check_missing_and_unseen_cells(method: Method, kind: str) -> None:
    strange = pd.DataFrame({
        "size": [np.nan, 0.1], "age": [50.0, np.nan],
        "new": [0, 1], "town": ["elsewhere", None],
    })  # fmt: skip
    prediction = method.predict(strange)
    assert len(prediction) == 2 and np.isfinite(prediction).all()


EACH: list[Callable[[Method, str], None]] = [
    check_shapes,
    check_probabilities,
    check_better_than_a_constant,
    check_a_row_is_predicted_alone,
    check_missing_and_unseen_cells,
]


def check_all(name: str, kind: str, params: dict[str, Any]) -> None:
    """Run every check; `params` make a method small, not weak."""
    entry = METHODS[name]
    setting = SETTINGS[kind]
    if setting.outcome not in entry.method.outcomes:
        with pytest.raises(ValueError, match="choose another method"):
            entry.make(setting, 0)
        return
    method = fitted(entry, kind, params)
    for check in EACH:
        check(method, kind)
    X = parts(kind).test.X
    same = fitted(entry, kind, params).predict(X)
    np.testing.assert_array_equal(same, method.predict(X))
    other = fitted(entry, kind, params, seed=1).predict(X)
    if name not in SEED_DOES_NOTHING:
        assert not np.array_equal(other, same)


def check_space(name: str) -> None:
    """The space must yield what the constructor takes."""
    entry = METHODS[name]
    outcome = entry.method.outcomes[0]
    sampler = optuna.samplers.RandomSampler(seed=0)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=sampler)
    for _ in range(5):
        chosen = entry.space(study.ask())
        assert chosen and not set(chosen) & set(entry.fixed)
        entry.make(Setting(outcome, device="cpu"), 0, **chosen)
