"""Labels that agree, and labels that contradict others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr.tables.targets import MAX_CLASSES

CLOSE = 0.1  # standard deviations by which numbers may differ and still agree
MIN_NEIGHBORS = 3  # that a label can contradict


class Labels:
    """Labels (n,) of training rows: numbers, or classes."""

    def __init__(self, y: NDArray[Any]) -> None:
        """Take whole numbers of few values for classes, other numbers for numbers."""
        values = pd.Series(y)
        numeric = pd.api.types.is_numeric_dtype(values.dtype)
        flags = pd.api.types.is_bool_dtype(values.dtype)
        n_distinct = values.nunique()
        whole = numeric and bool((values.dropna() % 1 == 0).all())
        self.are_numbers = bool(
            numeric and not flags and (n_distinct > MAX_CLASSES or not whole)
        )
        self.values: NDArray[Any] = (
            values.to_numpy(float)
            if self.are_numbers
            else values.astype(str).to_numpy()
        )
        self.spread = float(np.nanstd(self.values)) if self.are_numbers else 0.0

    @property
    def against_text(self) -> str:
        """What a label does that contradicts its neighbours, in words."""
        return "lies far outside those" if self.are_numbers else "is not that of any"

    def agree(self, y: object, position: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether labels (b,) agree with the training labels at position (b,)."""
        other = self.values[position]
        if self.are_numbers:
            gaps = np.abs(np.asarray(y, float) - other)
            return np.asarray(gaps <= CLOSE * self.spread)
        return np.asarray(pd.Series(y).astype(str).to_numpy() == other)

    def differ_within(self, group: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether labels differ within the row's group (n,)."""
        groups = pd.Series(self.values).groupby(group)
        if self.are_numbers:
            width = groups.transform("max") - groups.transform("min")
            return (width > 2 * CLOSE * self.spread).to_numpy()
        return (groups.transform("nunique") > 1).to_numpy()

    def against(
        self, rows: NDArray[np.int64], position: NDArray[np.int64], far: float
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Whether labels contradict those of all neighbours, and how much.

        Args:
            rows: Positions of the rows, (b,).
            position: Positions of their neighbours, (b, m); -1 for none.
            far: For numbers, how many robust standard deviations of what neighbours
                leave unexplained a label must lie outside their range.
        """
        exists = position >= 0
        n_neighbors = exists.sum(1)
        enough = n_neighbors >= MIN_NEIGHBORS
        labels, others = self.values[rows], self.values[position]
        if not self.are_numbers:
            same = (others == labels[:, None]) & exists
            # One class among all neighbours contradicts more than a mixture of many.
            like_first = ((others == others[:, :1]) & exists).sum(1)
            return enough & ~same.any(1), like_first / np.maximum(n_neighbors, 1)
        low = np.where(exists, others, np.inf).min(1)
        high = np.where(exists, others, -np.inf).max(1)
        middle = np.nanmedian(np.where(exists, others, np.nan)[enough], axis=1)
        gaps = np.abs(labels[enough] - middle)
        scale = max(1.4826 * float(np.median(gaps)) if len(gaps) else 0.0, 1e-12)
        outside = np.maximum(low - labels, labels - high)
        # Beyond the range by the range's own width too: steep places are no mistake.
        contradicts = enough & (outside > far * scale) & (outside > high - low)
        return contradicts, np.where(enough, outside / scale, 0.0)
