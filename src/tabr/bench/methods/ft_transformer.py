"""FT-Transformer: a transformer over the columns of one row (Gorishniy et al., 2021).

Each column becomes a token, attention mixes them, and a token of its own reads the
answer. Numbers and binary columns are tokens alike, as in the published runs.

NOTE[DIFF]: the paper used the package rtdl 0.0.13. Its successor, which can be
installed today, knows no code without a level, embeds categories column by column and
lets all tokens through the last block, of which one is read. The network here computes
the same (a test compares them) with one table of categories, fused attention and the
last block for the one token. A category without a level adds nothing to its column's
bias.

NOTE[DIFF]: the package spares tokens, normalisations and biases from weight decay; here
all are decayed, as for every network (see `NeuralMethod`).

NOTE[DIFF]: the table of the paper lets widths be any whole number. They must be a
multiple of the 8 heads, and those published are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabr.bench.methods.base import check_minimum
from tabr.bench.methods.layers import Attention, CategoryVectors, GatedFeedForward
from tabr.bench.methods.neural import PUBLISHED_TRAINING, NeuralMethod
from tabr.bench.methods.spaces import Integer, Space, Uniform, ZeroOr, rates
from tabr.errors import ParameterError
from tabr.network.rows import Rows
from tabr.tables.shape import DataShape

N_HEADS = 8


@dataclass(frozen=True)
class Config:
    """The shape of the network, by default the package's own of three blocks."""

    n_blocks: int = 3
    width: int = 192
    hidden_factor: float = 4 / 3
    attention_dropout: float = 0.2
    dropout: float = 0.1
    residual_dropout: float = 0.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_minimum(1, n_blocks=self.n_blocks)
        if self.width % N_HEADS:
            raise ParameterError(
                f"width must be a multiple of {N_HEADS}, however: width={self.width}"
            )


class Tokens(nn.Module):
    """Rows (b) -> tokens (b, 1 + n_columns, width), the one that is read first."""

    def __init__(self, schema: DataShape, width: int) -> None:
        """Draw all vectors uniform within width ** -0.5."""
        super().__init__()
        self.reader = nn.Parameter(torch.empty(1, width))
        n_numbers, n_categories = schema.n_num + schema.n_bin, len(schema.cardinalities)
        self.number = nn.Parameter(torch.empty(n_numbers, width))
        self.category = CategoryVectors(schema.cardinalities, width)
        self.bias = nn.Parameter(torch.empty(n_numbers + n_categories, width))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(width**-0.5), width**-0.5)

    def forward(self, rows: Rows) -> Tensor:
        """Return a token for each column."""
        numbers = torch.cat([rows.num, rows.bin], 1)[..., None] * self.number
        columns = torch.cat([numbers, self.category(rows.cat)], 1) + self.bias
        reader = self.reader.expand(len(columns), 1, -1)
        return torch.cat([reader, columns], 1)


class Block(nn.Module):
    """Attention, then a feed-forward layer for each token; both beside a shortcut.

    The first block begins without a normalisation, which is crucial.
    """

    def __init__(self, config: Config, *, is_first: bool) -> None:
        super().__init__()
        width = config.width
        self.norm = nn.Identity() if is_first else nn.LayerNorm(width)
        scale = (width // N_HEADS) ** -0.5
        self.attention = Attention(
            width, N_HEADS, dropout=config.attention_dropout, scale=scale
        )
        for linear in self.attention.children():
            assert isinstance(linear, nn.Linear)
            nn.init.zeros_(linear.bias)
        self.layers_norm = nn.LayerNorm(width)
        d_hidden = int(width * config.hidden_factor)
        self.layers = GatedFeedForward(width, d_hidden, config.dropout, F.relu)
        self.residual = nn.Dropout(config.residual_dropout)

    def forward(self, x: Tensor, n_read: int) -> Tensor:
        """Return the first n_read tokens after the block: (b, t, d) -> (b, r, d)."""
        normed = self.norm(x)
        attended = self.attention(normed[:, :n_read], normed)
        x = x[:, :n_read] + self.residual(attended)
        out: Tensor = x + self.residual(self.layers(self.layers_norm(x)))
        return out


class Network(nn.Module):
    """Rows (b) -> outputs (b, n_outputs)."""

    def __init__(self, schema: DataShape, config: Config) -> None:
        super().__init__()
        width = config.width
        self.tokens = Tokens(schema, width)
        self.blocks = nn.ModuleList(
            Block(config, is_first=number == 0) for number in range(config.n_blocks)
        )
        self.output = nn.Sequential(
            nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, schema.n_outputs)
        )

    def forward(self, rows: Rows) -> Tensor:
        """Return values or logits."""
        x = self.tokens(rows)
        for number, block in enumerate(self.blocks, 1):
            x = block(x, 1 if number == len(self.blocks) else x.shape[1])
        out: Tensor = self.output(x[:, 0])
        return out


class FTTransformer(NeuralMethod):
    """FT-Transformer."""

    config_type = Config
    training_defaults = replace(NeuralMethod.training_defaults, learning_rate=1e-4)
    search_space: ClassVar[Space] = {
        "n_blocks": Integer(1, 4),
        "width": Integer(2, 48, N_HEADS),
        "hidden_factor": Uniform(2 / 3, 8 / 3),
        "attention_dropout": Uniform(0.0, 0.5),
        "dropout": Uniform(0.0, 0.5),
        "residual_dropout": ZeroOr(Uniform(0.0, 0.2)),
        **rates((1e-5, 1e-3)),
    }
    published_names: ClassVar[Mapping[str, str]] = {
        "n_blocks": "model.n_blocks",
        "width": "model.d_token",
        "hidden_factor": "model.ffn_d_hidden_factor",
        "attention_dropout": "model.attention_dropout",
        "dropout": "model.ffn_dropout",
        "residual_dropout": "model.residual_dropout",
        **PUBLISHED_TRAINING,
    }

    def build(self, schema: DataShape) -> nn.Module:
        """Return the network."""
        return Network(schema, self.config)
