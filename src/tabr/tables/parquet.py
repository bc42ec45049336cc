"""A frame as the bytes of a Parquet file, restored as it was.

Columns that Parquet would not give back as they were, such as objects of several types,
are stored as `Cells` reads them: as numbers, times in UTC or text. Nothing is
compressed, so that no small file unfolds to a huge one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tabr.errors import ModelFileError, TabrError
from tabr.tables.cells import Cells

_PLAIN = ("string", "integer", "floating", "boolean")  # what JSON has


def to_parquet(frame: pd.DataFrame) -> tuple[bytes, list[dict[str, Any]]]:
    """Return a Parquet file and for each column what else it takes to restore it."""
    columns, about = {}, []
    for name in frame:
        columns[name], extra = _pack_column(frame[name], str(name))
        about.append({"name": name, **extra})
    table = pa.Table.from_pandas(pd.DataFrame(columns), preserve_index=False)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="none", use_dictionary=False)
    return sink.getvalue().to_pybytes(), about


def _pack_column(
    series: pd.Series[Any], name: str
) -> tuple[pd.Series[Any], dict[str, Any]]:
    try:
        cells = Cells.read(series, name, in_fit=False)
        cells.check()
    except TabrError:  # of a column that is not read: any text will do
        return _any_text(series), {"type": "values"}
    if isinstance(series.dtype, pd.CategoricalDtype):
        categories = series.cat.categories
        codes, levels = series.cat.codes.to_numpy(), categories.tolist()
        if pd.api.types.infer_dtype(levels) not in _PLAIN:
            codes, levels = cells.levels
        kept = categories.dtype.kind in "iuf" or categories.dtype == object
        dtype = str(categories.dtype) if kept else None
        about = {"levels": levels, "dtype": dtype, "ordered": series.cat.ordered}
        return pd.Series(codes), {"type": "category", **about}
    if _is_held(series):
        return series, {"type": "objects" if series.dtype == object else "values"}
    values: NDArray[Any]
    if cells.nature == "text":
        codes, levels = cells.levels
        values = np.array([*levels, None], dtype=object)[codes]
    else:
        values = cells.dates() if cells.nature == "date" else cells.numbers()
    return pd.Series(values), {"type": "values"}


def _any_text(series: pd.Series[Any]) -> pd.Series[Any]:
    """Return cells as text, whatever they hold."""
    cells = [
        None if missing else str(value).encode(errors="replace").decode()
        for value, missing in zip(series, series.isna(), strict=True)
    ]
    return pd.Series(cells, dtype=object)


def _is_held(series: pd.Series[Any]) -> bool:
    """Whether Parquet gives a column back as it was."""
    if isinstance(series.dtype, pd.SparseDtype | pd.PeriodDtype | pd.IntervalDtype):
        return False
    try:
        array = pa.array(series, from_pandas=True)
        if series.dtype != object:
            return True
        present = series[series.notna()]
        cells = [v.item() if isinstance(v, np.generic) else v for v in present]
        back: list[Any] = array.drop_null().to_pylist()
        return cells == back and [*map(type, cells)] == [*map(type, back)]
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return False


def from_parquet(content: bytes, columns: list[Any], n: int) -> pd.DataFrame:
    """Return the frame of n rows whose file and columns `to_parquet` returned."""
    file = pq.ParquetFile(pa.BufferReader(content))
    shape = (file.metadata.num_rows, file.metadata.num_columns)
    _check(shape == (n, len(columns)), f"its candidates have the shape {shape}")
    for group in map(file.metadata.row_group, range(file.metadata.num_row_groups)):
        for part in map(group.column, range(group.num_columns)):
            packed = part.has_dictionary_page or part.compression != "UNCOMPRESSED"
            _check(not packed, "its candidates are compressed")
    table = file.read()
    frame = table.to_pandas()
    restored = {
        str(about["name"]): _unpack_column(table.column(k), frame.iloc[:, k], about)
        for k, about in enumerate(columns)
    }
    _check(len(restored) == len(columns), "two of its columns have one name")
    return pd.DataFrame(restored)


def _unpack_column(column: Any, values: pd.Series[Any], about: Any) -> pd.Series[Any]:
    if about["type"] == "values":
        return values
    if about["type"] == "objects":
        return pd.Series(column.to_pylist(), dtype=object)
    dtype = about["dtype"] and pd.api.types.pandas_dtype(about["dtype"])
    _check(dtype is None or dtype.kind in "iufO", f"its categories are of {dtype}")
    kinds = pd.CategoricalDtype(
        pd.Index(about["levels"], dtype=dtype), about["ordered"]
    )
    return pd.Series(pd.Categorical.from_codes(values, dtype=kinds))


def _check(rule: bool, what: str) -> None:
    if not rule:
        raise ModelFileError(f"{what}; save the model again")
