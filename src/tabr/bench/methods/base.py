"""What every method of the comparison has in common.

A *method* learns from a training part, stops early by a validation part and predicts.
Tables and labels are prepared here, by the preprocessing that the paper gives to the
method's family, so that two methods cannot differ by accident; a method sees arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from tabr.bench.tasks.task import LabelledRows
from tabr.config import EmbeddingKind, Task
from tabr.device.devices import choose_device
from tabr.errors import DataError, ParameterError
from tabr.metrics import Score, make_score
from tabr.tables.cells import ColumnKind
from tabr.tables.normalize import Normalization
from tabr.tables.preprocessor import Arrays, Preprocessor
from tabr.tables.targets import ClassTarget, NumberTarget, Outcome

Floats = NDArray[np.floating[Any]]
EVERY: tuple[Outcome, ...] = ("regression", "classification")


class Trial(Protocol):
    """What a space asks of an Optuna trial."""

    def suggest_float(
        self, name: str, low: float, high: float, *, log: bool = False
    ) -> float:
        """Choose a number between low and high."""
        ...

    def suggest_int(self, name: str, low: int, high: int) -> int:
        """Choose a whole number from low to high."""
        ...

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        """Choose one of several values."""
        ...


def zero_or(
    trial: Trial, name: str, low: float, high: float, *, log: bool = True
) -> float:
    """Choose zero, or a number between: the paper's {0, LogU} and {0, U}."""
    if not trial.suggest_categorical(f"{name} is not zero", [False, True]):
        return 0.0
    return trial.suggest_float(name, low, high, log=log)


@dataclass(frozen=True)
class Setting:
    """What a table and a machine decide, and no method.

    Attributes:
        outcome: What is predicted.
        column_kinds: Kinds of columns that would be guessed wrongly.
        normalized: Whether methods that scale numbers may do so for this table.
        device: Where to compute; None is a GPU if there is one.
        n_threads: Threads of libraries that have their own; None is all cores.
        on_epoch: Called by networks after each epoch with its number and validation
            score, larger is better; what it raises ends the fit.
    """

    outcome: Outcome
    column_kinds: Mapping[str, ColumnKind] = field(default_factory=dict)
    normalized: bool = True
    device: str | None = None
    n_threads: int | None = None
    on_epoch: Callable[[int, float], None] | None = None


@dataclass(frozen=True)
class Encoded:
    """Rows as arrays and their encoded labels (n,): standardised numbers, or codes."""

    arrays: Arrays
    labels: NDArray[Any]

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(self.labels)


def embedding_space(trial: Trial, kind: EmbeddingKind) -> dict[str, Any]:
    """Choose the embedding of numbers as the paper did for every network with one."""
    if kind == "lr":
        return {"embedding_width": trial.suggest_int("embedding_width", 16, 96)}
    scale = trial.suggest_float("frequency_scale", 0.01, 100.0, log=True)
    return {
        "embedding_width": trial.suggest_int("embedding_width", 16, 64),
        "n_frequencies": trial.suggest_int("n_frequencies", 16, 96),
        "frequency_scale": scale,
    }


class Method(ABC):
    """A learner that the harness can run.

    Subclasses take `(setting, seed, *, <their own parameters>)`, all with the defaults
    of their default configuration.

    Attributes:
        outcomes: What it can predict.
        has_batches: Whether it takes a `batch_size`, which the paper fixes by table.
        needs_no_tuning: Whether the paper tuned nothing, or `fit` chooses by itself.
        fits_as_one: Whether learners of successive seeds can be fitted as one.
        libraries: Optional libraries that it needs.
        extra: The extra of tabr that installs them.
        device: Where it computes.
        best_epoch: The epoch (or number of trees) that was kept, where there is one.
    """

    outcomes: ClassVar[tuple[Outcome, ...]] = EVERY
    has_batches: ClassVar[bool] = False
    needs_no_tuning: ClassVar[bool] = False
    fits_as_one: ClassVar[bool] = False
    libraries: ClassVar[tuple[str, ...]] = ()
    extra: ClassVar[str] = ""

    def __init__(self, setting: Setting, seed: int) -> None:
        """Refuse a kind of target that the method has no loss for."""
        if setting.outcome not in self.outcomes:
            raise ParameterError(
                f"{type(self).__name__} predicts {' and '.join(self.outcomes)}, "
                f"however {setting.outcome} came: choose another method"
            )
        self.setting, self.seed = setting, seed
        self.device = choose_device(setting.device)
        self.best_epoch: int | None = None

    @staticmethod
    @abstractmethod
    def space(trial: Trial, **fixed: Any) -> dict[str, Any]:
        """Choose parameters for the constructor: the paper's tuning space.

        Parameters that a variant of the method fixes come as `fixed`.
        """

    @staticmethod
    def published(config: Mapping[str, Any]) -> dict[str, Any]:
        """Translate a published tuned configuration into the constructor's words."""
        raise DataError(
            "a published configuration must be of a method that can read one, however"
            f" this came: {dict(config)}"
        )

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
        """Return the labels of the columns of probabilities; None for values."""

    @abstractmethod
    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return values (n,) in the units of y, or probabilities (n, classes)."""

    @property
    def n_parameters(self) -> int | None:
        """Return how many numbers were trained, where that can be said."""
        return None


class ArrayMethod(Method):
    """A method that reads arrays; tables and labels are prepared for it.

    Subclasses write `_fit`, `_predict` and `space`.

    Attributes:
        normalization: How numbers are scaled for its family.
    """

    normalization: ClassVar[Normalization] = "published-quantile"

    preprocessor: Preprocessor
    target: NumberTarget | ClassTarget

    def fit(self, train: LabelledRows, val: LabelledRows) -> Self:
        """Learn from the training part; the validation part decides when to stop."""
        is_number = self.setting.outcome == "regression"
        self.target = (NumberTarget() if is_number else ClassTarget()).fit(train.y)
        self.preprocessor = Preprocessor(
            normalization=self.normalization if self.setting.normalized else "none",
            kinds=self.setting.column_kinds,
        ).fit(train.X)
        score = make_score(None, val.X, val.y, self.classes)
        self._fit(self._encoded(train), self._encoded(val), score)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return values (n,) in the units of y, or probabilities (n, classes)."""
        output = self._predict(self.preprocessor.transform(X))
        return self.decoded(output)

    @property
    def classes(self) -> NDArray[Any] | None:
        """Return the labels of the columns of probabilities; None for values."""
        return self.target.classes if isinstance(self.target, ClassTarget) else None

    # --- what a method writes -------------------------------------------------------

    @abstractmethod
    def _fit(self, train: Encoded, val: Encoded, score: Score) -> None:
        """Learn; `score` takes what `decoded` returns for val, larger is better."""

    @abstractmethod
    def _predict(self, arrays: Arrays) -> Floats:
        """Return standardised values (n,), or probabilities (n, classes)."""

    # --- helpers ----------------------------------------------------------------------

    @property
    def task(self) -> Task:
        """Return which loss is to be minimised."""
        return self.target.task

    @property
    def n_outputs(self) -> int:
        """Return the width of a network's output: one, or a logit for each class."""
        return self.target.n_classes if self.task == "classes" else 1

    def decoded(self, output: Floats) -> NDArray[np.float64]:
        """Return values in the units of y; probabilities stay what they are."""
        return self.target.in_units(output)

    def _encoded(self, part: LabelledRows) -> Encoded:
        arrays = self.preprocessor.transform(part.X)
        return Encoded(arrays, self.target.encode(part.y))


def one_hot(arrays: Arrays, cardinalities: tuple[int, ...]) -> NDArray[np.float32]:
    """Return one matrix (n, d): numbers, binary columns, one-hot categories.

    A code without a level is all zeros.
    """
    hot = [
        arrays.cat[:, [column]] == np.arange(n_levels)
        for column, n_levels in enumerate(cardinalities)
    ]
    parts = [arrays.num, arrays.bin, *hot]
    return np.concatenate([part.astype(np.float32) for part in parts], axis=1)
