"""The interface of all methods, and the preparation of tables that they share.

A *method* learns from a training part, stops early by a validation part and predicts.
Tables and labels are prepared here, by the preprocessing that the paper gives to the
method's family, so that two methods cannot differ by accident; a method sees arrays.
"""

from __future__ import annotations

import functools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tabr.bench.methods.spaces import Space
from tabr.bench.tasks.task import LabelledRows
from tabr.config import Task
from tabr.device.devices import choose_device
from tabr.errors import DataError, ParameterError
from tabr.metrics import Score, make_score
from tabr.tables.cells import ColumnKind
from tabr.tables.normalize import Normalization
from tabr.tables.preprocessor import Arrays, Preprocessor
from tabr.tables.targets import ClassTarget, NumberTarget, Outcome, Target
from tabr.training.loop import History

Floats = NDArray[np.floating[Any]]
OUTCOMES: tuple[Outcome, ...] = ("regression", "classification")


@dataclass(frozen=True)
class Setting:
    """The part of a run that the table and the machine decide, whatever the method.

    Attributes:
        outcome: What is predicted.
        column_kinds: Kinds of columns that would be guessed wrongly.
        normalized: Whether methods that scale numbers may do so for this table.
        device: Where to compute; None is a GPU if there is one.
        n_threads: Threads of libraries that have their own; None is all cores.
        on_epoch: Called by networks after each epoch with its number and validation
            score, larger is better; what it raises ends the fit.
        scoring: The measure by which the validation part decides; None is the paper's,
            or the method's own.
    """

    outcome: Outcome
    column_kinds: Mapping[str, ColumnKind] = field(default_factory=dict)
    normalized: bool = True
    device: str | None = None
    n_threads: int | None = None
    on_epoch: Callable[[int, float], None] | None = None
    scoring: str | None = None

    def report(self, history: History) -> None:
        """Call `on_epoch` for the last epoch of a history."""
        if self.on_epoch is not None:
            self.on_epoch(len(history.score) - 1, history.score[-1])


class Method(ABC):
    """A learner that the harness can run.

    Subclasses take `(setting, seed, *, <their own parameters>)`, all with the defaults
    of their default configuration.

    Attributes:
        outcomes: The kinds of target that it can predict.
        has_batches: Whether it takes a `batch_size`, which the paper fixes by table.
        needs_no_tuning: Whether the paper tuned nothing, or `fit` chooses by itself.
        fits_as_one: Whether learners of successive seeds can be fitted as one.
        libraries: Optional libraries that it needs.
        extra: The extra of tabr that installs them.
        search_space: The paper's tuning space.
        embedding_spaces: What follows it, by the `embedding` that a variant fixes.
        published_names: The place of each parameter in a published configuration, as
            "model.width"; with a "?" at the end it may be missing.
        device: Where it computes.
        best_epoch: The epoch (or number of trees) that was kept, where there is one.
        stopped_by: What decides instead of the setting's scoring, as a library calls
            it; None where it is that.
    """

    outcomes: ClassVar[tuple[Outcome, ...]] = OUTCOMES
    has_batches: ClassVar[bool] = False
    needs_no_tuning: ClassVar[bool] = False
    fits_as_one: ClassVar[bool] = False
    libraries: ClassVar[tuple[str, ...]] = ()
    extra: ClassVar[str] = ""
    search_space: ClassVar[Space] = {}
    embedding_spaces: ClassVar[Mapping[str | None, Space]] = {}
    published_names: ClassVar[Mapping[str, str]] = {}

    def __init__(self, setting: Setting, seed: int) -> None:
        if setting.outcome not in self.outcomes:
            raise ParameterError(
                f"{type(self).__name__} predicts {' and '.join(self.outcomes)}, "
                f"however {setting.outcome} came: choose another method"
            )
        self.setting, self.seed = setting, seed
        self.device = choose_device(setting.device)
        self.best_epoch: int | None = None
        self.stopped_by: str | None = None

    @classmethod
    def published(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the constructor's parameters for a published tuned configuration."""
        if not cls.published_names:
            raise DataError(
                "a published configuration must be of a method that can read one,"
                f" however this came: {dict(config)}"
            )
        params: dict[str, Any] = {}
        for name, path in cls.published_names.items():
            keys = path.removesuffix("?").split(".")
            try:
                params[name] = functools.reduce(operator.getitem, keys, config)
            except (KeyError, TypeError):
                if not path.endswith("?"):
                    raise
        return params

    @abstractmethod
    def fit(self, train: LabelledRows, val: LabelledRows) -> Self:
        """Learn from the training part; the validation part decides when to stop."""

    @classmethod
    def fit_as_one(
        cls, methods: Sequence[Any], train: LabelledRows, val: LabelledRows
    ) -> None:
        """Fit learners that differ by successive seeds, which on a GPU is faster."""
        for method in methods:
            method.fit(train, val)

    @property
    @abstractmethod
    def classes(self) -> NDArray[Any] | None:
        """The labels of the columns of probabilities; None for values."""

    @abstractmethod
    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return values (n,) in the units of y, or probabilities (n, classes)."""

    @property
    def n_parameters(self) -> int | None:
        """The number of trained parameters, for a network."""
        return None


@dataclass(frozen=True)
class Encoded:
    """Rows as arrays and their encoded labels (n,): standardised numbers, or codes."""

    arrays: Arrays
    labels: NDArray[Any]

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.labels)


class ArrayMethod(Method):
    """A method that reads arrays; tables and labels are prepared for it.

    Subclasses write `_fit`, `_predict` and `search_space`.

    Attributes:
        normalization: The scaling of numbers for its family.
    """

    normalization: ClassVar[Normalization] = "published-quantile"

    preprocessor: Preprocessor
    target: Target

    def fit(self, train: LabelledRows, val: LabelledRows) -> Self:
        """Learn from the training part; the validation part decides when to stop."""
        is_number = self.setting.outcome == "regression"
        self.target = (NumberTarget() if is_number else ClassTarget()).fit(train.y)
        self.preprocessor = Preprocessor(
            normalization=self.normalization if self.setting.normalized else "none",
            kinds=self.setting.column_kinds,
        )
        arrays = self.preprocessor.fit_transform(train.X)
        learned = Encoded(arrays, self.target.encode(train.y))
        score = make_score(self.setting.scoring, val.X, val.y, self.classes)
        self._fit(learned, self._encoded(val), score)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return values (n,) in the units of y, or probabilities (n, classes)."""
        return self.decoded(self._predict(self.preprocessor.transform(X)))

    @property
    def classes(self) -> NDArray[Any] | None:
        """The labels of the columns of probabilities; None for values."""
        return self.target.classes

    # --- what a method writes -------------------------------------------------------

    @abstractmethod
    def _fit(self, train: Encoded, val: Encoded, score: Score) -> None:
        """Learn; `score` takes what `decoded` returns for val, larger is better."""

    @abstractmethod
    def _predict(self, arrays: Arrays) -> Floats:
        """Return what `decoded` reads: standardised values, or probabilities."""

    # --- helpers ----------------------------------------------------------------------

    @property
    def task(self) -> Task:
        """The kind of loss to be minimised."""
        return self.target.task

    def decoded(self, output: Floats) -> NDArray[np.float64]:
        """Return values in the units of y; probabilities stay what they are."""
        return self.target.in_units(output)

    def _encoded(self, part: LabelledRows) -> Encoded:
        arrays = self.preprocessor.transform(part.X)
        return Encoded(arrays, self.target.encode(part.y))

    def _one_hot(self, arrays: Arrays) -> NDArray[np.float32]:
        """Return rows as vectors (n, d), categories one-hot."""
        return one_hot(arrays, self.preprocessor.cardinalities)


def check_minimum(bound: int, **numbers: float | None) -> None:
    """Refuse parameters below a bound; None is not checked."""
    for name, number in numbers.items():
        if number is not None and number < bound:
            raise ParameterError(
                f"`{name} >= {bound}` must hold, however: {name}={number!r}"
            )


def check_share(**shares: float) -> None:
    """Refuse parameters that are no share of a whole."""
    for name, share in shares.items():
        if not 0 < share <= 1:
            raise ParameterError(
                f"`0 < {name} <= 1` must hold, however: {name}={share!r}"
            )


def one_hot(arrays: Arrays, cardinalities: Sequence[int]) -> NDArray[np.float32]:
    """Return one matrix (n, d): numbers, binary columns, one-hot categories.

    A code without a level is all zeros.
    """
    levels = [
        arrays.cat[:, [column]] == np.arange(n_levels)
        for column, n_levels in enumerate(cardinalities)
    ]
    parts: list[NDArray[Any]] = [arrays.num, arrays.bin, *levels]
    return np.concatenate(parts, axis=1, dtype=np.float32)
