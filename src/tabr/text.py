"""Values as people read them, in tables of text or Markdown, and as JSON has them."""

from __future__ import annotations

import datetime
import difflib
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LONGEST = 40  # characters of a cell or a name
ABSENT = "-"  # where there is no value
_FEW = 8  # items of a list that are written one by one
_PART = 1000  # items of a longer list that are written together


def number(value: Any, digits: int = 4) -> str:
    """Return a measured number with a few digits, a count with all of them.

    >>> number(0.123456), number(1234567), number(20640.4), number(44.861, 3)
    ('0.1235', '1,234,567', '20,640', '44.9')
    """
    if value is None or pd.isna(value):
        return ABSENT
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    size = abs(float(value))
    if 1e4 <= size < 1e15:
        return f"{float(value):,.0f}"
    return f"{float(value):.{digits}g}"


def score(value: float) -> str:
    """Return a score with four digits, and no more than four decimals.

    >>> score(0.45571), score(-0.004029), score(31297.4)
    ('0.4557', '-0.004', '31,297')
    """
    return number(value if abs(value) < 1e-3 else round(value, 4))


def decimals_of(values: Floats) -> int:
    """Return how many decimals tell values apart: whole numbers need none.

    >>> decimals_of(np.array([1.5, 3.25, 8.0])), decimals_of(np.array([20.0, 30.0]))
    (2, 0)
    """
    values = values[np.isfinite(values)]
    if not len(values) or not np.any(values % 1):
        return 0
    spread = float(values.std()) or float(np.abs(values).max())
    return int(np.clip(2 - np.floor(np.log10(spread)), 0, 8))


def fixed(value: float, decimals: int) -> str:
    """Return a number with so many decimals; huge and tiny ones as powers of ten."""
    if np.isnan(value):
        return ABSENT
    text = f"{value:.{decimals}f}"
    return text if len(text) <= 14 else f"{value:.4g}"


def percent(share: float, decimals: int | None = None) -> str:
    """Return a share in percent; tiny and almost full ones keep more digits.

    >>> percent(0.5), percent(0.004), percent(0.9951), percent(0.0004), percent(0.0)
    ('50%', '0.4%', '99.5%', '0.04%', '0%')
    >>> percent(1e-9), percent(0.999999)
    ('<0.01%', '>99.99%')
    """
    if np.isnan(share):
        return ABSENT
    if decimals is not None:
        return f"{100 * share:.{decimals}f}%"
    if 0 < share < 1e-4:
        return "<0.01%"
    if 1 - 1e-4 < share < 1:
        return ">99.99%"
    decimals = 0 if share in (0, 1) or 0.1 <= share < 0.95 else 1
    if 0 < share < 1e-3 or 1 - 1e-3 < share < 1:
        decimals = 2
    return f"{100 * share:.{decimals}f}%"


def cell(value: Any, digits: int = 5, longest: int = LONGEST) -> str:
    """Return one value of a table as a short text.

    >>> cell(37.880001), cell(1987), cell(None), cell("x" * 50)[-3:]
    ('37.88', '1987', '-', 'xx…')
    """
    if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)):
        return ABSENT
    if isinstance(value, float | np.floating):
        size = abs(float(value))
        is_whole = float(value).is_integer() and size < 1e6
        if is_whole or 10**digits <= size < 1e15:
            return f"{float(value):.0f}"
        return f"{float(value):.{digits}g}"
    return short(str(value).removesuffix(" 00:00:00"), longest)  # of a date


def short(text: str, longest: int = LONGEST) -> str:
    """Return a text, cut if it would be too long for its place."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def closest(name: str, names: Iterable[str]) -> str:
    """Return the names that a misspelt one may stand for.

    >>> closest("prise", ["price", "area"])
    "'price'"
    """
    candidates = list(names)
    matches = difflib.get_close_matches(name, candidates, n=3, cutoff=0.5)
    return ", ".join(map(repr, matches or candidates[:8]))


def size_of(n_bytes: int) -> str:
    """Return the size of a file in its unit.

    >>> size_of(1_530_000), size_of(800)
    ('1.5 MB', '0.8 kB')
    """
    size = n_bytes / 1000
    return f"{size:.1f} kB" if size < 1000 else f"{size / 1000:.1f} MB"


def duration(seconds: float) -> str:
    """Return a time in its unit.

    >>> duration(48.2), duration(600), duration(9000)
    ('48 s', '10 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def is_unicode(text: str) -> bool:
    """Whether a text can be written: no half of a character stands alone.

    >>> is_unicode("naïve"), is_unicode("\\ud800")
    (True, False)
    """
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


# --- tables ---------------------------------------------------------------------


def aligned(rows: Sequence[Sequence[str]], align: str = "l", gap: int = 2) -> list[str]:
    """Return the lines of a table whose columns stand below each other.

    A letter of `align` is for each column: "l" for the left, "r" for the right; the
    last one is for all that follow.

    >>> aligned([["set", "score"], ["adult", "0.86"]], "lr")
    ['set    score', 'adult   0.86']
    """
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = align.ljust(len(sizes), align[-1])
    lines = []
    for row in rows:
        cells = [
            text.ljust(size) if side == "l" else text.rjust(size)
            for text, size, side in zip(row, sizes, sides, strict=True)
        ]
        lines.append((" " * gap).join(cells).rstrip())
    return lines


def markdown_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], align: str = ""
) -> str:
    """Return a table in Markdown, without a line break at the end.

    A letter of `align` is for each column: "l" for the left, "r" for the right; what
    is missing is left.

    >>> print(markdown_table(["set", "score"], [["adult", "0.86"]], "lr"))
    | set | score |
    | --- | ---: |
    | adult | 0.86 |
    """
    sides = align.ljust(len(header), "l")
    rule = ["---:" if side == "r" else "---" for side in sides]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


# --- JSON -----------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Return a cell as JSON has it; None if it is missing or not finite.

    >>> plain(np.float64(1.5)), plain(np.nan), plain(pd.Timestamp("2024-05-31"))
    (1.5, None, '2024-05-31T00:00:00')
    """
    if isinstance(value, np.float32):
        value = float(str(value))  # as short as it was written
    if isinstance(value, np.datetime64):
        value = pd.Timestamp(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or value is pd.NaT or value is pd.NA:
        return None
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    return str(value)


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a table as rows of plain values."""
    names = [str(name) for name in frame.columns]
    columns = [plain_list(frame[name]) for name in frame.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def plain_list(values: Iterable[Any]) -> list[Any]:
    """Return values as JSON has them.

    >>> plain_list(np.array([0.1, np.nan], dtype=np.float32))
    [0.1, None]
    """
    dtype = getattr(values, "dtype", None)
    is_array_of_dates = isinstance(values, np.ndarray) and values.dtype.kind == "M"
    if dtype == np.float32 or is_array_of_dates:
        return [plain(value) for value in np.asarray(values)]
    plain_values = values.tolist() if hasattr(values, "tolist") else values
    return [plain(value) for value in plain_values]


def plain_tree(value: Any) -> Any:
    """Return dicts, lists and arrays, however deep, with plain values inside.

    >>> plain_tree({"a": np.array([[1, 2]]), 3: (np.inf, "x")})
    {'a': [[1, 2]], '3': [None, 'x']}
    """
    if isinstance(value, dict):
        return {str(key): plain_tree(part) for key, part in value.items()}
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return plain_list(value)
    if isinstance(value, list | tuple | np.ndarray):
        return [plain_tree(part) for part in value]
    return plain(value)


def json_text(value: Any, **options: Any) -> str:
    """Return what `json.dumps` does, in parts that let other threads run between.

    >>> json_text({"b": [1, {}], "a": None}, sort_keys=True)
    '{"a": null, "b": [1, {}]}'
    """
    if isinstance(value, dict) and all(type(name) is str for name in value):
        names = sorted(value) if options.get("sort_keys") else list(value)
        fields = (f"{json.dumps(k)}: {json_text(value[k], **options)}" for k in names)
        return f"{{{', '.join(fields)}}}"
    if isinstance(value, list) and len(value) <= _FEW:
        return f"[{', '.join(json_text(item, **options) for item in value)}]"
    if isinstance(value, list):
        starts = range(0, len(value), _PART)
        parts = (json.dumps(value[k : k + _PART], **options)[1:-1] for k in starts)
        return f"[{', '.join(parts)}]"
    return json.dumps(value, **options)


def is_exact_json(value: Any) -> bool:
    """Whether JSON gives a value back as it was; tuples come back as lists.

    >>> is_exact_json({"a": [1, None]}), is_exact_json([(1, 2)]), is_exact_json({1: 2})
    (True, False, False)
    """
    if isinstance(value, dict):
        names = all(isinstance(name, str) for name in value)
        return names and all(map(is_exact_json, value.values()))
    if isinstance(value, list) and len(value) > _PART:
        starts = range(0, len(value), _PART)
        return all(is_exact_json(value[k : k + _PART]) for k in starts)
    return bool(json.loads(json.dumps(value)) == value)
