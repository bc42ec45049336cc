"""What is left of rows in files: their ids, and the bytes of their values.

A value is looked for if it can tell: text of six bytes and more that is no part of any
other row's, numbers and times of five bytes that differ from zero and that no other row
has, and the row as networks read it, if no other row is the same to them.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors import numpy as safetensors

from tabr.candidates.candidate_set import CandidateSet

_FEWEST_BYTES = 6  # of a text
_FEWEST_NONZERO = 5  # bytes of a number
MOST = 1000  # values that are looked for
# Parts of a model that fit learned from many rows at once, and that stay.
LEARNED = ("preprocessor", "target", "calibration", "members")


class Value(NamedTuple):
    """A value of a row, and the forms in which files may hold it."""

    id: int
    name: str  # of the column
    value: Any  # text, a number, or bytes
    forms: tuple[bytes, ...]


class Found(NamedTuple):
    """A value that is still there."""

    value: Value
    part: str  # of the file: "target.low", or nothing

    @property
    def is_learned(self) -> bool:
        """Whether it is in what fit learned from many rows."""
        return self.part.startswith(LEARNED)


class Trace(NamedTuple):
    """What was looked for in a file, and what was found."""

    file: str
    ids: list[int]  # of rows that it still has
    found: list[Found]


# --- values that can tell ---------------------------------------------------------


class Others:
    """The values of all other rows."""

    def __init__(self, candidates: CandidateSet, names: Iterable[str]) -> None:
        frame, y = candidates.frame, pd.Series(candidates.y)
        numbers, texts = [np.empty(0)], {*names}
        for series in [*(frame[name] for name in frame), y]:
            plain = _plain(series)
            if plain.dtype == object:
                texts |= {v for v in pd.unique(plain) if isinstance(v, str)}
                cells = (v for v in plain if isinstance(v, int | float))
                plain = pd.Series([float(v) for v in cells], dtype=float)
            numbers.append(plain.to_numpy(np.float64, na_value=np.nan))
        self._numbers = {*np.unique(np.concatenate(numbers)).tolist()}
        self._texts = "\0".join(sorted(texts))
        self._rows = {row.tobytes() for row in _prepared(candidates)}

    def telling(self, id_: int, name: str, value: Any) -> Value | None:
        """Return a value to look for; None if it may be somebody else's."""
        if isinstance(value, str):
            text = value.encode(errors="replace")
            if len(text) < _FEWEST_BYTES or value in self._texts:
                return None
            quoted = (json.dumps(value, ensure_ascii=b)[1:-1] for b in (True, False))
            forms = {text, *(form.encode(errors="replace") for form in quoted)}
            return Value(id_, name, value, tuple(sorted(forms)))
        if isinstance(value, bytes):
            is_told = value not in self._rows and _has_enough(value)
            return Value(id_, name, value, (value,)) if is_told else None
        number = float(value)
        if not math.isfinite(number) or number in self._numbers:
            return None
        arrays = [np.array(number, "<f8")]
        if number == int(number) and abs(number) < 1 << 62:
            arrays.append(np.array(int(value), "<i8"))
        forms = {array.tobytes() for array in arrays}
        told = {form for form in forms if _has_enough(form)}
        if not told:
            return None
        text = repr(value).encode()
        return Value(id_, name, value, (*sorted(told), *[text] * (len(text) >= 8)))


def _has_enough(form: bytes) -> bool:
    """Whether bytes are hardly anywhere by chance."""
    return len(form) - form.count(0) >= _FEWEST_NONZERO


def values_of(candidates: CandidateSet, ids: list[int], others: Others) -> list[Value]:
    """Return the values of rows that can tell, each once."""
    frame = candidates.look_up(ids)
    found: list[Value] = []
    for name in frame:
        cells = _plain(frame[name])
        found += _telling(str(name), zip(ids, cells, strict=True), others)
    y = _plain(pd.Series(candidates.y_of(np.asarray(ids))))
    found += _telling("its label", zip(ids, y, strict=True), others)
    rows = _prepared(candidates)[np.searchsorted(candidates.ids, ids)]
    if rows.shape[1] > 1:  # one alone has too few bytes
        prepared = ((i, row.tobytes()) for i, row in zip(ids, rows, strict=True))
        found += _telling("as networks read it", prepared, others)
    return found


def values_in(payload: dict[str, Any], ids: list[int], others: Others) -> list[Value]:
    """Return the values that can tell of a request for rows of these ids."""
    rows = payload.get("rows") or [{}] * len(ids)
    labels = payload.get("labels") or [None] * len(ids)
    found: list[Value] = []
    for id_, row, label in zip(ids, rows, labels, strict=False):
        for name, value in [*row.items(), ("its label", label)]:
            found += _telling(name, [(id_, value)], others)
    return found


def _telling(
    name: str, cells: Iterable[tuple[int, Any]], others: Others
) -> Iterator[Value]:
    for id_, value in cells:
        plain = value.item() if isinstance(value, np.generic) else value
        is_number = isinstance(plain, int | float) and not isinstance(plain, bool)
        if is_number or isinstance(plain, str | bytes):
            told = others.telling(id_, name, plain)
            if told is not None:
                yield told


def _plain(series: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column as numbers, times as whole ones, or as objects."""
    dtype: Any = series.dtype
    if isinstance(dtype, pd.DatetimeTZDtype):
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
        dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "mM":
        whole = pd.Series(series.to_numpy().view(np.int64), dtype=object)
        return whole.mask(series.isna().to_numpy())
    if isinstance(dtype, np.dtype) and dtype.kind in "iuf":
        return series.reset_index(drop=True)
    return pd.Series(series.to_numpy(object), dtype=object)


def _prepared(candidates: CandidateSet) -> NDArray[np.float32]:
    rows: NDArray[np.float32] = candidates.packed().rows.num.cpu().numpy()
    return np.ascontiguousarray(rows)


def sample_of(values: list[Value]) -> list[Value]:
    """Return values to look for, each once, spread evenly where they are too many."""
    distinct = list({(v.id, v.name, v.value): v for v in values}.values())
    places = np.linspace(0, len(distinct) - 1, min(len(distinct), MOST))
    return [distinct[int(place)] for place in places]


# --- where they are looked for ----------------------------------------------------


def in_bytes(content: Any, values: list[Value], part: str = "") -> list[Found]:
    """Return what is in bytes, or in what can be searched like them."""
    found = (v for v in values if any(content.find(form) >= 0 for form in v.forms))
    return [Found(value, part) for value in found]


def in_model(content: bytes, values: list[Value]) -> list[Found]:
    """Return what is in a model file, with the names of its parts."""
    found: list[Found] = []
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in archive.namelist():
            part = archive.read(name)
            if name.endswith(".json"):
                for place, leaf in _leaves(json.loads(part)):
                    found += [Found(v, place) for v in values if _is_in(leaf, v)]
            elif name.endswith(".safetensors"):
                for tensor, array in safetensors.load(part).items():
                    full = tensor if name.startswith("tensors") else f"{name}:{tensor}"
                    found += in_bytes(array.tobytes(), values, full)
            else:
                found += in_bytes(part, values, name)
    seen = {value for value, _ in found}
    rest = [value for value in values if value not in seen]
    return found + in_bytes(content, rest)  # between the parts


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the texts and numbers of JSON, and the name of where each is."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _leaves(part, f"{place}.{name}".lstrip("."))
            yield f"{place}.{name}".lstrip("."), name
    elif isinstance(value, list):
        for part in value:
            name = part.get("name") if isinstance(part, dict) else None
            yield from _leaves(part, f"{place}.{name}" if name else place)
    else:
        yield place, value


def _is_in(leaf: Any, value: Value) -> bool:
    if isinstance(value.value, str):
        return isinstance(leaf, str) and value.value in leaf
    is_number = isinstance(leaf, int | float) and not isinstance(leaf, bool)
    return is_number and not isinstance(value.value, bytes) and leaf == value.value


def ids_in(content: bytes, ids: list[int]) -> list[int]:
    """Return those of the ids that rows of a model file have."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        tensors = safetensors.load(archive.read("tensors.safetensors"))
    found = np.intersect1d(np.asarray(ids, np.int64), tensors["candidates.ids"])
    return [int(id_) for id_ in found]
