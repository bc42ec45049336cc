"""The columns of the candidates compared with those of the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr.report.evaluation import Evaluation
from tabr.tables.cells import Cells, ColumnKind
from tabr.tables.frame import random_rows
from tabr.text import ABSENT, decimals_of, fixed, short

N_BARS = 24  # of numbers and dates
N_LEVELS = 8  # of categories; all others share a bar
MOST_COLUMNS = 40  # on the page
MOST_CELLS = 50_000  # of a column of the candidates
SHIFTED = 0.1  # share of rows in other bars that is worth a mark

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ColumnLine:
    """A column, once among the candidates and once in the table."""

    name: str
    kind: ColumnKind
    missing: tuple[float, float]  # shares of missing cells: candidates, table
    range: str  # what the bars stand for, in words
    candidates: list[float]  # shares of cells in each bar
    rows: list[float]  # the same for the table
    shift: float  # the share of rows that would have to change their bar
    is_shifted: bool  # whether that is much, and more than chance


def compare_columns(evaluation: Evaluation) -> list[ColumnLine]:
    """Return a line for each column that the model uses, in the table's order.

    Of very many columns it returns those that shifted most.
    """
    candidates = evaluation.model.candidates_.frame
    candidates = candidates.iloc[random_rows(len(candidates), MOST_CELLS)]
    lines = [
        _compare(name, kind, candidates[name], evaluation.frame[name])
        for name, kind in evaluation.model.preprocessor_.kinds_.items()
    ]
    if len(lines) > MOST_COLUMNS:
        lines.sort(key=lambda line: -line.shift)
    return lines[:MOST_COLUMNS]


def as_numbers(column: pd.Series[Any], name: str, kind: ColumnKind) -> Floats | None:
    """Return numbers, or dates as days; None for other kinds."""
    cells = Cells.read(column, name, in_fit=False)
    if kind == "numeric":
        return cells.numbers()
    return cells.date_parts()["days"] if kind == "date" else None


def _compare(
    name: str, kind: ColumnKind, candidates: pd.Series[Any], rows: pd.Series[Any]
) -> ColumnLine:
    parts = candidates, rows
    missing = (float(candidates.isna().mean()), float(rows.isna().mean()))
    numbers = [as_numbers(part, name, kind) for part in parts]
    if numbers[0] is not None and numbers[1] is not None:
        counts, words = _count_numbers([numbers[0], numbers[1]], kind)
    else:
        cells = [Cells.read(part, name, in_fit=False) for part in parts]
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


def _count_numbers(parts: list[Floats], kind: ColumnKind) -> tuple[list[Floats], str]:
    """Return how many numbers of each part fall into each bar, and their range."""
    parts = [part[~np.isnan(part)] for part in parts]
    values = np.concatenate(parts)
    if not len(values):
        return [np.zeros(1), np.zeros(1)], ABSENT
    # Outliers go to the outer bars: else they would squeeze all others into one.
    low, high = np.quantile(values, [0.01, 0.99])
    if low == high:
        low, high = values.min(), values.max()
    distinct = np.unique(np.clip(values, low, high))
    if len(distinct) <= N_BARS:  # a bar for each value
        edges = np.concatenate([distinct, [np.inf]])
    else:
        edges = np.linspace(low, high, N_BARS + 1)
    n = len(edges) - 1
    counts = []
    for part in parts:
        bar = np.searchsorted(edges, np.clip(part, low, high), side="right") - 1
        counts.append(np.bincount(np.clip(bar, 0, n - 1), minlength=n).astype(float))
    digits = decimals_of(values)
    return counts, f"{_end(low, kind, digits)} to {_end(high, kind, digits)}"


def _end(value: float, kind: ColumnKind, decimals: int) -> str:
    if kind == "numeric":
        return fixed(float(value), decimals)
    return str(np.datetime64(0, "D") + np.timedelta64(int(value), "D"))


def _count_levels(cells: list[Cells]) -> tuple[list[Floats], str]:
    """Return how many cells of each part have each level, and the first levels."""
    counts = []
    for part in cells:
        codes, levels = part.levels
        n = np.bincount(codes[codes >= 0], minlength=len(levels))
        counts.append(pd.Series(n, pd.Index(levels, dtype=object)))
    table = pd.concat(counts, axis=1, keys=["candidates", "rows"]).fillna(0.0)
    table = table.sort_index().sort_values("candidates", ascending=False, kind="stable")
    bars, rest = table.iloc[:N_LEVELS].to_numpy(float), table.iloc[N_LEVELS:]
    if len(rest):
        bars = np.vstack([bars, rest.sum()])
    words = ", ".join(short(level, 16) for level in table.index[:3])
    n_more = len(table) - len(table.index[:3])
    return list(bars.T), words + (f" and {n_more} more" if n_more else "")
