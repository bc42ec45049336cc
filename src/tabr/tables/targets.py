"""Targets become labels for a network, and its outputs become predictions.

`NumberTarget` standardises numbers and `ClassTarget` numbers the classes. Both take y
as an array, a list, or a series or one-column table of pandas, polars or pyarrow. All
that differs between the two, differs here; others ask the target.
"""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api import types
from scipy.special import expit, softmax

from tabr.config import Task
from tabr.errors import DataError
from tabr.tables.labels import read_classes, read_numbers
from tabr.text import number

Outcome = Literal["regression", "classification"]

MAX_CLASSES = 20  # whole numbers with more distinct values are quantities
_MOST_SIDES = 8  # classes whose shares are told of each level of a column
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_FAR = 3.0  # ranges of the labels of fit; a heavy tail goes one beyond them at times
_LEAST = float(np.nextafter(0.0, 1.0))  # number above zero


def choose_task(y: pd.Series[Any]) -> tuple[Outcome, str]:
    """Return the task that a target's values suggest, and what they are."""
    n_distinct = int(y.nunique())
    if types.is_bool_dtype(y.dtype):
        return "classification", "flags"
    if not types.is_numeric_dtype(y.dtype):
        if types.is_datetime64_any_dtype(y.dtype):
            raise DataError(
                f"a target must be numbers or classes, however {y.name!r} is dates"
            )
        if n_distinct > MAX_CLASSES and 2 * n_distinct > len(y):
            raise DataError(
                f"{y.name!r} is text with {n_distinct} distinct values in {len(y)} rows"
                f" (first {str(y.iloc[0])!r}), too many for classes: turn it into"
                " numbers, or ask for classification"
            )
        return "classification", f"{n_distinct} classes"
    few = n_distinct == 2 or (n_distinct <= MAX_CLASSES and 5 * n_distinct <= len(y))
    if few and bool((y.dropna() % 1 == 0).all()):
        return "classification", f"only {n_distinct} different whole numbers"
    return "regression", f"numbers, {n_distinct} of them different"


class Target(ABC):
    """What is predicted.

    Three things have one name each: *outputs* (n, k) are what a network returns,
    *predictions* are values (n,) in the units of y or probabilities (n, classes), and
    *answers* (n,) are values or classes, as the user calls them.

    Attributes:
        task: Which loss.
        classes: The classes (n_classes,) in the order of labels; None for numbers.
        label_dtype: How labels are kept.
        scale: Units of y in one unit of labels.
    """

    task: Task
    classes: npt.NDArray[Any] | None
    label_dtype: ClassVar[npt.DTypeLike]
    scale: float = 1.0

    @property
    def n_classes(self) -> int:
        """The number of classes; 0 for numbers."""
        return 0 if self.classes is None else len(self.classes)

    @staticmethod
    @abstractmethod
    def read(
        y: object, *, n_rows: int | None = None, caller: str = "The model"
    ) -> npt.NDArray[Any]:
        """Return y of any make as an array (n,), nothing missing."""

    @abstractmethod
    def fit(
        self, y: object, *, n_rows: int | None = None, caller: str = "The model"
    ) -> Self:
        """Learn from the labels of a table of `n_rows` rows."""

    @abstractmethod
    def scaled_by(self, y: npt.NDArray[Any]) -> Self:
        """Return the target with the scale of y, all else as it is."""

    @abstractmethod
    def encode(self, y: object, *, n_rows: int | None = None) -> npt.NDArray[Any]:
        """Return labels (n,) for a network."""

    @abstractmethod
    def as_fitted(
        self, y: npt.NDArray[Any], labels: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        """Return y (n,) with these labels in the type that the y of fit had."""

    @abstractmethod
    def sides(self, labels: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return what means of labels are taken of (n, k), for encoded labels (n,)."""

    @abstractmethod
    def strata(self, y: npt.NDArray[Any]) -> npt.NDArray[np.int64] | None:
        """Return what a split should keep in proportion (n,), or None."""

    @abstractmethod
    def predictions(self, outputs: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return values (n,) or probabilities (n, classes) from outputs (n, k)."""

    @abstractmethod
    def in_units(self, predictions: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return values (n,) from standardised ones; probabilities stay."""

    @abstractmethod
    def answers(self, predictions: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Return values (n,), or the likeliest classes (n,)."""

    @abstractmethod
    def chosen(
        self, predictions: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.int64] | None:
        """Return which column of predictions is the answer (n,); None for values."""

    @abstractmethod
    def usual(self, y: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the prediction that knows nothing: mean (), or shares (classes,)."""

    @abstractmethod
    def doubt(self, y: npt.NDArray[Any]) -> str | None:
        """Return a sentence on labels (n,) that are unlike those of fit, or None."""

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return all that was fitted as a JSON-able dict and named arrays."""

    @classmethod
    @abstractmethod
    def from_state(
        cls, state: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
    ) -> Self:
        """Return the target that `state` described."""


class NumberTarget(Target):
    """A number to predict; labels are standardised by the training rows.

    >>> target = NumberTarget().fit([1.0, 2.0, 3.0])
    >>> target.predictions(target.encode([2.0]))
    array([2.])
    """

    task = "regression"
    classes = None
    label_dtype = np.float32
    mean: float
    scale: float  # standard deviation; 0 if all targets are equal
    low: float = -np.inf  # of the training rows; older files do not tell
    high: float = np.inf

    @staticmethod
    def read(
        y: object, *, n_rows: int | None = None, caller: str = "The model"
    ) -> npt.NDArray[np.float64]:
        """Return y of any make as finite numbers (n,)."""
        return read_numbers(y, n_rows, caller)

    def fit(
        self, y: object, *, n_rows: int | None = None, caller: str = "The model"
    ) -> Self:
        """Learn mean and standard deviation; `n_rows` is the table's row count."""
        values = read_numbers(y, n_rows, caller)
        self.low, self.high = float(values.min()), float(values.max())
        if self.low == self.high:  # in no unit: all that can be said is this
            self.mean, self.scale = float(values[0]), 0.0
            return self
        # a power of two is exact and keeps squares of huge numbers finite
        exponent = np.frexp(np.abs(values).max())[1]
        values = np.ldexp(values, -exponent)
        self.mean = float(np.ldexp(values.mean(), exponent))
        self.scale = float(np.ldexp(values.std(), exponent)) or _LEAST
        return self

    def scaled_by(self, y: npt.NDArray[Any]) -> Self:
        """Return the target with the mean and the scale of y."""
        return type(self)().fit(y)

    def encode(
        self, y: object, *, n_rows: int | None = None
    ) -> npt.NDArray[np.float32]:
        """Return labels (n,)."""
        values = read_numbers(y, n_rows)
        if self.scale == 0:
            return np.zeros(len(values), dtype=np.float32)
        with np.errstate(over="ignore"):
            labels = (values - self.mean) / self.scale
        return np.clip(labels, -_FLOAT32_MAX, _FLOAT32_MAX).astype(np.float32)

    def as_fitted(
        self, y: npt.NDArray[Any], labels: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64]:
        """Return y itself."""
        return y

    def sides(self, labels: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the labels themselves (n, 1)."""
        return labels.astype(np.float64).reshape(-1, 1)

    def strata(self, y: npt.NDArray[Any]) -> None:
        """Return None: any split will do."""

    def predictions(self, outputs: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return values (n,) in the units of y from outputs (n,) or (n, 1)."""
        values = np.asarray(outputs, dtype=np.float64).reshape(-1)
        if self.scale == 0:
            return np.full(len(values), self.mean)
        return values * self.scale + self.mean

    def in_units(self, predictions: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return values (n,) in the units of y from standardised ones."""
        return self.predictions(predictions)

    def answers(self, predictions: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the values themselves."""
        return predictions

    def chosen(self, predictions: npt.NDArray[np.float64]) -> None:
        """Return None: values have no columns."""

    def usual(self, y: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the mean of y, ()."""
        with np.errstate(over="ignore"):
            mean = np.mean(y, dtype=np.float64)
        # Rounding may move a mean beyond its parts.
        return np.asarray(np.clip(mean, np.min(y), np.max(y)), dtype=np.float64)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return all that was fitted as a JSON-able dict and named arrays."""
        state = {"mean": self.mean, "std": self.scale}
        if np.isfinite(self.low):
            state |= {"low": self.low, "high": self.high}
        return state, {}

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
    ) -> Self:
        """Return the target that `state` described."""
        self = cls()
        self.mean, self.scale = state["mean"], state["std"]
        self.low, self.high = state.get("low", -np.inf), state.get("high", np.inf)
        return self

    def doubt(self, y: npt.NDArray[Any]) -> str | None:
        """Return a sentence if labels lie beyond those of fit by thrice their range.

        >>> print(NumberTarget().fit([0.0, 10.0]).doubt(np.array([39.0, -29.0])))
        None
        """
        width = self.high / 2 - self.low / 2  # half of it, as the whole may overflow
        away = np.maximum(self.low / 2 - y / 2, y / 2 - self.high / 2)
        with np.errstate(over="ignore"):
            far = away > _FAR * width
        if not far.any():
            return None
        what = "1 label lies" if far.sum() == 1 else f"{far.sum()} labels lie"
        return (
            f"{what} far beyond those that fit saw, {number(self.low)} to"
            f" {number(self.high)}, the farthest is {number(y[away.argmax()])}:"
            " predictions do not follow such labels; mend them if they are wrong, and"
            " fit again with them if they are right"
        )


class ClassTarget(Target):
    """A class to predict; labels are positions in the sorted `classes`.

    Labels of one type are sorted by value, mixed ones by type name and value. Times
    with a zone are taken as UTC.

    >>> target = ClassTarget().fit(["no", "yes", "no"])
    >>> target.encode(["yes", "no"])
    array([1, 0])
    >>> target.answers(target.predictions([[2.5], [-1.0]])).tolist()
    ['yes', 'no']
    """

    classes: npt.NDArray[Any]
    label_dtype = np.int64

    @property
    def task(self) -> Task:  # type: ignore[override]
        """Which loss: that of one logit for two classes."""
        return "binary" if self.n_classes == 2 else "classes"

    @staticmethod
    def read(
        y: object, *, n_rows: int | None = None, caller: str = "The model"
    ) -> npt.NDArray[Any]:
        """Return y of any make as labels (n,), nothing missing."""
        return read_classes(y, n_rows, caller)

    def fit(
        self, y: object, *, n_rows: int | None = None, caller: str = "The model"
    ) -> Self:
        """Learn the classes; `n_rows` is the table's row count."""
        values = read_classes(y, n_rows, caller)
        if values.dtype.kind == "f" and not np.all(values == np.floor(values)):
            first = values[values != np.floor(values)][0]
            raise DataError(
                "Unknown label type: continuous. Classes must be whole numbers or"
                f" text, however y holds {first}; use the regressor, or turn y into"
                " classes"
            )
        if values.dtype.kind == "O":
            objects = _sorted_objects(values)
            # numpy cuts a zero byte at the end of a text: such labels stay objects
            text = all(isinstance(v, str) and not v.endswith("\0") for v in objects)
            self.classes = objects.astype(np.str_) if text else objects
        else:
            self.classes = np.unique(values)
        if self.n_classes < 2:
            raise DataError(
                "a classifier needs at least two classes, however y holds only 1"
                f" class: {_key(self.classes[0])[1]!r}; add rows of another class"
            )
        return self

    def scaled_by(self, y: npt.NDArray[Any]) -> Self:
        """Return the target itself: classes have no scale."""
        return self

    def encode(self, y: object, *, n_rows: int | None = None) -> npt.NDArray[np.int64]:
        """Return labels (n,), each in 0 ... n_classes - 1."""
        values = read_classes(y, n_rows)
        if self.classes.dtype.kind == "O" or values.dtype.kind == "O":
            code_of = {_key(value): code for code, value in enumerate(self.classes)}
            codes = np.array([code_of.get(_key(v), -1) for v in values], dtype=np.int64)
        else:
            cast, same = _exactly(values, self.classes.dtype)
            codes = pd.Index(self.classes).get_indexer(pd.Index(cast))
            codes = np.where(same, codes, -1)
        if (codes < 0).any():
            first = _key(values[int((codes < 0).argmax())])[1]
            raise DataError(
                f"y must hold classes that fit saw, however it holds {first!r}; drop"
                " such rows or fit again"
            )
        return codes.astype(np.int64)

    def as_fitted(
        self, y: npt.NDArray[Any], labels: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        """Return the classes (n,) themselves; short and long texts as objects."""
        texts = self.classes.dtype.kind == "U"
        classes = self.classes.astype(object) if texts else self.classes
        return np.take(classes, labels)

    def sides(self, labels: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return who has a class (n, k): the second of two, else the commonest."""
        if self.task == "binary":
            return labels.astype(np.float64).reshape(-1, 1)
        counts = np.bincount(labels, minlength=self.n_classes)
        common = np.sort(np.argsort(-counts, kind="stable")[:_MOST_SIDES])
        sides: npt.NDArray[np.float64] = (labels[:, None] == common).astype(np.float64)
        return sides

    def strata(self, y: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the codes of the classes (n,)."""
        return self.encode(y)

    def predictions(self, outputs: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return probabilities (n, n_classes) from logits (n, k).

        Of two classes there is one logit, that of the second.
        """
        logits = np.asarray(outputs, dtype=np.float64)
        if self.task == "binary":
            second = expit(logits.reshape(-1, 1))
            return np.concatenate([1 - second, second], axis=1)
        probabilities: npt.NDArray[np.float64] = softmax(logits, axis=1)
        return probabilities

    def in_units(self, predictions: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the probabilities themselves."""
        return np.asarray(predictions, dtype=np.float64)

    def answers(self, predictions: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Return the likeliest classes (n,)."""
        return np.take(self.classes, self.chosen(predictions))

    def chosen(self, predictions: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Return the codes of the likeliest classes (n,)."""
        codes: npt.NDArray[np.int64] = np.argmax(predictions, axis=1)
        return codes

    def usual(self, y: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the share of each class, (n_classes,)."""
        return np.bincount(self.encode(y), minlength=self.n_classes) / len(y)

    def doubt(self, y: npt.NDArray[Any]) -> None:
        """Return None: a class that fit did not see is refused."""

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return all that was fitted as a JSON-able dict and named arrays."""
        dtype = self.classes.dtype
        if dtype.kind in "iuf":
            return {"dtype": dtype.str}, {"classes": self.classes}
        if dtype.kind == "b":
            return {"dtype": dtype.str}, {"classes": self.classes.astype(np.int64)}
        if dtype.kind in "mM":
            return {"dtype": dtype.str}, {"classes": self.classes.view(np.int64)}
        if dtype.kind == "U":
            return {"dtype": dtype.str, "classes": self.classes.tolist()}, {}
        return {"dtype": "O", "classes": [_pack(v) for v in self.classes]}, {}

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
    ) -> Self:
        """Return the target that `state` described."""
        self = cls()
        dtype = np.dtype(state["dtype"])
        if dtype.kind == "O":
            self.classes = np.empty(len(state["classes"]), dtype=object)
            self.classes[:] = [_UNPACK[name](v) for name, v in state["classes"]]
        elif dtype.kind == "U":
            self.classes = np.array(state["classes"], dtype=dtype)
        else:
            self.classes = np.asarray(arrays["classes"]).astype(dtype)
        return self


def _exactly(
    values: npt.NDArray[Any], dtype: np.dtype[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return numbers (n,) as another type, and which of them are the same there.

    Compared as they come, whole numbers beyond 2**53 would first become floats.
    """
    if values.dtype.kind not in "iuf" or dtype.kind not in "iuf":
        return values, np.ones(len(values), dtype=np.bool_)
    with np.errstate(invalid="ignore", over="ignore"):
        cast = values.astype(dtype)
        same = (cast.astype(values.dtype) == values) & ((cast < 0) == (values < 0))
    return cast, same


def _sorted_objects(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the distinct labels by type name and value, or by text if need be."""
    try:
        distinct = {_key(value): value for value in values}
    except TypeError as error:
        raise DataError(
            f"Unknown label type: classes must be single values, however y holds cells"
            f" that are not ({error}); turn them into text"
        ) from error
    try:
        keys = sorted(distinct)
    except TypeError:  # the type has no order
        keys = sorted(distinct, key=lambda key: (key[0], str(key[1])))
    classes = np.empty(len(keys), dtype=object)
    classes[:] = [distinct[key] for key in keys]
    return classes


def _key(value: Any) -> tuple[str, Any]:
    """Return what tells labels apart, their type included: True equals 1."""
    plain = value.item() if isinstance(value, np.generic) else value
    return type(plain).__name__, plain


def _pack(value: Any) -> tuple[str, Any]:
    name, plain = _key(value)
    if name not in _UNPACK:
        raise DataError(
            f"classes must be text, numbers, flags or dates to be stored, however"
            f" {plain!r} is a {name}; turn the classes into text"
        )
    return name, plain if name in _JSON_TYPES else plain.isoformat()


_JSON_TYPES = ("str", "int", "float", "bool")
_UNPACK: dict[str, Callable[[Any], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "date": datetime.date.fromisoformat,
    "datetime": datetime.datetime.fromisoformat,
    "Timestamp": pd.Timestamp,
}
