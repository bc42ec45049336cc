"""Rows of a table as three tensors that are indexed and moved as one."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tabr.tables.preprocessor import Arrays

_NARROW = 32  # numbers of a row, up to which they are taken one by one


def take(values: Tensor, index: Tensor) -> Tensor:
    """Return values at index, on the index's device; the values may be elsewhere."""
    if values.device == index.device:
        if _is_narrow(values) and index.ndim > 1:
            return _take_numbers(values, index)
        return values[index]
    return values[index.to(values.device)].to(index.device)


def _is_narrow(values: Tensor) -> bool:
    """Whether these are short rows on a GPU, where indexing by row is slow."""
    return (
        values.is_cuda
        and not values.requires_grad
        and values.ndim == 2
        and 0 < values.shape[1] <= _NARROW
    )


def _take_numbers(values: Tensor, index: Tensor) -> Tensor:
    """Return values (n, p) at index, taken number by number."""
    p = values.shape[1]
    columns = torch.arange(p, device=index.device)
    numbers = torch.add(columns, index[..., None], alpha=p)
    return values.reshape(-1)[numbers]


class Rows(NamedTuple):
    """Prepared rows: numbers, binary columns and codes of categories.

    Shapes: num (n, p), bin (n, q), cat (n, r); a code of -1 has no level.
    """

    num: Tensor
    bin: Tensor
    cat: Tensor

    @classmethod
    def from_arrays(cls, arrays: Arrays, device: torch.device) -> Rows:
        """Return prepared arrays as rows on the device."""
        parts = (arrays.num, arrays.bin, arrays.cat)
        return cls(*(torch.from_numpy(part).to(device) for part in parts))

    @property
    def n_rows(self) -> int:
        """The number of rows; `len` of a tuple is something else."""
        return self.num.shape[0]

    def take(self, index: Tensor | slice) -> Rows:
        """Return the rows at index, on its device; (b, m) gives rows (b, m, ...)."""
        if isinstance(index, slice):
            return Rows(self.num[index], self.bin[index], self.cat[index])
        return Rows(*(take(part, index) for part in self))

    def to(self, device: torch.device) -> Rows:
        """Return the rows on the device."""
        return Rows(*(part.to(device) for part in self))

    def in_precision(self, dtype: torch.dtype) -> Rows:
        """Return the rows with numbers of that type."""
        return Rows(self.num.to(dtype), self.bin.to(dtype), self.cat)
