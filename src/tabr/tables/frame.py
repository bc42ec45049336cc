"""Tables of any make become pandas frames whose columns are named and matched."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr.errors import CellTypeError, DataError
from tabr.text import is_unicode

_TEXTS = pd.Index(["text"]).dtype  # depends on the version of pandas


def to_frame(X: object, names: Sequence[str] | None = None) -> pd.DataFrame:
    """Return any table as a pandas frame with text names and a fresh index.

    X is a pandas, polars or pyarrow table, a mapping of columns, a two-dimensional
    array, or a list of rows. `names` are for tables that have none.

    >>> to_frame([[1, "a"], [2, "b"]]).columns.tolist()
    ['x0', 'x1']
    """
    if hasattr(X, "tocsr"):
        raise CellTypeError(
            f"the table must be dense, however a sparse {type(X).__name__} came;"
            " call its toarray() first"
        )
    try:
        frame = _named_table(X)
        unnamed = _unnamed_table(X) if frame is None else None
    except UnicodeEncodeError as error:  # of pandas, which names no column
        raise _broken(X, error) from error
    if frame is None:
        assert unnamed is not None
        frame = unnamed
        labels = default_names(frame.shape[1]) if names is None else list(names)
        if len(labels) != frame.shape[1]:
            raise DataError(
                f"each column needs one name, however {len(labels)} names came for"
                f" {frame.shape[1]} columns; give as many names as columns"
            )
        frame.columns = pd.Index(labels)
    if not _are_texts(frame.columns):
        frame = frame.set_axis(column_index(frame.columns), axis=1)
    for size, what in zip(frame.shape, ("sample", "feature"), strict=True):
        if size == 0:
            raise DataError(
                f"Found array with 0 {what}(s) (shape={frame.shape}) while a minimum"
                " of 1 is required."
            )
    return frame.set_axis(pd.RangeIndex(len(frame)), axis=0)


def _broken(X: object, error: UnicodeEncodeError) -> DataError:
    """Return the refusal of a table with half of a character in a text or a name."""
    where = "the table"
    for row in [X] if isinstance(X, Mapping) else X if isinstance(X, list) else []:
        for name, cells in row.items() if isinstance(row, Mapping) else ():
            texts = cells if isinstance(cells, list | tuple) else [cells]
            if error.object in (name, *texts):
                where = f"column {name!a:.60}"
    return broken_text(where, error.object)


def broken_text(where: str, text: str) -> DataError:
    """Return the refusal of a text that cannot be written."""
    return DataError(
        f"text must be Unicode, however {where} holds half of a character"
        f" ({text!a:.60}); decode it anew, or replace such texts"
    )


def readable(X: object) -> pd.DataFrame:
    """Return what `to_frame` does, without a copy where X is that already."""
    if isinstance(X, pd.DataFrame) and isinstance(X.index, pd.RangeIndex):
        fresh = X.index.start == 0 and X.index.step == 1
        if fresh and min(X.shape) > 0 and _are_texts(X.columns):
            return X
    return to_frame(X)


def _are_texts(names: pd.Index[Any]) -> bool:
    """Whether the names of columns may stay, as they are distinct texts."""
    return (
        type(names) is pd.Index
        and names.name is None
        and names.dtype == _TEXTS
        and names.inferred_type == "string"
        and not names.hasnans
        and names.is_unique
        and all(map(is_unicode, names))
    )


def column_index(names: Iterable[object]) -> pd.Index[str]:
    """Return the names of columns as texts, all of which must differ."""
    texts = [str(name) for name in names]
    broken = [name for name in texts if not is_unicode(name)]
    if broken:
        raise DataError(
            f"column names must be Unicode, however {broken[0]!a:.60} holds half of a"
            " character; rename the column"
        )
    columns = pd.Index(texts)
    if columns.has_duplicates:
        twice = list(columns[columns.duplicated()].unique())
        raise DataError(
            f"column names must differ, however {twice} came more than once;"
            " rename or drop these columns"
        )
    return columns


def _named_table(X: object) -> pd.DataFrame | None:
    """Return X as a frame if it names its columns."""
    if isinstance(X, pd.DataFrame):
        return X
    if isinstance(X, Mapping):
        return pd.DataFrame(dict(X))
    if isinstance(X, list | tuple):
        named = len(X) > 0 and all(isinstance(row, Mapping) for row in X)
        return pd.DataFrame(list(X)) if named else None
    if isinstance(X, np.ndarray):
        return None
    import narwhals as nw

    column_index(getattr(X, "column_names", ()))  # pyarrow's may repeat
    table: Any = nw.from_native(X, pass_through=True)
    if isinstance(table, nw.LazyFrame):
        table = table.collect()
    if not isinstance(table, nw.DataFrame):
        return None
    for name, dtype in table.schema.items():
        if isinstance(dtype, nw.List | nw.Struct | nw.Array):
            raise nested(name, dtype)
    # numpy, not to_pandas: polars would need pyarrow for that
    return pd.DataFrame({name: table[name].to_numpy() for name in table.columns})


def _unnamed_table(X: object) -> pd.DataFrame:
    """Return an array or a list of rows as a frame."""
    if isinstance(X, list | tuple) and all(isinstance(row, list | tuple) for row in X):
        widths = sorted({len(row) for row in X})
        if len(widths) > 1:
            raise DataError(
                f"all rows must be equally long, however rows of {widths[0]} and of"
                f" {widths[-1]} cells came; fill or drop the short ones"
            )
        if widths:  # numpy would turn mixed rows into text
            return pd.DataFrame(list(X))
    array = X if isinstance(X, np.ma.MaskedArray) else np.asarray(X)
    if array.ndim < 2:
        what = "scalar" if array.ndim == 0 else "1D"
        raise DataError(
            f"Expected 2D array, got {what} array instead; Reshape your data with"
            " X.reshape(-1, 1) if it is one column, X.reshape(1, -1) if it is one row"
        )
    if array.ndim > 2 or array.dtype.names is not None:
        raise DataError(
            f"a table must be a plain array of 2 dimensions, however one of"
            f" {array.ndim} and dtype {array.dtype} came; give rows and columns"
        )
    # pandas cannot group numbers of the other byte order
    return pd.DataFrame(array.astype(array.dtype.newbyteorder("="), copy=False))


def default_names(n: int) -> list[str]:
    """Return the names of columns that have none: x0, x1, ..."""
    return [f"x{i}" for i in range(n)]


def match_columns(
    frame: pd.DataFrame,
    inputs: Sequence[str],
    features: Sequence[str],
    used: Collection[str],
    caller: str,
) -> pd.DataFrame:
    """Return the frame with the column names of fit, and at least those in use.

    inputs are all columns of fit, features those that were not ignored.
    """
    given = frame.columns.tolist()
    if given == list(inputs):
        return frame
    unnamed = given[0] == "x0" and given == default_names(len(given))
    absent = [name for name in used if name not in frame.columns]
    if not unnamed and not absent:
        return frame
    if not unnamed and list(inputs) != default_names(len(inputs)):
        raise DataError(
            f"the columns of fit must be there, however {absent} are absent;"
            " add them or fit again"
        )
    for names in (inputs, features):
        if len(names) == len(given):
            return frame.set_axis(pd.Index(names), axis=1)
    raise DataError(
        f"X has {len(given)} features, but {caller} is expecting"
        f" {len(features)} features as input; give the columns of fit"
    )


def nested(name: str, dtype: object) -> DataError:
    """Return the refusal of a column whose cells hold more than one value."""
    return DataError(
        f"a column must hold single values, however column {name!r} holds nested"
        f" cells ({dtype}); split it into columns or drop it"
    )


def name_of(y: Any) -> str | None:
    """Return the name of a series, or of the only column of a table, if it has one."""
    columns = getattr(y, "columns", None)
    name = getattr(y, "name", None) if columns is None else next(iter(columns), None)
    return name if isinstance(name, str) else None


def random_rows(
    n: int, most: int, rng: np.random.Generator | None = None
) -> NDArray[np.int64]:
    """Return the positions of n rows in order, or of so many random ones of them.

    Without a generator they are the same ones each time.
    """
    if n <= most:
        return np.arange(n)
    return np.sort((rng or np.random.RandomState(0)).choice(n, most, replace=False))
