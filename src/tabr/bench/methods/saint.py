"""SAINT: attention between columns, then between rows (Somepalli et al., 2021).

The official network of kind "colrow", without pretraining, with the fix of the TabR
paper: a row attends to itself and to context rows of the training part, so that no
other row of a prediction matters. Rows of a context attend to each other. A training
step draws a context anew; predictions share one, drawn once by the seed.

The published numbers of parameters tell what was run: binary columns are numbers, one
width of heads serves columns and rows, and no token was added to read the answer from.
The official code reads the first token, here that of the first column. As there, a
shortcut begins after the normalisation.

NOTE[DIFF]: parts of the official network that only pretraining would use are left out:
they were counted in the published numbers, but never trained.

NOTE[DIFF]: how the paper's runs chose a context cannot be told from what is known. Here
it has as many rows as a batch.

NOTE[DIFF]: the official code has attention dropout as a parameter and never applies it.
Here it is applied; `published` leaves it out.

NOTE[DIFF]: the paper's table for tuning leaves out the width of heads, which its tuned
configurations have (2 to 47): it is chosen between 2 and 48.

NOTE[DIFF]: a category without a level is a zero vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabr.bench.methods.layers import (
    CategoryVectors,
    GatedFeedForward,
    attend,
    join_heads,
    split_heads,
)
from tabr.bench.methods.neural import PUBLISHED_TRAINING, NeuralMethod
from tabr.bench.methods.spaces import Integer, Space, Uniform, rates
from tabr.network.rows import Rows
from tabr.tables.shape import DataShape
from tabr.training.losses import row_losses

N_HEADS = 8
NUMBER_HIDDEN = 100  # width within the embedding of a number
OUTPUT_HIDDEN = 1000


@dataclass(frozen=True)
class Config:
    """The shape of the network, by default the paper's for large tables."""

    depth: int = 4
    width: int = 32
    head_width: int = 48
    hidden_factor: float = 4.0
    attention_dropout: float = 0.0
    dropout: float = 0.8


class NumberVectors(nn.Module):
    """A small MLP for each number: (n, n_columns) -> (n, n_columns, width)."""

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
        """Return the vectors of all columns."""
        x = (numbers[..., None] * self.weight_in + self.bias_in).relu()
        x = x.transpose(0, 1) @ self.weight_out  # (n_columns, n, width)
        return x.transpose(0, 1) + self.bias_out


class Tokens(nn.Module):
    """Rows (n) -> tokens (n, n_columns, width), those of categories first."""

    def __init__(self, schema: DataShape, width: int) -> None:
        super().__init__()
        self.category = CategoryVectors(schema.cardinalities, width)
        nn.init.normal_(self.category.weight)
        self.number = NumberVectors(schema.n_num + schema.n_bin, width)

    def forward(self, rows: Rows) -> Tensor:
        """Return a token for each column."""
        numbers = self.number(torch.cat([rows.num, rows.bin], 1))
        return torch.cat([self.category(rows.cat), numbers], 1)


class Attention(nn.Module):
    """Attention between the columns of a row, or between rows.

    Shape: tokens (n, t, width), or rows (n, width) of which the last n_context are the
    context -> the same.
    """

    def __init__(self, width: int, config: Config) -> None:
        super().__init__()
        d_heads = N_HEADS * config.head_width
        self.heads = nn.Linear(width, 3 * d_heads, bias=False)
        self.out = nn.Linear(d_heads, width)
        self.dropout, self.scale = config.attention_dropout, config.head_width**-0.5

    def forward(self, x: Tensor, n_context: int | None = None) -> Tensor:
        """Return what is added to x."""
        parts = self.heads(x).chunk(3, -1)
        query, key, value = (split_heads(part, N_HEADS) for part in parts)
        dropout = self.dropout if self.training else 0.0
        options = {"dropout": dropout, "scale": self.scale}
        mean = attend(query, key, value, n_context=n_context, **options)
        out: Tensor = self.out(join_heads(mean))
        return out


class Block(nn.Module):
    """Attention between columns, then between rows as wide as all their tokens."""

    def __init__(self, n_columns: int, config: Config) -> None:
        super().__init__()
        width, d_row = config.width, n_columns * config.width

        def layers(d: int) -> GatedFeedForward:
            d_hidden = int(d * config.hidden_factor)
            return GatedFeedForward(d, d_hidden, config.dropout, F.gelu)

        self.columns = Attention(width, config)
        self.columns_layer = layers(width)
        self.rows = Attention(d_row, config)
        self.rows_layer = layers(d_row)
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

    def __init__(self, schema: DataShape, config: Config) -> None:
        super().__init__()
        self.tokens = Tokens(schema, config.width)
        n_columns = schema.n_num + schema.n_bin + len(schema.cardinalities)
        blocks = (Block(n_columns, config) for _ in range(config.depth))
        self.blocks = nn.ModuleList(blocks)
        self.output = nn.Sequential(
            nn.Linear(config.width, OUTPUT_HIDDEN),
            nn.ReLU(),
            nn.Linear(OUTPUT_HIDDEN, schema.n_outputs),
        )

    def forward(self, rows: Rows, context: Rows) -> Tensor:
        """Return values or logits of the rows."""
        pairs = zip(rows, context, strict=True)
        x = self.tokens(Rows(*(torch.cat(parts) for parts in pairs)))
        for block in self.blocks:
            x = block(x, context.n_rows)
        out: Tensor = self.output(x[: rows.n_rows, 0])
        return out


class SAINT(NeuralMethod):
    """SAINT."""

    config_type = Config
    training_defaults = replace(
        NeuralMethod.training_defaults, learning_rate=1e-4, weight_decay=0.01
    )
    search_space: ClassVar[Space] = {
        "depth": Integer(1, 4),
        "width": Integer(1, 8, 4),
        "head_width": Integer(2, 48),
        "hidden_factor": Uniform(2 / 3, 8 / 3),
        "attention_dropout": Uniform(0.0, 0.5),
        "dropout": Uniform(0.0, 0.5),
        **rates(),
    }
    published_names: ClassVar[Mapping[str, str]] = {
        "depth": "model.depth",
        "width": "model.dim",
        "head_width": "model.dim_head",
        "hidden_factor": "model.ffn_mult",
        "dropout": "model.ff_dropout",
        **PUBLISHED_TRAINING,
    }

    context: Rows  # of predictions

    def build(self, schema: DataShape) -> nn.Module:
        """Draw the context of predictions and return the network."""
        index = torch.randperm(self.rows.n_rows)[: self.training.batch_size]
        self.context = self.rows.take(index.to(self.device))
        return Network(schema, self.config)

    def loss(self, index: Tensor) -> Tensor:
        """Return the mean loss of the training rows at index, in a new context."""
        shape = (self.context.n_rows,)
        others = torch.randint(self.rows.n_rows, shape, device=index.device)
        output = self.network(self.rows.take(index), self.rows.take(others))
        return row_losses(output, self.labels[index], self.task).mean()

    def outputs(self, rows: Rows) -> Tensor:
        """Return the outputs (n, n_outputs) for rows, in the same context for all."""
        out: Tensor = self.network(rows, self.context)
        return out
