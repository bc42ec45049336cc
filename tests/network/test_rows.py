"""Rows as tensors."""

from __future__ import annotations

import numpy as np
import torch

from tabr.network.rows import Rows
from tabr.tables.preprocessor import Arrays


def test_parts_are_indexed_together() -> None:
    arrays = Arrays(
        np.arange(8, dtype=np.float32).reshape(4, 2),
        np.ones((4, 1), dtype=np.float32),
        np.arange(4, dtype=np.int64)[:, None],
    )
    rows = Rows.from_arrays(arrays, torch.device("cpu"))
    assert rows.n_rows == 4
    taken = rows.take(torch.tensor([[3, 0]]))
    assert taken.num.shape == (1, 2, 2)
    assert taken.cat.tolist() == [[[3], [0]]]
    assert rows.take(slice(1, 3)).n_rows == 2
