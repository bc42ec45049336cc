"""The network of SAINT: attention between columns, then between rows.

The official network of kind "colrow" (Somepalli et al., 2021) where all rows attend to
the rows of a context, and those outside it to themselves.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabr.bench.methods.ft_transformer import CategoryVectors
from tabr.bench.methods.neural import Schema
from tabr.network.rows import Rows

N_HEADS = 8
NUMBER_HIDDEN = 100  # width within the embedding of a number
OUTPUT_HIDDEN = 1000


class NumberVectors(nn.Module):
    """A small MLP for each number.

    Shape: (n, n_columns) -> (n, n_columns, width).
    """

    def __init__(self, n_columns: int, width: int) -> None:
        """Draw weights as torch does for a linear layer of each column."""
        super().__init__()
        hidden = NUMBER_HIDDEN
        self.weight_in = nn.Parameter(torch.empty(n_columns, hidden))
        self.bias_in = nn.Parameter(torch.empty(n_columns, hidden))
        self.weight_out = nn.Parameter(torch.empty(n_columns, hidden, width))
        self.bias_out = nn.Parameter(torch.empty(n_columns, width))
        for parameter in (self.weight_in, self.bias_in):
            nn.init.uniform_(parameter, -1.0, 1.0)
        for parameter in (self.weight_out, self.bias_out):
            nn.init.uniform_(parameter, -(hidden**-0.5), hidden**-0.5)

    def forward(self, numbers: Tensor) -> Tensor:
        """Embed the numbers, all columns at once."""
        x = (numbers[..., None] * self.weight_in + self.bias_in).relu()
        x = x.transpose(0, 1) @ self.weight_out  # (n_columns, n, width)
        return x.transpose(0, 1) + self.bias_out


class Tokens(nn.Module):
    """Rows (n) -> tokens (n, n_columns, width), those of categories first."""

    def __init__(self, schema: Schema, width: int) -> None:
        """Draw the vectors of categories from a normal distribution."""
        super().__init__()
        self.category = CategoryVectors(schema.cardinalities, width)
        nn.init.normal_(self.category.weight)
        self.number = NumberVectors(schema.n_num + schema.n_bin, width)

    def forward(self, rows: Rows) -> Tensor:
        """Make a token of each column."""
        numbers = self.number(torch.cat([rows.num, rows.bin], 1))
        return torch.cat([self.category(rows.cat), numbers], 1)


class Attention(nn.Module):
    """Projections to heads and back."""

    def __init__(self, width: int, head_width: int, dropout: float) -> None:
        """Project without a bias, and back with one."""
        super().__init__()
        self.dropout = dropout
        self.heads = nn.Linear(width, 3 * N_HEADS * head_width, bias=False)
        self.out = nn.Linear(N_HEADS * head_width, width)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys, values: (..., n, width) -> (..., heads, n, d)."""
        parts = self.heads(x).unflatten(-1, (3, N_HEADS, -1)).movedim(-3, 0)
        query, key, value = parts.transpose(-2, -3)
        return query, key, value


class BetweenColumns(Attention):
    """Tokens of a row attend to each other: (n, t, width) -> (n, t, width)."""

    def forward(self, x: Tensor) -> Tensor:
        """Attend."""
        query, key, value = self.project(x)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(-2))
        return out


def attend_to_context(
    query: Tensor, key: Tensor, value: Tensor, n_context: int, dropout: float
) -> Tensor:
    """Mix values: the last rows are the context, and the others meet only themselves.

    Shape: scaled queries, keys, values (heads, n, d) -> (heads, n, d).
    """
    n_rows = query.shape[1] - n_context
    scores = query @ key[:, n_rows:].mT  # (heads, n, n_context)
    if n_rows > 0:  # a row of the context has its own score already
        own = (query[:, :n_rows] * key[:, :n_rows]).sum(-1, keepdim=True)
        own = F.pad(own, (0, 0, 0, n_context), value=-torch.inf)
        scores = torch.cat([scores, own], -1)
    weights = F.dropout(scores.softmax(-1), dropout, training=dropout > 0)
    mixed = weights[..., :n_context] @ value[:, n_rows:]
    return mixed if n_rows == 0 else mixed + weights[..., n_context:] * value


class BetweenRows(Attention):
    """Rows attend to the context, the last of them: (n, width) -> (n, width)."""

    def forward(self, x: Tensor, n_context: int) -> Tensor:
        """Attend."""
        query, key, value = self.project(x)  # (heads, n, d)
        query = query * query.shape[-1] ** -0.5
        dropout = self.dropout if self.training else 0.0
        mixed = attend_to_context(query, key, value, n_context, dropout)
        out: Tensor = self.out(mixed.transpose(0, 1).flatten(-2))
        return out


class FeedForward(nn.Module):
    """A linear layer, a gate by GELU, dropout and a linear layer."""

    def __init__(self, width: int, factor: float, dropout: float) -> None:
        """Make the layers as torch does by default."""
        super().__init__()
        d_hidden = int(width * factor)
        self.layer_in = nn.Linear(width, 2 * d_hidden)
        self.layer_out = nn.Linear(d_hidden, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return what is added to x."""
        first, gate = self.layer_in(x).chunk(2, -1)
        out: Tensor = self.layer_out(self.dropout(first * F.gelu(gate)))
        return out


class Block(nn.Module):
    """Between columns, then between rows, whose width is that of all tokens."""

    def __init__(
        self,
        n_columns: int,
        width: int,
        head_width: int,
        hidden_factor: float,
        attention_dropout: float,
        dropout: float,
    ) -> None:
        """Make the four layers and the normalisation before each."""
        super().__init__()
        d_row = n_columns * width
        self.columns = BetweenColumns(width, head_width, attention_dropout)
        self.columns_layer = FeedForward(width, hidden_factor, dropout)
        self.rows = BetweenRows(d_row, head_width, attention_dropout)
        self.rows_layer = FeedForward(d_row, hidden_factor, dropout)
        widths = (width, width, d_row, d_row)
        self.norms = nn.ModuleList(nn.LayerNorm(d) for d in widths)

    def forward(self, x: Tensor, n_context: int) -> Tensor:
        """Return the tokens after the block: (n, t, width) -> (n, t, width)."""
        shape = x.shape
        x = self.norms[0](x)
        x = self.norms[1](x + self.columns(x))
        x = (x + self.columns_layer(x)).flatten(1)
        x = self.norms[2](x)
        x = self.norms[3](x + self.rows(x, n_context))
        out: Tensor = (x + self.rows_layer(x)).view(shape)
        return out


class Network(nn.Module):
    """Rows (b), context rows (c) -> outputs (b, n_outputs)."""

    def __init__(
        self,
        schema: Schema,
        depth: int,
        width: int,
        head_width: int,
        hidden_factor: float,
        *dropouts: float,
    ) -> None:
        """Make the layers as torch does by default."""
        super().__init__()
        n_columns = schema.n_num + schema.n_bin + len(schema.cardinalities)
        self.tokens = Tokens(schema, width)
        self.blocks = nn.ModuleList(
            Block(n_columns, width, head_width, hidden_factor, *dropouts)
            for _ in range(depth)
        )
        self.output = nn.Sequential(
            nn.Linear(width, OUTPUT_HIDDEN),
            nn.ReLU(),
            nn.Linear(OUTPUT_HIDDEN, schema.n_outputs),
        )

    def forward(self, rows: Rows, context: Rows) -> Tensor:
        """Return values or logits of the rows."""
        both = zip(rows, context, strict=True)
        x = self.tokens(Rows(*(torch.cat(parts) for parts in both)))
        for block in self.blocks:
            x = block(x, context.n_rows)
        out: Tensor = self.output(x[: rows.n_rows, 0])
        return out
