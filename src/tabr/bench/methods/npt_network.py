"""The network of NPT: attention between rows, then between columns, and so on.

A table with holes comes in, labels among its columns, and the same table without holes
comes out (Kossen et al., 2021). As in the official code, keys and values are made of
what was not normalised, scores are scaled by the whole width and not that of a head,
and the shortcut around an attention is a linear layer.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabr.bench.methods.ft_transformer import CategoryVectors
from tabr.bench.methods.saint_network import attend_to_context

NORM_EPSILON = 1e-12


class Cells(NamedTuple):
    """Rows of a table with holes.

    Shapes: number (n, p), code (n, r), hole (n, p + r), in this order. What stands in a
    hole is of no importance.
    """

    number: Tensor
    code: Tensor
    hole: Tensor

    def and_then(self, others: Cells) -> Cells:
        """Return these rows, followed by the others."""
        return Cells(*(torch.cat(parts) for parts in zip(self, others, strict=True)))


def with_more_holes(
    cells: Cells, chance: Tensor, noise: Tensor, n_levels: Tensor
) -> tuple[Cells, Tensor]:
    """Choose cells by chance, hide them or, some of them, replace them at random.

    Args:
        cells: The table as it is.
        chance: How often a cell of each column (t,) is chosen.
        noise: How often a chosen one is replaced: by a normal number, or any level.
        n_levels: Levels of the columns of codes (r,).

    Returns:
        The table with holes, and who was chosen (n, t).
    """
    draws = torch.rand(2, *cells.hole.shape, device=cells.hole.device)
    chosen = (draws[0] < chance) & ~cells.hole
    wrong = draws[1] < noise
    n_numbers = cells.number.shape[1]
    replaced = chosen & wrong
    noisy = torch.randn_like(cells.number)
    number = torch.where(replaced[:, :n_numbers], noisy, cells.number)
    levels = torch.rand(cells.code.shape, device=cells.code.device) * n_levels
    code = torch.where(replaced[:, n_numbers:], levels.long(), cells.code)
    return Cells(number, code, cells.hole | (chosen & ~wrong)), chosen


class Block(nn.Module):
    """Attention between rows (n, width), or columns (n, t, width), and a layer."""

    def __init__(self, width: int, n_heads: int, dropout: float) -> None:
        """Make the layers as torch does by default."""
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=NORM_EPSILON)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.mix = nn.Linear(width, width)
        self.shortcut = nn.Linear(width, width)
        self.layers = nn.Sequential(
            nn.LayerNorm(width, eps=NORM_EPSILON),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )
        self.dropout = nn.Dropout(dropout)
        self.n_heads, self.scale = n_heads, width**-0.5

    def forward(self, x: Tensor, n_context: int | None) -> Tensor:
        """Attend between columns; if there is a context, between rows."""
        query, key, value = (
            part.unflatten(-1, (self.n_heads, -1)).transpose(-2, -3)
            for part in (self.query(self.norm(x)), self.key(x), self.value(x))
        )  # (..., heads, n or t, d)
        dropout = self.dropout.p if self.training else 0.0
        if n_context is None:
            mixed = F.scaled_dot_product_attention(
                query, key, value, dropout_p=dropout, scale=self.scale
            )
        else:
            query = query * self.scale
            mixed = attend_to_context(query, key, value, n_context, dropout)
        mixed = self.mix(mixed.transpose(-2, -3).flatten(-2))
        x = self.shortcut(x) + self.dropout(mixed)
        out: Tensor = x + self.layers(x)
        return out


class Tokens(nn.Module):
    """Cells (n) -> tokens (n, t, width), numbers first."""

    def __init__(
        self, n_numbers: int, cardinalities: tuple[int, ...], width: int
    ) -> None:
        """Draw as torch does for a linear layer of each column, and normal vectors."""
        super().__init__()
        n_codes = len(cardinalities)
        self.shape = n_numbers, n_codes
        self.number = nn.Parameter(torch.empty(n_numbers, 2, width))  # and the hole
        self.level = CategoryVectors(cardinalities, width)
        self.no_level = nn.Parameter(torch.empty(n_codes, width))
        self.bias = nn.Parameter(torch.empty(n_numbers + n_codes, width))
        self.place = nn.Parameter(torch.empty(n_numbers + n_codes, width))
        both = n_numbers > 0 and n_codes > 0  # else the kind would tell nothing
        self.kind = nn.Parameter(torch.empty(2 if both else 0, width))
        counts = torch.tensor(cardinalities, dtype=torch.int64)
        bounds = (counts + 1.0) ** -0.5  # a hole is one level more
        every = torch.cat([torch.full((n_numbers,), 2**-0.5), bounds])
        nn.init.uniform_(self.number, -(2**-0.5), 2**-0.5)
        for parameter, bound in (
            (self.level.weight, bounds.repeat_interleave(counts)),
            (self.no_level, bounds),
            (self.bias, every),
        ):
            nn.init.uniform_(parameter, -1.0, 1.0)
            parameter.data *= bound[:, None]
        nn.init.normal_(self.place)
        nn.init.normal_(self.kind)

    def forward(self, cells: Cells) -> Tensor:
        """Make a token of each cell."""
        hole, no_level = cells.hole[..., None].split([*self.shape], 1)
        known = cells.number[..., None].masked_fill(hole, 0)
        numbers = known * self.number[:, 0] + hole * self.number[:, 1]
        levels = self.level(cells.code.masked_fill(no_level[..., 0], -1))
        levels = levels + no_level * self.no_level
        tokens = torch.cat([numbers, levels], 1) + self.bias + self.place
        if len(self.kind) == 0:
            return tokens
        kinds = zip(self.kind, self.shape, strict=True)
        return tokens + torch.cat([kind.expand(n, -1) for kind, n in kinds])


class Answers(nn.Module):
    """Tokens (n, t, width) -> numbers (n, p) and log-probabilities (n, r, levels).

    Columns with fewer levels than others have some that are impossible.
    """

    place: Tensor
    impossible: Tensor

    def __init__(
        self, n_numbers: int, cardinalities: tuple[int, ...], width: int
    ) -> None:
        """Draw as torch does for a linear layer of each column."""
        super().__init__()
        n_levels = sum(cardinalities)
        self.number = nn.Parameter(torch.empty(n_numbers, width))
        self.number_bias = nn.Parameter(torch.empty(n_numbers))
        self.level = nn.Parameter(torch.empty(n_levels, width))
        self.level_bias = nn.Parameter(torch.empty(n_levels))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(width**-0.5), width**-0.5)
        counts = torch.tensor(cardinalities, dtype=torch.int64)
        most = max(cardinalities, default=0)
        impossible = torch.arange(most) >= counts[:, None]  # (r, most)
        place = (~impossible).flatten().nonzero().squeeze(1)
        self.register_buffer("place", place, persistent=False)
        self.register_buffer("impossible", impossible, persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Read all columns."""
        n_numbers = len(self.number)
        numbers = (x[:, :n_numbers] * self.number).sum(-1) + self.number_bias
        shape = self.impossible.shape
        if shape[0] == 0:
            return numbers, x.new_empty(len(x), 0, 0)
        weight = self.level.new_zeros(shape.numel(), x.shape[-1])
        weight = weight.index_copy(0, self.place, self.level).view(*shape, -1)
        bias = self.level_bias.new_full((shape.numel(),), -torch.inf)
        bias = bias.index_copy(0, self.place, self.level_bias).view(*shape)
        logits = (x[:, n_numbers:].transpose(0, 1) @ weight.mT).transpose(0, 1)
        return numbers, (logits + bias).log_softmax(-1)


def cell_losses(numbers: Tensor, levels: Tensor, truth: Cells) -> Tensor:
    """Return squares of errors, then minus log-probabilities: a loss a cell (n, t)."""
    squares = (numbers - truth.number).square()
    if truth.code.shape[1] == 0:
        return squares
    own = levels.gather(2, truth.code.clamp_min(0)[..., None]).squeeze(2)
    return torch.cat([squares, -own], 1)


class Network(nn.Module):
    """Cells of rows, the last of which are the context -> answers of all rows."""

    def __init__(
        self,
        n_numbers: int,
        cardinalities: tuple[int, ...],
        n_layers: int,
        width: int,
        n_heads: int,
        dropout: float,
    ) -> None:
        """Begin with attention between rows, whose width is that of all tokens."""
        super().__init__()
        n_columns = n_numbers + len(cardinalities)
        self.tokens = Tokens(n_numbers, cardinalities, width)
        self.blocks = nn.ModuleList(
            Block(width if number % 2 else n_columns * width, n_heads, dropout)
            for number in range(n_layers)
        )
        self.answers = Answers(n_numbers, cardinalities, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, cells: Cells, n_context: int) -> tuple[Tensor, Tensor]:
        """Return numbers (n, p) and log-probabilities (n, r, levels)."""
        x = self.dropout(self.tokens(cells))
        shape = x.shape
        for number, block in enumerate(self.blocks):
            if number % 2:
                x = block(x.view(shape), None)
            else:
                x = block(x.flatten(1), n_context)
        out: tuple[Tensor, Tensor] = self.answers(self.dropout(x.view(shape)))
        return out
