"""Numbers, cells and rules as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr.candidates.rules import Rule, pack_rule

Floats = NDArray[np.float64]

LONGEST = 40  # characters of a cell or a name
NOTHING = "-"  # where there is no value


def number(value: Any, digits: int = 4) -> str:
    """Write a measured number with a few digits, a count with all of them.

    >>> number(0.123456), number(1234567), number(20640.4), number(44.861, 3)
    ('0.1235', '1,234,567', '20,640', '44.9')
    """
    if value is None or pd.isna(value):
        return NOTHING
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    size = abs(float(value))
    if 1e4 <= size < 1e15:
        return f"{float(value):,.0f}"
    return f"{float(value):.{digits}g}"


def score(value: float) -> str:
    """Write a score: four digits, and no more than four decimals.

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
    """Write a number with so many decimals; huge and tiny ones as powers of ten."""
    if np.isnan(value):
        return NOTHING
    text = f"{value:.{decimals}f}"
    return text if len(text) <= 14 else f"{value:.4g}"


def percent(share: float, decimals: int | None = None) -> str:
    """Write a share; tiny and almost full ones keep a digit more.

    >>> percent(0.5), percent(0.004), percent(0.9951), percent(0.0)
    ('50%', '0.4%', '99.5%', '0%')
    """
    if np.isnan(share):
        return NOTHING
    if decimals is None:
        decimals = 0 if share in (0, 1) or 0.1 <= share < 0.95 else 1
    return f"{100 * share:.{decimals}f}%"


def cell(value: Any) -> str:
    """Write one value of a table, shortly.

    >>> cell(37.880001), cell(1987), cell(None), cell("x" * 50)[-3:]
    ('37.88', '1987', '-', 'xx…')
    """
    if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)):
        return NOTHING
    if isinstance(value, float | np.floating):
        size = abs(float(value))
        if float(value).is_integer() and size < 1e6:
            return f"{float(value):.0f}"
        return f"{float(value):.0f}" if 1e5 <= size < 1e15 else f"{float(value):.5g}"
    return short(str(value).removesuffix(" 00:00:00"))  # of a date


def short(text: str, longest: int = LONGEST) -> str:
    """Cut a text that would be too long for its place."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def size_of(n_bytes: int) -> str:
    """Write the size of a file.

    >>> size_of(1_530_000), size_of(800)
    ('1.5 MB', '0.8 kB')
    """
    size = n_bytes / 1000
    return f"{size:.1f} kB" if size < 1000 else f"{size / 1000:.1f} MB"


def rule_words(rule: Rule) -> str:
    """Say in a sentence who may be a neighbour.

    >>> from tabr.candidates.rules import PastOnly
    >>> rule_words(PastOnly("sold", gap="1D"))
    "A neighbour must come before the row in 'sold', with a gap of 1D."
    """
    return f"A neighbour must {_clause(pack_rule(rule))}."


def _clause(part: Mapping[str, Any]) -> str:
    name = part["rule"]
    if name == "Joined":
        first, second = map(_clause, part["parts"])
        if part["by"] == "&":
            return f"{first}, and {second}"
        return f"either {first}, or {second}"
    if name == "Inverted":
        return f"not {_clause(part['part'])}"
    if name == "PastOnly":
        window = f", at most {part['window']} back" if part["window"] else ""
        gap = f", with a gap of {part['gap']}" if part["gap"] else ""
        return f"come before the row in {part['column']!r}{window}{gap}"
    if name == "SameGroup":
        return f"agree with the row in {part['column']!r}"
    if name == "NotSameGroup":
        return f"differ from the row in {part['column']!r}"
    read = ", ".join(map(repr, part["reads"]))
    return f"be allowed by a function of {read}"
