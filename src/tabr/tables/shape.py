"""What a network must know of a table and its target to be built."""

from __future__ import annotations

from dataclasses import dataclass

from tabr.config import Task


@dataclass(frozen=True)
class DataShape:
    """Columns of prepared rows, and what is predicted from them.

    Attributes:
        n_num: Numeric columns.
        n_bin: Binary columns.
        cardinalities: Levels of each categorical column; a code of -1 has none.
        task: Which loss.
        n_classes: Classes, or 0 for numbers.
        sources: The column of the table that each of these columns comes from, by
            number, in the order of a row's vector; empty: each is one of its own.
    """

    n_num: int
    n_bin: int
    cardinalities: tuple[int, ...]
    task: Task
    n_classes: int
    sources: tuple[int, ...] = ()

    @property
    def n_outputs(self) -> int:
        """Width of a network's output: one, or a logit for each of many classes."""
        return self.n_classes if self.task == "classes" else 1

    @property
    def width(self) -> int:
        """Width of a row as one vector: categories one-hot, numbers as they are."""
        return self.n_num + self.n_bin + sum(self.cardinalities)

    @property
    def row_bytes(self) -> int:
        """Bytes of one prepared row."""
        return 4 * (self.n_num + self.n_bin) + 8 * len(self.cardinalities)
