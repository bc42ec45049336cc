"""Drift: columns whose values moved from the training part to the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import chi2_contingency, ks_2samp

from tabr.audit.findings import Finding
from tabr.errors import DataError
from tabr.tables.frame import random_rows
from tabr.tables.preprocessor import Preprocessor
from tabr.text import percent

MIN_SHIFT = 0.1  # of the largest gap between two distribution functions
MAX_CHANCE = 1e-3  # of a shift as large, over all columns together
_SAMPLE = 20_000


def column_shifts(
    train: pd.DataFrame, test: pd.DataFrame, rng: np.random.Generator
) -> pd.DataFrame:
    """Return how far each column moved, the farthest first.

    `shift` is the Kolmogorov-Smirnov distance for numbers, and the share of rows that
    would have to change their level for categories: 0 not at all, 1 altogether.
    `chance` is the probability of a shift as large between random parts.
    """
    train_sample, test_sample = (
        frame.iloc[random_rows(len(frame), _SAMPLE, rng)] for frame in (train, test)
    )
    try:
        kinds: dict[str, Any] = dict(Preprocessor().fit(train_sample).kinds_)
    except DataError:
        kinds = {}
    lines = []
    for name in train.columns:
        columns = train_sample[name], test_sample[name]
        is_numeric = pd.api.types.is_numeric_dtype(columns[0].dtype)
        if kinds.get(name) == "numeric" and is_numeric:
            shift, chance = _number_shift(*columns)
        elif kinds.get(name) == "date":
            continue  # later rows have later dates: no news
        else:
            shift, chance = _level_shift(*columns)
        lines.append({"column": name, "shift": shift, "chance": chance})
    table = pd.DataFrame(lines, columns=["column", "shift", "chance"])
    return table.sort_values("shift", ascending=False, ignore_index=True)


def drift_findings(
    train: pd.DataFrame, test: pd.DataFrame, rng: np.random.Generator
) -> list[Finding]:
    """Return which columns moved, as one finding if any did."""
    table = column_shifts(train, test, rng)
    is_moved = (table["shift"] > MIN_SHIFT) & (
        table["chance"] < MAX_CHANCE / max(1, len(table))
    )
    moved = table[is_moved]
    if moved.empty:
        return []
    names = ", ".join(
        f"{name!r} ({shift:.2f})"
        for name, shift in zip(moved["column"][:5], moved["shift"][:5], strict=True)
    )
    more = f" and {len(moved) - 5} more" if len(moved) > 5 else ""
    text = (
        f"{len(moved)} of {len(table)} columns are distributed otherwise in the test"
        f" part (largest shift, 0 to 1): {names}{more}; a random split does not do"
        f" that (chance under {percent(MAX_CHANCE)})"
    )
    counts = len(moved), len(table)
    return [Finding("columns that moved", "warning", text, *counts, "columns")]


def _number_shift(train: pd.Series[Any], test: pd.Series[Any]) -> tuple[float, float]:
    a = train.dropna().to_numpy(float)
    b = pd.to_numeric(test, errors="coerce").dropna().to_numpy(float)
    if not len(a) or not len(b):
        return float(len(a) != len(b)), 0.0 if len(a) != len(b) else 1.0
    result = ks_2samp(a, b, method="asymp")
    return float(result.statistic), float(result.pvalue)


def _level_shift(train: pd.Series[Any], test: pd.Series[Any]) -> tuple[float, float]:
    parts = {"train": train, "test": test}
    counts = pd.DataFrame(
        {name: _texts(column).value_counts() for name, column in parts.items()}
    ).fillna(0.0)
    shares = counts / counts.sum()
    shift = float((shares["train"] - shares["test"]).abs().sum() / 2)
    # Rare levels share one cell: the chi-squared law needs full ones.
    rare = counts.sum(axis=1) < 10
    cells = counts[~rare]
    if rare.any():
        rest = counts[rare].sum().to_frame().T
        cells = pd.concat([cells, rest])
    if len(cells) < 2:
        return shift, 1.0
    return shift, float(chi2_contingency(cells.to_numpy() + 1e-9).pvalue)


def _texts(column: pd.Series[Any]) -> pd.Series[Any]:
    return column.astype(object).where(column.notna(), "missing").astype(str)
