"""Layers that several networks are made of."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CategoryVectors(nn.Module):
    """A vector for each level of each categorical column, and zeros for no level.

    All columns are in one table, whose weights are drawn by the owner.

    Shape: codes (..., n_columns) -> (..., n_columns, width).
    """

    offset: Tensor

    def __init__(self, cardinalities: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(sum(cardinalities), width))
        counts = torch.tensor((0, *cardinalities), dtype=torch.int64)
        offset = counts.cumsum(0)[:-1]
        self.register_buffer("offset", offset, persistent=False)

    def forward(self, codes: Tensor) -> Tensor:
        """Return the vectors of codes."""
        if len(self.weight) == 0:
            return self.weight.new_empty(*codes.shape, self.weight.shape[1])
        vectors = F.embedding(codes.clamp_min(0) + self.offset, self.weight)
        return vectors * (codes >= 0)[..., None]


class GatedFeedForward(nn.Module):
    """Two linear layers; half of what is between them gates the other half.

    Shape: (..., width) -> (..., width).
    """

    def __init__(
        self,
        width: int,
        d_hidden: int,
        dropout: float,
        activation: Callable[[Tensor], Tensor],
    ) -> None:
        super().__init__()
        self.layer_in = nn.Linear(width, 2 * d_hidden)
        self.layer_out = nn.Linear(d_hidden, width)
        self.dropout = nn.Dropout(dropout)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Return what is added to x."""
        value, gate = self.layer_in(x).chunk(2, -1)
        out: Tensor = self.layer_out(self.dropout(value * self.activation(gate)))
        return out


# --- attention ------------------------------------------------------------------------


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """Return each head's part of x: (..., n, width) -> (..., heads, n, d)."""
    heads: Tensor = x.unflatten(-1, (n_heads, -1))
    return heads.transpose(-3, -2)


def join_heads(x: Tensor) -> Tensor:
    """Return the parts of all heads side by side, as before `split_heads`."""
    return x.transpose(-3, -2).flatten(-2)


class Attention(nn.Module):
    """Attention with a linear layer each for queries, keys, values and their means."""

    def __init__(
        self, width: int, n_heads: int, *, dropout: float, scale: float
    ) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.mix = nn.Linear(width, width)
        self.n_heads, self.dropout, self.scale = n_heads, dropout, scale

    def forward(
        self, x: Tensor, source: Tensor, n_context: int | None = None
    ) -> Tensor:
        """Return what x (..., n, width) looks up in the source (..., m, width)."""
        query, key, value = (
            split_heads(part, self.n_heads)
            for part in (self.query(x), self.key(source), self.value(source))
        )
        dropout = self.dropout if self.training else 0.0
        options = {"dropout": dropout, "scale": self.scale}
        mean = attend(query, key, value, n_context=n_context, **options)
        out: Tensor = self.mix(join_heads(mean))
        return out


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    dropout: float,
    scale: float,
    n_context: int | None = None,
) -> Tensor:
    """Return weighted means of values: (..., heads, n, d) -> (..., heads, n, d).

    Without a context all attend to all. Otherwise the last of n rows are the context:
    all rows attend to it, and a row outside of it to itself too.
    """
    if n_context is None:
        return F.scaled_dot_product_attention(
            query, key, value, dropout_p=dropout, scale=scale
        )
    query = query * scale
    n_rows = query.shape[1] - n_context
    scores = query @ key[:, n_rows:].mT  # (heads, n, n_context)
    if n_rows > 0:  # a row of the context has the score of itself already
        itself = (query[:, :n_rows] * key[:, :n_rows]).sum(-1, keepdim=True)
        itself = F.pad(itself, (0, 0, 0, n_context), value=-torch.inf)
        scores = torch.cat([scores, itself], -1)
    weights = F.dropout(scores.softmax(-1), dropout, training=dropout > 0)
    mean = weights[..., :n_context] @ value[:, n_rows:]
    return mean if n_rows == 0 else mean + weights[..., n_context:] * value
