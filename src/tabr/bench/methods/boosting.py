"""What the three libraries of boosted trees have in common."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from tabr.bench.methods.base import ArrayMethod, Floats, Setting, one_hot
from tabr.errors import ParameterError
from tabr.tables.normalize import Normalization
from tabr.tables.preprocessor import Arrays

PATIENCE = 200  # rounds, of the tuned configurations


class Boosting(ArrayMethod):
    """Trees one after another on raw numbers, cut to the best number of them.

    The default configuration grows all trees: 3999 rounds of patience never end before
    the 4000th tree, unless the first one was the best. Tuned configurations stop after
    200 rounds.
    """

    normalization: ClassVar[Normalization] = "none"

    def __init__(
        self, setting: Setting, seed: int, *, n_trees: int = 4000, patience: int = 3999
    ) -> None:
        """Keep how many trees there may be, and how many without improvement."""
        super().__init__(setting, seed)
        if min(n_trees, patience) < 1:
            raise ParameterError(
                f"`n_trees >= 1` and `patience >= 1` must hold, however: {n_trees=},"
                f" {patience=}"
            )
        self.n_trees, self.patience = n_trees, patience
        self.device = torch.device("cpu")  # unless the library can do otherwise

    def _matrix(self, arrays: Arrays) -> NDArray[np.float32]:
        """Return rows (n, d) for a library that knows no categories."""
        return one_hot(arrays, self.preprocessor.cardinalities)

    def _final(self, output: Floats) -> Floats:
        """Return both of two classes; the libraries give the second."""
        if self.task == "binary":
            return np.stack([1 - output, output], axis=1)
        return output
