"""What the studies share: units of work, tables, models and scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tabr import TabRClassifier, TabRRegressor
from tabr.bench.methods import METHODS, Method
from tabr.bench.methods.tabr import TabRMethod
from tabr.bench.parameters import Config, parameters
from tabr.bench.protocol import setting_of
from tabr.bench.results import score
from tabr.bench.tasks.task import LabelledRows, SplitTable, Task, load
from tabr.bench.workers import Resources
from tabr.metrics import rmse

Record = dict[str, Any]
Model = TabRRegressor | TabRClassifier


class Unit(NamedTuple):
    """A model to fit: what its records begin with, and what makes them.

    It costs nothing before it is run; not even its table is read.
    """

    about: Record
    run: Callable[[], Iterable[Record]]


class Study(NamedTuple):
    """A study: what there is to do, and on which tables.

    Attributes:
        units: Takes names of tables, their folder, seeds and parameters of models.
        tables: Those it looks at unless some are chosen.
        others: Those that may be chosen besides.
        methods: Those that may be chosen; a record of theirs has a `method`.
        n_seeds: How many it is meant to have.
    """

    units: Callable[[Sequence[str], Path, Sequence[int], Record], Iterator[Unit]]
    tables: tuple[str, ...]
    others: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    n_seeds: int = 3


def loader(folder: Path) -> Callable[[Task], SplitTable]:
    """Return what reads a task's table; the last one is kept for the next unit."""
    return lru_cache(maxsize=1)(partial(load, folder=folder))


def make_method(
    task: Task, parts: SplitTable, seed: int, name: str, config: Config, params: Record
) -> TabRMethod:
    """Return a variant of TabR for a task, as the benchmark's runs make it.

    Args:
        task: What is predicted.
        parts: The rows.
        seed: Seed of the model.
        name: Which of the benchmark's methods; it must be a TabR.
        config: Where its parameters come from.
        params: Others, which come before these; among them perhaps the device.
    """
    others = dict(params)
    setting = setting_of(task, parts.train.X, Resources(others.pop("device", None)))
    chosen = parameters(task, name, config, others)
    method = METHODS[name].make(setting, seed, **chosen)
    assert isinstance(method, TabRMethod)
    return method


def score_of(task: Task, part: LabelledRows, method: Method) -> float:
    """Return the score of a part, in the unit of the published figure."""
    return score(task, part.y, method.predict(part.X), method.classes)


def estimator_for(kind: str) -> Callable[..., Model]:
    """Return the estimator of numbers or of classes."""
    return TabRRegressor if kind == "regression" else TabRClassifier


def plain_score(kind: str, truth: NDArray[Any], prediction: NDArray[Any]) -> float:
    """Return the RMSE of numbers or the accuracy of classes."""
    if kind == "regression":
        return round(rmse(truth, prediction), 5)
    return round(float(np.mean(truth == prediction)), 5)
