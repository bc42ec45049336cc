"""When two labels agree, and when one stands against many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

MAX_CLASSES = 20  # whole numbers with more distinct values are quantities
CLOSE = 0.1  # standard deviations by which numbers may differ and still agree


class Labels:
    """Labels (n,) of training rows: numbers, or classes."""

    def __init__(self, y: NDArray[Any]) -> None:
        """Decide of which kind the labels are."""
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
        """What a strange label does, in words."""
        return "lies far outside those" if self.are_numbers else "is not that of any"

    def agree(self, y: object, position: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say whether labels (b,) agree with the training labels at position (b,)."""
        other = self.values[position]
        if self.are_numbers:
            given = np.asarray(y, float)
            return np.asarray(np.abs(given - other) <= CLOSE * self.spread)
        return np.asarray(pd.Series(y).astype(str).to_numpy() == other)

    def against(
        self, own: NDArray[np.int64], position: NDArray[np.int64], far: float
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Say which labels stand against those of all neighbours, and how much.

        Args:
            own: Positions of the rows, (b,).
            position: Positions of their neighbours, (b, m); -1 for none.
            far: For numbers, how many robust standard deviations of what neighbours
                leave unexplained a label must lie outside their range.
        """
        found = position >= 0
        enough = found.sum(1) >= 3
        mine, theirs = self.values[own], self.values[position]
        if not self.are_numbers:
            same = (theirs == mine[:, None]) & found
            # One class among all neighbours contradicts more than a mixture of many.
            first = theirs[:, :1]
            unity = ((theirs == first) & found).sum(1) / np.maximum(found.sum(1), 1)
            return enough & ~same.any(1), np.asarray(unity)
        low = np.where(found, theirs, np.inf).min(1)
        high = np.where(found, theirs, -np.inf).max(1)
        middle = np.nanmedian(np.where(found, theirs, np.nan)[enough], axis=1)
        rest = np.abs(mine[enough] - middle)
        scale = max(1.4826 * float(np.median(rest)) if len(rest) else 0.0, 1e-12)
        outside = np.maximum(low - mine, mine - high)
        # Beyond the range by the range's own width too: steep places are no mistake.
        strange = enough & (outside > far * scale) & (outside > high - low)
        return strange, np.where(enough, outside / scale, 0.0)
