"""The candidate set: the rows that predictions are made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from tabr.rows import Rows


@dataclass(frozen=True)
class CandidateSet:
    """Rows that may be retrieved, with ids that stay theirs.

    Attributes:
        ids: (n,) int64; in a fitted model the row's position in the table of `fit`.
        frame: The rows as the user gave them, (n, columns).
        y: Their labels as the user gave them, (n,).
        rows: The rows prepared for the network.
        labels: Encoded labels (n,).
    """

    ids: NDArray[np.int64]
    frame: pd.DataFrame
    y: NDArray[Any]
    rows: Rows
    labels: Tensor

    def __len__(self) -> int:
        """Return the number of candidates."""
        return len(self.ids)

    def to(self, device: torch.device) -> CandidateSet:
        """Return the set with its tensors on the device."""
        rows, labels = self.rows.to(device), self.labels.to(device)
        return CandidateSet(self.ids, self.frame, self.y, rows, labels)

    def look_up(self, ids: NDArray[np.int64]) -> pd.DataFrame:
        """Return the rows with these ids, as the user gave them, indexed by id."""
        known = pd.Index(self.ids)
        position = known.get_indexer(pd.Index(np.asarray(ids, np.int64)))
        if (position < 0).any():
            missing = np.asarray(ids)[position < 0][:5].tolist()
            raise KeyError(f"no candidate has these ids: {missing}")
        return self.frame.iloc[position].set_axis(known[position])
