"""Rows of a table as tensors that are indexed, moved and joined together."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tabr.tables.preprocessor import Arrays

_NARROW = 32  # numbers of a row that are taken one by one


def take(values: Tensor, index: Tensor) -> Tensor:
    """Return values at index, on the index's device: they may be kept elsewhere."""
    if values.device == index.device:
        if _are_narrow(values) and index.ndim > 1:
            return _take_numbers(values, index)
        return values[index]
    return values[index.to(values.device)].to(index.device)


def _are_narrow(values: Tensor) -> bool:
    """Tell whether these are short rows on a GPU, which takes row by row."""
    return (
        values.is_cuda
        and not values.requires_grad
        and values.ndim == 2
        and 0 < values.shape[1] <= _NARROW
    )


def _take_numbers(values: Tensor, index: Tensor) -> Tensor:
    """Return values (n, p) at index, number by number."""
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
        """Move prepared arrays to the device."""
        parts = (arrays.num, arrays.bin, arrays.cat)
        return cls(*(torch.from_numpy(part).to(device) for part in parts))

    @property
    def n_rows(self) -> int:
        """Return the number of rows; `len` of a tuple is something else."""
        return self.num.shape[0]

    def take(self, index: Tensor | slice) -> Rows:
        """Return the rows at index; an index of shape (b, m) gives (b, m, ...).

        They come to where the index is.
        """
        if isinstance(index, slice):
            return Rows(self.num[index], self.bin[index], self.cat[index])
        return Rows(*(take(part, index) for part in self))

    def to(self, device: torch.device) -> Rows:
        """Return the rows on the device."""
        return Rows(*(part.to(device) for part in self))

    def in_precision(self, dtype: torch.dtype) -> Rows:
        """Return the rows with numbers of that type."""
        return Rows(self.num.to(dtype), self.bin.to(dtype), self.cat)
