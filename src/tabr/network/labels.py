"""W_Y: labels of neighbours as vectors, summed before they are embedded."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tabr.network.products import product, weighted_sum
from tabr.tables.shape import DataShape


def make_label_value(shape: DataShape, width: int) -> NumberLabel | ClassLabel:
    """Return W_Y for the kind of labels that the target has."""
    if shape.task == "regression":
        return NumberLabel(width)
    return ClassLabel(shape.n_classes, width)


class NumberLabel(nn.Module):
    """W_Y for numbers: Linear(1, d), summed over neighbours before it is applied."""

    spared_from_decay = True

    def __init__(self, width: int) -> None:
        """Draw weight and bias uniform in +-1/sqrt(2)."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, 1))
        self.bias = nn.Parameter(torch.empty(width))
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -(2**-0.5), 2**-0.5)

    def forward(self, labels: Tensor, weights: Tensor) -> Tensor:
        """Labels and weights (b, m) -> sum_i w_i W_Y(y_i), (b, d)."""
        terms = torch.stack([labels, torch.ones_like(labels)], -1)  # (b, m, 2)
        sums = weighted_sum(weights, terms)  # of labels and of weights
        return product(sums, torch.stack([self.weight[:, 0], self.bias]))


class ClassLabel(nn.Module):
    """W_Y for classes: a table of embeddings, applied to the weighted histogram."""

    spared_from_decay = True

    def __init__(self, n_classes: int, width: int) -> None:
        """Draw the table uniform in +-1."""
        super().__init__()
        self.table = nn.Parameter(torch.empty(n_classes, width))
        nn.init.uniform_(self.table, -1.0, 1.0)

    def forward(self, labels: Tensor, weights: Tensor) -> Tensor:
        """Labels and weights (b, m) -> sum_i w_i table[y_i], (b, d)."""
        classes = torch.arange(len(self.table), device=labels.device)
        is_class = (labels[..., None] == classes).to(weights.dtype)  # (b, m, classes)
        return product(weighted_sum(weights, is_class), self.table)
