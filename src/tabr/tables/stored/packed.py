"""A frame as plain arrays, restored as it was; what is in them cannot unfold.

An array holds the cells of a column as they lie in memory: numbers, times as whole
numbers, flags as bytes. Missing cells are a mask, or are in the numbers themselves.
Texts and objects are the numbers of their distinct values, -1 where missing; distinct
texts are bytes and the places where each begins. Types stand beside the arrays, as
JSON holds them. So the shapes of the arrays say how large the frame will be.

Columns that this would not give back as they were, such as objects of several types,
are stored as `Cells` reads them: as numbers, times in UTC or text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from tabr.config.checks import check_file
from tabr.errors import TabrError
from tabr.tables.cells import Cells

Arrays = dict[str, NDArray[Any]]
About = dict[str, Any]

_UNITS = ("s", "ms", "us", "ns")
_NUMPY = re.compile(r"[<|]([biu][1248]|f[248]|[mM]8\[(s|ms|us|ns)\])")
_MASKED = re.compile(r"U?Int(8|16|32|64)|Float(32|64)|boolean")
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=([\w+:/-]{1,60})\]")
_DECIMAL = re.compile(r"decimal(128|256)\((\d{1,2}), (-?\d{1,2})\)")
_WIDE = (pa.large_string(), pa.large_binary())  # their values are bytes and offsets
_NARROW = {pa.string(): _WIDE[0], pa.binary(): _WIDE[1], pa.string_view(): _WIDE[0]}
_MOST_NARROW = 1 << 31  # bytes of texts
_TYPES = {
    str(kind): kind
    for kind in (
        *(pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.date64()),
        *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
        *(pa.timestamp(unit) for unit in _UNITS),
        *(pa.duration(unit) for unit in _UNITS),
        *_WIDE,
        *_NARROW,
    )
}


def pack_frame(frame: pd.DataFrame) -> tuple[Arrays, list[About]]:
    """Return arrays, and for each column what else it takes to restore it."""
    arrays: Arrays = {}
    about = []
    for number, name in enumerate(frame):
        packed = _pack(frame[name], str(name), f"{number}", arrays)
        about.append({"name": name, **packed})
    return arrays, about


def unpack_frame(
    arrays: Mapping[str, NDArray[Any]], columns: Any, n: int
) -> pd.DataFrame:
    """Return the frame of n rows that `pack_frame` packed."""
    left = dict(arrays)
    restored = {
        about["name"]: _unpack(about, f"{number}", left)
        for number, about in enumerate(columns)
    }
    check_file(len(restored) == len(columns), "two of its columns have one name")
    check_file(not left, f"it has more columns than it names: {list(left)[:1]}")
    names = all(isinstance(name, str) for name in restored)
    check_file(names, "the name of a column is no text")
    fits = all(len(column) == n for column in restored.values())
    check_file(fits, f"its columns do not all have {n} rows")
    return pd.DataFrame(restored)


# --- one column -----------------------------------------------------------------


def _pack(series: pd.Series[Any], name: str, at: str, arrays: Arrays) -> About:
    """Add the arrays of a column, whose names begin with `at`; return what it is."""
    dtype: Any = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        codes, levels = series.cat.codes.to_numpy(), pd.Series(dtype.categories)
        if not _is_kept(levels):
            cells = _readable(series, name)
            if cells is None:
                return _pack(_any_text(series), name, at, arrays)
            codes, texts = cells.levels
            codes, levels = codes.astype(np.int32), pd.Series(list(texts))
        arrays[f"{at}.codes"] = codes
        packed = _pack(levels, name, f"{at}.levels", arrays)
        return {"type": "category", "ordered": bool(dtype.ordered), "levels": packed}
    if not _is_kept(series):
        cells = _readable(series, name)
        series = _any_text(series) if cells is None else _as_read(cells)
        dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype.kind != "O":
        values = series.to_numpy().astype(dtype.newbyteorder("<"), copy=False)
        arrays[f"{at}.values"] = values.view(_stored(values.dtype))
        return {"type": "values", "dtype": values.dtype.str}
    array, kind = _arrow(series), "objects" if _is_object(dtype) else str(dtype)
    arrow = wide = _NARROW.get(array.type, array.type)
    if isinstance(dtype, pd.ArrowDtype):
        kind, arrow = "arrow", dtype.pyarrow_dtype
    elif isinstance(dtype, pd.DatetimeTZDtype):
        kind = "zoned"
    about = {"type": kind, "arrow": str(arrow)}
    if kind != "objects" and wide not in (*_WIDE, pa.null()):
        _add(array, at, arrays)
        return about
    encoded = array.cast(wide).dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    arrays[f"{at}.codes"] = codes.astype(np.int32, copy=False)
    _add(encoded.dictionary, f"{at}.levels", arrays)
    return about


def _unpack(about: Any, at: str, left: Arrays) -> pd.Series[Any]:
    """Take the arrays of a column away, and return it."""
    kind = about["type"]
    if kind == "category":
        codes = left.pop(f"{at}.codes")
        levels = _unpack(about["levels"], f"{at}.levels", left)
        check_file(_are_codes(codes, len(levels)), "its categories have no such levels")
        dtype = pd.CategoricalDtype(pd.Index(levels), about["ordered"] is True)
        return pd.Series(pd.Categorical.from_codes(codes, dtype=dtype))
    if kind == "values":
        text = about["dtype"]
        plain = isinstance(text, str) and bool(_NUMPY.fullmatch(text))
        check_file(plain, f"one of its columns is of {text!r:.30}")
        return pd.Series(_taken(left, f"{at}.values", np.dtype(text)))
    arrow = _type_of(about["arrow"])
    wide = _NARROW.get(arrow, arrow)
    if f"{at}.codes" not in left:
        return _as_pandas(_array(wide, at, left), kind)
    codes = left.pop(f"{at}.codes")
    levels = _array(wide, f"{at}.levels", left)
    fits = _are_codes(codes, len(levels)) and not levels.null_count
    check_file(fits, "one of its columns has no such values")
    if kind == "objects":
        cells = np.empty(len(levels) + 1, dtype=object)  # the last is None
        cells[:-1] = levels.to_pylist()
        return pd.Series(cells[codes], dtype=object)
    array = levels.take(pa.array(codes, mask=codes < 0))
    if kind == "arrow" and array.nbytes < _MOST_NARROW:
        array = array.cast(arrow)
    return _as_pandas(array, kind)


def _as_pandas(array: Any, kind: str) -> pd.Series[Any]:
    """Return an Arrow array as a column of a kind of pandas."""
    if kind == "arrow":
        return pd.Series(pd.arrays.ArrowExtensionArray(array))
    if kind == "zoned":
        check_file(pa.types.is_timestamp(array.type), "one of its columns has no times")
        return pd.Series(array.to_pandas())
    known = kind in ("str", "string") or bool(_MASKED.fullmatch(kind))
    check_file(known, f"one of its columns is of {kind!r:.30}")
    dtype: Any = pd.api.types.pandas_dtype(kind)
    if isinstance(dtype, np.dtype):  # no such texts before pandas 3
        return pd.Series(array.to_pandas(), dtype=object)
    return pd.Series(dtype.__from_arrow__(array))


def _is_kept(series: pd.Series[Any]) -> bool:
    """Whether arrays give a column back as it was."""
    dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype.kind != "O":
        return bool(_NUMPY.fullmatch(dtype.newbyteorder("<").str))
    others = pd.StringDtype | pd.ArrowDtype | pd.DatetimeTZDtype
    known = isinstance(dtype, others) or bool(_MASKED.fullmatch(str(dtype)))
    if not (known or _is_object(dtype)):
        return False
    try:
        array = _arrow(series)
        if _type_of(str(array.type)) != array.type:
            return False
        if not _is_object(dtype):
            return True
        present = series[series.notna()]
        cells = [v.item() if isinstance(v, np.generic) else v for v in present]
        back: list[Any] = array.drop_null().to_pylist()
        return cells == back and [*map(type, cells)] == [*map(type, back)]
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return False


def _is_object(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind == "O"


def _readable(series: pd.Series[Any], name: str) -> Cells | None:
    """Return the cells of a column; None where no model could read or keep them."""
    try:
        cells = Cells.read(series, name, in_fit=False)
        cells.check()
    except TabrError:
        return None
    return cells


def _as_read(cells: Cells) -> pd.Series[Any]:
    """Return a column as the model reads it."""
    values: NDArray[Any]
    if cells.nature == "text":
        codes, levels = cells.levels
        values = np.array([*levels, None], dtype=object)[codes]
    else:
        values = cells.dates() if cells.nature == "date" else cells.numbers()
    return pd.Series(values)


def _any_text(series: pd.Series[Any]) -> pd.Series[Any]:
    """Return cells that no model reads as text, whatever they hold."""
    cells = [
        None if missing else str(value).encode(errors="replace").decode()
        for value, missing in zip(series, series.isna(), strict=True)
    ]
    return pd.Series(cells)


# --- arrays ---------------------------------------------------------------------


def _arrow(series: pd.Series[Any]) -> Any:
    """Return a column as one Arrow array."""
    array = pa.array(series, from_pandas=True)
    if not isinstance(array, pa.ChunkedArray):
        return array
    if array.type in _NARROW and array.num_chunks > 1:  # together too long for them
        array = array.cast(_NARROW[array.type])
    return array.combine_chunks() if array.num_chunks else pa.nulls(0, array.type)


def _type_of(text: Any) -> Any:
    """Return the Arrow type of a name; one that arrays can hold."""
    check_file(isinstance(text, str), "one of its columns has no type")
    if match := _ZONED.fullmatch(text):
        return pa.timestamp(match[1], match[2])
    if match := _DECIMAL.fullmatch(text):
        make = pa.decimal128 if match[1] == "128" else pa.decimal256
        return make(int(match[2]), int(match[3]))
    check_file(text in _TYPES, f"one of its columns is of {text!r:.30}")
    return _TYPES[text]


def _stored(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that holds the same bytes in a file."""
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    return np.dtype(np.int64) if dtype.kind in "mM" else dtype


def _taken(left: Arrays, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Take an array (n,) of this dtype away."""
    array = left.pop(name)
    fits = array.ndim == 1 and array.dtype == _stored(dtype)
    check_file(fits, f"the column {name} is {array.dtype} {array.shape}, not {dtype}")
    return array != 0 if dtype.kind == "b" else array.view(dtype)


def _are_codes(codes: NDArray[Any], n_levels: int) -> bool:
    """Whether an array (n,) numbers so many levels, or nothing."""
    fits = codes.ndim == 1 and codes.dtype.kind == "i"
    return fits and bool(((codes >= -1) & (codes < n_levels)).all())


def _width(arrow: Any) -> tuple[np.dtype[Any], int]:
    """Return what holds a cell of an Arrow type: so many numbers of a dtype."""
    n_bytes = 1 if arrow == pa.bool_() else arrow.bit_width // 8
    if n_bytes > 8:
        return np.dtype(np.int64), n_bytes // 8
    return np.dtype(f"<i{n_bytes}"), 1


def _add(array: Any, at: str, arrays: Arrays) -> None:
    """Add the arrays of an Arrow array."""
    if array.type == pa.null():
        return
    n, start = len(array), array.offset
    if array.type in _WIDE:
        array = pa.concat_arrays([array.slice(0, 0), array])  # which starts at zero
        _, offsets, content = array.buffers()
        places = np.frombuffer(offsets, np.int64)[: n + 1] if n else np.zeros(1, "i8")
        text = np.frombuffer(content or b"", np.uint8)
        arrays[f"{at}.offsets"], arrays[f"{at}.bytes"] = places, text[: places[-1]]
        return
    dtype, each = _width(array.type)
    if array.type == pa.bool_():
        cells = array.fill_null(False).to_numpy(zero_copy_only=False).view(np.int8)
    else:
        content = array.buffers()[1] or b""
        cells = np.frombuffer(content, dtype)[start * each : (start + n) * each]
    if array.null_count:
        mask = array.is_null().to_numpy(zero_copy_only=False)
        cells = np.where(mask.repeat(each), cells.dtype.type(0), cells)
        arrays[f"{at}.mask"] = mask.view(np.uint8)
    arrays[f"{at}.values"] = cells


def _array(arrow: Any, at: str, left: Arrays) -> Any:
    """Take the arrays of an Arrow array away, and return it."""
    if arrow == pa.null():
        return pa.nulls(0)
    if arrow in _WIDE:
        offsets = _taken(left, f"{at}.offsets", np.dtype(np.int64))
        content = _taken(left, f"{at}.bytes", np.dtype(np.uint8))
        parts, n = [None, offsets, content], len(offsets) - 1
        whole = n >= 0 and offsets[0] == 0 and offsets[-1] == len(content)
        check_file(bool(whole), f"the texts of column {at} are cut off")
    else:
        dtype, each = _width(arrow)
        cells = _taken(left, f"{at}.values", dtype)
        n, mask = len(cells) // each, None
        check_file(n * each == len(cells), f"the column {at} is cut off")
        if f"{at}.mask" in left:
            mask = _taken(left, f"{at}.mask", np.dtype(np.bool_))
            check_file(len(mask) == n, f"the mask of column {at} is cut off")
        if arrow == pa.bool_():
            return pa.array(cells != 0, mask=mask)
        parts = [None if mask is None else pa.array(~mask).buffers()[1], cells]
    buffers = [None if part is None else pa.py_buffer(part) for part in parts]
    array = pa.Array.from_buffers(arrow, n, buffers)
    array.validate(full=True)
    return array
