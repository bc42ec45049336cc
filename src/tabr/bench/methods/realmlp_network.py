"""The network of RealMLP and how its columns are scaled (Holzmüller et al., 2024)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from tabr.network.rows import Rows
from tabr.tables.preprocessor import Arrays

NumberKind = Literal["none", "pl", "plr", "pbld"]
Activation = Literal["selu", "mish", "relu"]
ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "selu": F.selu,
    "mish": F.mish,
    "relu": F.relu,
}
_ONE_HOT = 8  # levels, and the authors' ninth is for values without one
_CATEGORY_WIDTH = 8
_HIDDEN, _NUMBER_WIDTH = 16, 4  # of an embedded number


@dataclass(frozen=True)
class Shape:
    """What a user chooses of the network.

    Attributes:
        numbers: How numbers are embedded.
        frequency_scale: Standard deviation of the initial frequencies.
        has_scale: Whether each input has a scale of its own.
        n_layers: Hidden layers.
        width: Their width.
        activation: What follows each of them.
    """

    numbers: NumberKind
    frequency_scale: float
    has_scale: bool
    n_layers: int
    width: int
    activation: Activation


@dataclass(frozen=True)
class Scaler:
    """Robust scaling and smooth clipping of all columns but those to be embedded.

    A column becomes z = (x - median) / interquartile range, then z / sqrt(1 + z^2 / 9),
    which lies within 3 of zero. Where the quartiles are equal, half the range stands
    for their distance. Columns with few levels are one-hot first, and go with `bin`.
    """

    cardinalities: tuple[int, ...]  # of all categorical columns
    center: NDArray[np.float64]  # (p + q,)
    factor: NDArray[np.float64]  # (p + q,)

    @classmethod
    def fit(cls, arrays: Arrays, cardinalities: tuple[int, ...]) -> Self:
        """Learn medians and quartiles; a constant column becomes zero."""
        nothing = np.zeros(0)
        columns = cls(cardinalities, nothing, nothing)._columns(arrays)
        low, center, high, least, most = np.array(
            [np.quantile(column, [0.25, 0.5, 0.75, 0, 1]) for column in columns.T],
            dtype=np.float64,
        ).reshape(-1, 5).T  # fmt: skip
        width = np.where(high > low, high - low, (most - least) / 2)
        factor = np.divide(1, width, out=np.zeros_like(width), where=width > 0)
        return cls(cardinalities, center, factor)

    def __call__(self, arrays: Arrays) -> Arrays:
        """Return scaled numbers, scaled flags with one-hot levels, and other codes."""
        z = self.factor * (self._columns(arrays) - self.center)
        clipped = (z / np.sqrt(1 + (z / 3) ** 2)).astype(np.float32)
        num, flags = np.split(clipped, [arrays.num.shape[1]], axis=1)
        return Arrays(num, flags, arrays.cat[:, self._is_large])

    @property
    def large(self) -> tuple[int, ...]:
        """Return the cardinalities of the columns to be embedded."""
        return tuple(n for n in self.cardinalities if n > _ONE_HOT)

    @property
    def _is_large(self) -> NDArray[np.bool_]:
        return np.array(self.cardinalities, dtype=np.int64) > _ONE_HOT

    def _columns(self, arrays: Arrays) -> NDArray[np.float32]:
        hot = [
            arrays.cat[:, [column]] == np.arange(n_levels)
            for column, n_levels in enumerate(self.cardinalities)
            if n_levels <= _ONE_HOT
        ]
        parts: list[NDArray[Any]] = [arrays.num, arrays.bin, *hot]
        return np.concatenate(parts, axis=1, dtype=np.float32)


class Numbers(nn.Module):
    """Embeds each number by waves: (b, p) -> (b, width).

    "pl" is [cos, sin] and a linear layer for each column, "plr" the same with ReLU;
    "pbld" is cosines with phases and a linear layer, and the number beside them.
    """

    def __init__(self, n_num: int, kind: NumberKind, scale: float) -> None:
        """Draw frequencies normal with standard deviation scale."""
        super().__init__()
        self.has_phase, self.has_relu = kind == "pbld", kind == "plr"
        n_waves = _HIDDEN if self.has_phase else _HIDDEN // 2
        d_out = _NUMBER_WIDTH - 1 if self.has_phase else _NUMBER_WIDTH
        self.frequency = nn.Parameter(scale * torch.randn(n_num, n_waves))
        self.weight = nn.Parameter(torch.empty(n_num, _HIDDEN, d_out))
        self.bias = nn.Parameter(torch.empty(n_num, d_out))
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -(_HIDDEN**-0.5), _HIDDEN**-0.5)
        if self.has_phase:
            phase = torch.empty(n_num, n_waves).uniform_(-math.pi, math.pi)
            self.phase = nn.Parameter(phase)
        self.width = n_num * _NUMBER_WIDTH

    def forward(self, num: Tensor) -> Tensor:
        """Return the embeddings of all columns, joined."""
        angle = 2 * math.pi * num[..., None] * self.frequency
        if self.has_phase:
            wave = (angle + self.phase).cos()
        else:
            wave = torch.cat([angle.cos(), angle.sin()], -1)
        x = torch.einsum("bph,phd->bpd", wave, self.weight) + self.bias
        x = (x.relu() if self.has_relu else x).flatten(1)
        return torch.cat([x, num], 1) if self.has_phase else x


class Linear(nn.Module):
    """A linear layer in the neural tangent parametrisation: x W / sqrt(width) + b."""

    def __init__(self, d_in: int, d_out: int) -> None:
        """Draw weights normal; `adapt` does the rest."""
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d_in, d_out))
        self.bias = nn.Parameter(torch.zeros(d_out))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        return torch.addmm(self.bias, x, self.weight, alpha=len(self.weight) ** -0.5)

    @torch.no_grad()
    def adapt(self, x: Tensor) -> None:
        """Give outputs for x (n, d_in) variance one, and put kinks among the rows.

        Minus a bias is a random mean of what five random rows give.
        """
        self.bias.zero_()
        std = self(x).std(0, correction=0)
        self.weight.div_(torch.where(std > 1e-6, std, 1.0))
        out = self(x)
        some = torch.randint(len(x), (5, out.shape[1])).to(x.device)
        share = torch.empty(5, out.shape[1]).exponential_().to(x.device)
        self.bias.copy_(-(out.gather(0, some) * share / share.sum(0)).sum(0))


class Block(nn.Module):
    """A linear layer, a parametric activation and dropout."""

    def __init__(self, d_in: int, d_out: int, activation: Activation) -> None:
        """Begin with the activation itself; a share of zero would be the identity."""
        super().__init__()
        self.linear = Linear(d_in, d_out)
        self.activation = ACTIVATIONS[activation]
        self.share = nn.Parameter(torch.ones(d_out))

    def forward(self, x: Tensor, dropout: Tensor | None = None) -> Tensor:
        """Return the block's output; dropout is a scalar that a device may hold."""
        x = self.linear(x)
        x = x + self.share * (self.activation(x) - x)
        if dropout is None:
            return x
        return x * (torch.rand_like(x) >= dropout) / (1 - dropout)


class Network(nn.Module):
    """Rows (b) as a scaler gives them -> outputs (b, n_outputs)."""

    offset: Tensor

    def __init__(
        self,
        n_num: int,
        n_bin: int,
        cardinalities: tuple[int, ...],
        n_outputs: int,
        shape: Shape,
    ) -> None:
        """Make the layers; `adapt` sets what depends on rows."""
        super().__init__()
        self.numbers: Numbers | None = None
        d_in = n_num + n_bin + _CATEGORY_WIDTH * len(cardinalities)
        if shape.numbers != "none" and n_num > 0:
            self.numbers = Numbers(n_num, shape.numbers, shape.frequency_scale)
            d_in += self.numbers.width - n_num
        table = torch.randn(sum(cardinalities), _CATEGORY_WIDTH)
        self.categories = nn.Parameter(table) if cardinalities else None
        ends = torch.tensor((0, *cardinalities)).cumsum(0)
        self.register_buffer("offset", ends[:-1], persistent=False)
        self.scale = nn.Parameter(torch.ones(d_in)) if shape.has_scale else None
        widths = [d_in] + [shape.width] * shape.n_layers
        self.blocks = nn.ModuleList(
            Block(width_in, width_out, shape.activation)
            for width_in, width_out in itertools.pairwise(widths)
        )
        self.output = Linear(widths[-1], n_outputs)

    def forward(self, rows: Rows, dropout: Tensor | None = None) -> Tensor:
        """Return values or logits."""
        x = self._input(rows)
        for block in self.blocks:
            x = block(x, dropout)
        out: Tensor = self.output(x)
        return out

    @torch.no_grad()
    def adapt(self, rows: Rows) -> None:
        """Set weights and biases, layer by layer, by what the rows become."""
        x = self._input(rows)
        for block in self.blocks:
            assert isinstance(block, Block)
            block.linear.adapt(x)
            x = block(x)
        self.output.adapt(x)

    def _input(self, rows: Rows) -> Tensor:
        num = rows.num if self.numbers is None else self.numbers(rows.num)
        parts = [num, rows.bin]
        if self.categories is not None:
            known = (rows.cat >= 0)[..., None]  # others are zero
            codes = rows.cat.clamp_min(0) + self.offset
            parts.append((self.categories[codes] * known).flatten(1))
        x = torch.cat(parts, 1)
        return x if self.scale is None else x * self.scale
