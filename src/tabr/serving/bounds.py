"""How much a table of a request may hold; more is refused before it is unfolded."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from tabr.errors import DataError
from tabr.serving.messages import MOST_TEXT

EXTRA_COLUMNS = 256  # beside those of the model, which nothing reads
BYTES_PER_CELL = 4  # of the longest body: so many cells a table may have


@dataclass(frozen=True)
class Bounds:
    """The most that a table may have."""

    rows: int
    columns: int
    cells: int
    n_bytes: int

    def check_rows(self, n: int) -> None:
        """Refuse too many rows."""
        if n > self.rows:
            raise _too_many(self.rows, "rows", n, "send fewer at a time")

    def check_columns(self, n: int) -> None:
        """Refuse too many columns."""
        if n > self.columns:
            raise _too_many(self.columns, "columns", n, "send those of the model")

    def check_cells(self, n: int) -> None:
        """Refuse too many cells, by rows and columns."""
        if n > self.cells:
            raise _too_many(self.cells, "cells", n, "send fewer rows")

    def check_bytes(self, n: int) -> None:
        """Refuse too many bytes, unpacked."""
        if n > self.n_bytes:
            raise _too_many(self.n_bytes, "bytes", n, "send fewer rows")

    def check_frame(self, frame: pd.DataFrame) -> None:
        """Refuse a table that is too large, or a text that is too long."""
        self.check_rows(frame.shape[0])
        self.check_columns(frame.shape[1])
        self.check_cells(frame.size)
        for name, column in frame.items():
            if isinstance(column.dtype, pd.CategoricalDtype):
                column = column.cat.categories.to_series()
            if not pd.api.types.is_string_dtype(column.dtype):
                continue
            longest = column.astype(str).str.len().max()
            if longest > MOST_TEXT:
                raise DataError(
                    f"a cell may have at most {MOST_TEXT} characters, however column"
                    f" {str(name)!r:.80} has one of {longest:.0f}: shorten it"
                )


def _too_many(most: int, what: str, n: int, remedy: str) -> DataError:
    return DataError(
        f"a table may have at most {most} {what}, however {n} came: {remedy}"
    )
