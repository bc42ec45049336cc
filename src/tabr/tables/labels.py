"""Labels of any make as arrays: one for each row, nothing missing."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.exceptions import DataConversionWarning

from tabr.errors import DataError
from tabr.tables.cells import Cells
from tabr.tables.frame import to_frame


def _read(y: object, n_rows: int | None, caller: str) -> pd.Series[Any]:
    """Return y as a series without missing values, one target per row."""
    if y is None:
        raise DataError(
            f"{caller} requires y to be passed, but the target y is None; give one"
            " target per row"
        )
    series = _only_column(y)
    if n_rows is not None and len(series) != n_rows:
        raise DataError(
            "Found input variables with inconsistent numbers of samples:"
            f" [{n_rows}, {len(series)}]; give one target per row"
        )
    if len(series) == 0:
        raise DataError("y must hold a target per row, however it is empty; add rows")
    n_missing = int(series.isna().sum())
    if n_missing:
        raise DataError(
            f"every row needs a target, however y is missing (NaN) in {n_missing} of"
            f" {len(series)} rows; drop these rows"
        )
    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.astype(series.cat.categories.dtype)
    if pd.api.types.is_complex_dtype(series.dtype):
        raise DataError("Complex data not supported: y is complex; give its real part")
    return series.reset_index(drop=True)


def _only_column(y: object) -> pd.Series[Any]:
    """Return y of any make as a series; a table must have one column."""
    if isinstance(y, list | tuple):
        y = _array(y)
    elif not isinstance(y, pd.Series | pd.DataFrame | np.ndarray):
        import narwhals as nw

        native: Any = nw.from_native(y, allow_series=True, pass_through=True)
        if isinstance(native, nw.Series):
            y = pd.Series(native.to_numpy())
        else:
            table = isinstance(native, nw.DataFrame | nw.LazyFrame)
            y = to_frame(y) if table else np.asarray(y)
    if isinstance(y, np.ndarray):
        if y.ndim not in (1, 2):
            raise DataError(
                f"y must have one dimension, however it has {y.ndim}; give one target"
                " per row"
            )
        y = y.astype(y.dtype.newbyteorder("="), copy=False)  # as pandas needs it
        y = pd.Series(y) if y.ndim == 1 else pd.DataFrame(y)
    if isinstance(y, pd.Series):
        return y
    assert isinstance(y, pd.DataFrame)
    if y.shape[1] != 1:
        raise DataError(
            f"y must be one column, however it has {y.shape[1]}; fit one model for each"
        )
    warnings.warn(
        "A column-vector y was passed when a 1d array was expected. Please change the"
        " shape of y to (n_samples, ), for example using ravel().",
        DataConversionWarning,
        stacklevel=5,
    )
    return y.iloc[:, 0]


def _array(y: list[Any] | tuple[Any, ...]) -> npt.NDArray[Any]:
    """Return a list as an array; numpy alone would turn 1 and "a" into text."""
    try:
        array = np.asarray(y)
    except ValueError as error:
        raise DataError(
            f"y must hold one target per row, however its rows differ ({error}); give"
            " single values"
        ) from error
    if array.ndim == 1 and array.dtype.kind == "U":
        # numpy cuts a zero byte at the end of a text
        text = all(isinstance(v, str) and not v.endswith("\0") for v in y)
        return array if text else np.array(y, dtype=object)
    if array.dtype == np.float64 and any(_is_wide(value) for value in y):
        return np.array(y, dtype=object)  # -1 beside 2**63: numpy makes floats of both
    return array


def _is_wide(value: object) -> bool:
    """Whether it is a whole number that a float may not hold."""
    return isinstance(value, int | np.integer) and abs(int(value)) > 2**53


def read_numbers(
    y: object, n_rows: int | None, caller: str = "The model"
) -> npt.NDArray[np.float64]:
    """Return regression targets (n,), all finite; timedeltas are seconds."""
    series = _read(y, n_rows, caller)
    cells = Cells.read(series, "y", in_fit=False)
    if cells.nature in ("text", "date"):
        raise DataError(
            f"a regression target must be numeric, however y holds {cells.nature}"
            f" (first value {str(series.iloc[0])!r}); convert it or use the classifier"
        )
    return cells.numbers()


def read_classes(
    y: object, n_rows: int | None, caller: str = "The model"
) -> npt.NDArray[Any]:
    """Return class labels (n,): numbers, flags and times as such, others as objects."""
    series = _read(y, n_rows, caller).infer_objects()
    if isinstance(series.dtype, pd.DatetimeTZDtype):
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    values: npt.NDArray[Any] = series.to_numpy()
    numpy_dtype = getattr(series.dtype, "numpy_dtype", None)
    if numpy_dtype is not None:  # pandas and pyarrow numbers that could be missing
        values = series.to_numpy(dtype=numpy_dtype)
    if values.dtype.kind == "f" and np.isinf(values).any():
        raise DataError(
            "classes must be finite, however y holds an infinite value (infinity) in"
            f" row {int(np.isinf(values).argmax())}; drop this row"
        )
    return values
