"""The columns of the candidates beside those of the table, to see a shift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr.report.evidence import Evidence
from tabr.tables.cells import Cells, ColumnKind
from tabr.text import ABSENT, decimals_of, fixed, short

N_BARS = 24  # of numbers and dates
N_LEVELS = 8  # of categories; all others share a bar
MOST_COLUMNS = 40  # on the page
MOST_CELLS = 50_000  # of a column that are looked at
SHIFTED = 0.1  # share of rows in other bars that is worth a mark

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ColumnLine:
    """A column, once among the candidates and once in the table.

    Attributes:
        name: Of the column.
        kind: Of the column.
        missing: Shares of missing cells: candidates, table.
        range: What the bars stand for, in words.
        candidates: Shares of cells in each bar.
        rows: The same for the table.
        shift: The share of rows that would have to change their bar.
        is_shifted: Whether that is much, and more than chance.
    """

    name: str
    kind: ColumnKind
    missing: tuple[float, float]
    range: str
    candidates: list[float]
    rows: list[float]
    shift: float
    is_shifted: bool


def compare_columns(evidence: Evidence) -> list[ColumnLine]:
    """Return a line for each column that the model uses, in the table's order.

    Of very many columns it returns those that shifted most.
    """
    candidates = _part(evidence.model.candidates_.frame)
    table = _part(evidence.frame)
    lines = [
        _compare(name, kind, candidates[name], table[name])
        for name, kind in evidence.model.preprocessor_.kinds_.items()
    ]
    if len(lines) > MOST_COLUMNS:
        lines.sort(key=lambda line: -line.shift)
    return lines[:MOST_COLUMNS]


def _part(frame: pd.DataFrame) -> pd.DataFrame:
    if len(frame) <= MOST_CELLS:
        return frame
    chosen = np.random.RandomState(0).permutation(len(frame))[:MOST_CELLS]
    return frame.iloc[np.sort(chosen)]


def as_numbers(column: pd.Series[Any], name: str, kind: ColumnKind) -> Floats | None:
    """Return numbers, or dates as days; None for other kinds."""
    cells = Cells.read(column, name, in_fit=False)
    if kind == "numeric":
        return cells.numbers()
    return cells.date_parts()["days"] if kind == "date" else None


def _compare(
    name: str, kind: ColumnKind, one: pd.Series[Any], two: pd.Series[Any]
) -> ColumnLine:
    numbers = [as_numbers(part, name, kind) for part in (one, two)]
    missing = (float(one.isna().mean()), float(two.isna().mean()))
    if numbers[0] is not None and numbers[1] is not None:
        counts, words = _count_numbers(numbers[0], numbers[1], kind)
    else:
        cells = [Cells.read(part, name, in_fit=False) for part in (one, two)]
        counts, words = _count_levels(cells)
    shares = [c / max(float(c.sum()), 1.0) for c in counts]
    empty = min(c.sum() for c in counts) == 0
    shift = 0.0 if empty else 0.5 * float(np.abs(shares[0] - shares[1]).sum())
    is_shifted = shift > max(SHIFTED, 2 * _by_chance(counts))
    bars = shares[0].tolist(), shares[1].tolist()
    return ColumnLine(name, kind, missing, words, *bars, shift, is_shifted)


def _by_chance(counts: list[Floats]) -> float:
    """Return the shift that two samples of one distribution have on average."""
    n = [max(float(c.sum()), 1.0) for c in counts]
    share = (counts[0] + counts[1]) / sum(n)
    variance = share * (1 - share) * (1 / n[0] + 1 / n[1])
    return 0.5 * float(np.sqrt(2 * variance / np.pi).sum())


def _count_numbers(
    one: Floats, two: Floats, kind: ColumnKind
) -> tuple[list[Floats], str]:
    one, two = one[~np.isnan(one)], two[~np.isnan(two)]
    both = np.concatenate([one, two])
    if not len(both):
        return [np.zeros(1), np.zeros(1)], ABSENT
    # Outliers go to the outer bars: else they would squeeze all others into one.
    low, high = np.quantile(both, [0.01, 0.99])
    if low == high:
        low, high = both.min(), both.max()
    distinct = np.unique(np.clip(both, low, high))
    if len(distinct) <= N_BARS:  # a bar for each value
        edges = np.concatenate([distinct, [np.inf]])
    else:
        edges = np.linspace(low, high, N_BARS + 1)
    n = len(edges) - 1
    counts = []
    for part in (one, two):
        bar = np.searchsorted(edges, np.clip(part, low, high), side="right") - 1
        counts.append(np.bincount(np.clip(bar, 0, n - 1), minlength=n).astype(float))
    digits = decimals_of(both)
    return counts, f"{_end(low, kind, digits)} to {_end(high, kind, digits)}"


def _end(value: float, kind: ColumnKind, decimals: int) -> str:
    if kind == "numeric":
        return fixed(float(value), decimals)
    return str(np.datetime64(0, "D") + np.timedelta64(int(value), "D"))


def _count_levels(cells: list[Cells]) -> tuple[list[Floats], str]:
    found = []
    for part in cells:
        codes, levels = part.levels
        n = np.bincount(codes[codes >= 0], minlength=len(levels))
        found.append(dict(zip(levels, n.tolist(), strict=True)))
    one, two = found
    ranked = sorted(one | two, key=lambda level: (-one.get(level, 0), level))
    kept, rest = ranked[:N_LEVELS], ranked[N_LEVELS:]
    counts = []
    for part_counts in found:
        bars = [part_counts.get(level, 0) for level in kept]
        bars += [sum(part_counts.get(level, 0) for level in rest)] if rest else []
        counts.append(np.array(bars, float))
    words = ", ".join(short(level, 16) for level in kept[:3])
    n_more = len(ranked) - len(kept[:3])
    return counts, words + (f" and {n_more} more" if n_more else "")
