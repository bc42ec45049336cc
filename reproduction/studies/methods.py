"""The presets and what they are set beside, each called as its users would call it.

Nothing is tuned. Where there are rows to stop by, trees are added until many in turn
bring nothing, and may be more than their library grows by default.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from reproduction.studies.units import Record, estimator_for
from tabr.bench.results import current_commit
from tabr.bench.tasks.task import LabelledRows
from tabr.device.devices import choose_device, device_name
from tabr.metrics import MEASURES, codes_of
from tabr.optional import require

N_TREES, PATIENCE = 2000, 100  # where there are rows to stop by
N_NEAREST = 10


class Split(NamedTuple):
    """What is predicted, and the rows to learn from, to test and perhaps to stop by."""

    kind: str
    train: LabelledRows
    test: LabelledRows
    stop: LabelledRows | None = None

    @property
    def classes(self) -> NDArray[Any]:
        """The labels of all rows, each once."""
        parts = (self.train, self.test, self.stop)
        return np.unique(np.concatenate([part.y for part in parts if part is not None]))

    def with_tables(self, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Split:
        """Return the same rows in changed tables."""
        train, test = (replace(p, X=change(p.X)) for p in (self.train, self.test))
        stop = None if self.stop is None else replace(self.stop, X=change(self.stop.X))
        return Split(self.kind, train, test, stop)


class StudyMethod(NamedTuple):
    """A method: its name on a page, and what fits a model.

    Attributes:
        fit: Takes a split, a seed and parameters of the estimators.
        is_preset: Whether it is one of ours: it reads dates, and may use a GPU.
    """

    title: str
    fit: Callable[[Split, int, Record], Any]
    is_preset: bool = False


def labelled(frame: pd.DataFrame) -> LabelledRows:
    """Return rows of a table and their labels, those of its column `target`."""
    X = frame.drop(columns="target").reset_index(drop=True)
    return LabelledRows(X, frame["target"].to_numpy())


def run_method(
    name: str, split: Split, seed: int, params: Record, measures: Sequence[str]
) -> Record:
    """Return a method's scores of the test rows, and what its fit took."""
    method = STUDY_METHODS[name]
    if not method.is_preset:
        split = split.with_tables(with_days)
    device = choose_device(params.get("device") if method.is_preset else "cpu")
    start = time.perf_counter()
    model = method.fit(split, seed, params)
    seconds = time.perf_counter() - start
    return {
        **scores(split, model, measures),
        "seconds": round(seconds, 3),
        "hardware": device_name(device),
        "commit": current_commit(),
    }


def scores(split: Split, model: Any, measures: Sequence[str]) -> Record:
    """Return those of the measures that numbers, or classes, have."""
    of_classes = split.kind == "classification"
    truth = split.test.y
    if of_classes:
        truth = codes_of(truth, split.classes)
        # A class without a training row has no column, but test rows.
        prediction = np.zeros((len(truth), len(split.classes)))
        columns = codes_of(np.asarray(model.classes_), split.classes)
        prediction[:, columns] = model.predict_proba(split.test.X)
    else:
        prediction = model.predict(split.test.X)
    chosen = [MEASURES[n] for n in measures if MEASURES[n].of_classes == of_classes]
    # Digits, not decimals: some labels are thousandths, others dollars.
    return {m.name: float(f"{m.compute(truth, prediction):.6g}") for m in chosen}


def with_days(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with dates as days since 1970, as trees read nothing but numbers.

    >>> dates = pd.DataFrame({"a": [1], "when": [pd.Timestamp("1970-01-03 12:00")]})
    >>> with_days(dates).when.tolist()
    [2.5]
    """
    day = pd.Timedelta(days=1)
    dates = frame.select_dtypes("datetime").columns
    return frame.assign(**{n: (frame[n] - pd.Timestamp(0)) / day for n in dates})


# --- how each is fitted -----------------------------------------------------------


def _fit_preset(preset: str, split: Split, seed: int, params: Record) -> Any:
    model = estimator_for(split.kind)(preset=preset, **params, random_state=seed)
    stop = split.stop
    eval_set = None if stop is None else (stop.X, stop.y)
    return model.fit(split.train.X, split.train.y, eval_set=eval_set)


def _fit_catboost(split: Split, seed: int, params: Record) -> Any:
    library = require("catboost", extra="boost")
    is_number = split.kind == "regression"
    make = library.CatBoostRegressor if is_number else library.CatBoostClassifier
    options = {"random_seed": seed, "thread_count": 1, "verbose": False}
    more: Record = {"cat_features": _categorical(split.train.X)}
    if split.stop is not None:
        options |= {"iterations": N_TREES, "early_stopping_rounds": PATIENCE}
        more["eval_set"] = split.stop.X, split.stop.y
    model = make(**options, allow_writing_files=False)
    return model.fit(split.train.X, split.train.y, **more)


def _fit_lightgbm(split: Split, seed: int, params: Record) -> Any:
    library = require("lightgbm", extra="boost")
    is_number = split.kind == "regression"
    make = library.LGBMRegressor if is_number else library.LGBMClassifier
    options = {"random_state": seed, "n_jobs": 1, "verbose": -1}
    more: Record = {}
    if split.stop is not None:
        options["n_estimators"] = N_TREES
        more["eval_set"] = [(split.stop.X, split.stop.y)]
        more["callbacks"] = [library.early_stopping(PATIENCE, verbose=False)]
    with warnings.catch_warnings():
        # `eval_set` is about to get another name, which earlier versions do not know.
        warnings.simplefilter("ignore", FutureWarning)
        return make(**options).fit(split.train.X, split.train.y, **more)


def _fit_nearest(split: Split, seed: int, params: Record) -> NearestRows:
    nearest = NearestRows(split.kind == "classification")
    return nearest.fit(split.train.X, split.train.y)


def _categorical(frame: pd.DataFrame) -> list[str]:
    """Return the names of the columns of categories."""
    return list(frame.select_dtypes("category").columns)


class NearestRows:
    """The mean label of the nearest rows: numbers standardised, categories one-hot.

    Of classes it is the votes, and one vote more for what is usual: a class without a
    vote stays possible.
    """

    def __init__(self, of_classes: bool) -> None:
        self.of_classes = of_classes

    def fit(self, X: pd.DataFrame, y: NDArray[Any]) -> Self:
        """Keep the rows."""
        levels = OneHotEncoder(handle_unknown="ignore"), _categorical(X)
        scale = make_column_transformer(levels, remainder=StandardScaler())
        search = KNeighborsRegressor(min(N_NEAREST, len(y)))
        if self.of_classes:
            self.classes_, codes = np.unique(y, return_inverse=True)
            y = np.eye(len(self.classes_))[codes]
            self.usual = y.mean(0)
        self.search = make_pipeline(scale, search).fit(X, y)
        return self

    def predict(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Return the mean labels, or the shares of votes."""
        mean: NDArray[np.float64] = self.search.predict(X)
        return mean

    def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Return probabilities (n, classes)."""
        n = self.search[-1].n_neighbors
        proba: NDArray[np.float64] = (n * self.predict(X) + self.usual) / (n + 1)
        return proba


# As the benchmark names them, in the order of pages.
STUDY_METHODS: Mapping[str, StudyMethod] = {
    "tabr-d": StudyMethod("preset default", partial(_fit_preset, "default"), True),
    "tabr-best": StudyMethod("preset best", partial(_fit_preset, "best"), True),
    "catboost": StudyMethod("CatBoost", _fit_catboost),
    "lightgbm": StudyMethod("LightGBM", _fit_lightgbm),
    "knn": StudyMethod("nearest rows", _fit_nearest),
}
TREES = ("catboost", "lightgbm")
PRESETS = tuple(name for name, method in STUDY_METHODS.items() if method.is_preset)
