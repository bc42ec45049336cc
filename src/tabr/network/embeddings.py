"""The input vector of a row, made of its numbers, binary columns and categories."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tabr.config import EmbeddingConfig
from tabr.device.random import dropout
from tabr.network.products import Linear, group_products
from tabr.network.rows import Rows
from tabr.tables.shape import DataShape

_GOLDEN = (math.sqrt(5) - 1) / 2  # its multiples spread evenly between whole numbers


class LinearReLU(nn.Module):
    """LR: each number times a vector of its own, plus a bias, then ReLU.

    Shape: (..., n_features) -> (..., n_features * width).
    """

    def __init__(self, n_features: int, width: int) -> None:
        """Draw weights and biases uniform within width ** -0.5."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_features, width))
        self.bias = nn.Parameter(torch.empty(n_features, width))
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -(width**-0.5), width**-0.5)

    def forward(self, num: Tensor) -> Tensor:
        """Return the embeddings of the numbers, joined feature by feature."""
        return (num[..., None] * self.weight + self.bias).relu().flatten(-2)


class Periodic(nn.Module):
    """The periodic part of PLR: [cos, sin] of 2 pi frequency x.

    Shape: (..., n_features) -> (..., n_features, 2 * n_frequencies).
    """

    def __init__(self, n_features: int, n_frequencies: int, scale: float) -> None:
        """Draw frequencies normal with standard deviation scale."""
        super().__init__()
        self.frequencies = nn.Parameter(torch.empty(n_features, n_frequencies))
        nn.init.normal_(self.frequencies, 0.0, scale)

    def forward(self, num: Tensor) -> Tensor:
        """Return cosines, then sines, of each number."""
        angle = 2 * math.pi * self.frequencies * num[..., None]
        return torch.cat([angle.cos(), angle.sin()], -1)


class PLR(nn.Module):
    """PLR: periodic, then a linear layer for each feature, then ReLU.

    Shape: (..., n_features) -> (..., n_features * width).
    """

    def __init__(self, n_features: int, config: EmbeddingConfig) -> None:
        """Draw the linear layers uniform within (their input width) ** -0.5."""
        super().__init__()
        d_in = 2 * config.n_frequencies
        self.periodic = Periodic(
            n_features, config.n_frequencies, config.frequency_scale
        )
        self.weight = nn.Parameter(torch.empty(n_features, d_in, config.width))
        self.bias = nn.Parameter(torch.empty(n_features, config.width))
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -(d_in**-0.5), d_in**-0.5)

    def forward(self, num: Tensor) -> Tensor:
        """Return the embeddings of the numbers, joined feature by feature."""
        periodic: Tensor = self.periodic(num)
        x = group_products(periodic, self.weight)  # (..., n_features, width)
        return (x + self.bias).relu().flatten(-2)


class PLRLite(nn.Module):
    """PLR with one linear layer shared by all features.

    Shape: (..., n_features) -> (..., n_features * width).
    """

    def __init__(self, n_features: int, config: EmbeddingConfig) -> None:
        """Make the shared linear layer as torch does by default."""
        super().__init__()
        self.periodic = Periodic(
            n_features, config.n_frequencies, config.frequency_scale
        )
        self.linear = Linear(2 * config.n_frequencies, config.width)

    def forward(self, num: Tensor) -> Tensor:
        """Return the embeddings of the numbers, joined feature by feature."""
        x: Tensor = self.linear(self.periodic(num))
        return x.relu().flatten(-2)


class OneHot(nn.Module):
    """Codes of categories -> booleans, one per level; a code of -1 is all False.

    Shape: (..., n_columns) -> (..., sum of cardinalities).
    """

    column: Tensor
    level: Tensor

    def __init__(self, cardinalities: tuple[int, ...]) -> None:
        """Remember for each output which column and level it stands for."""
        super().__init__()
        counts = torch.tensor(cardinalities, dtype=torch.int64)
        levels = [torch.arange(count) for count in cardinalities]
        column = torch.arange(len(counts)).repeat_interleave(counts)
        empty = torch.empty(0, dtype=torch.int64)
        self.register_buffer("column", column, persistent=False)
        self.register_buffer("level", torch.cat([empty, *levels]), persistent=False)

    def forward(self, cat: Tensor) -> Tensor:
        """Return whether each code is each level of its column."""
        return cat[..., self.column] == self.level


class ColumnDropout(nn.Module):
    """Draws the columns of the table that a training step does without.

    All rows of a step do without the same ones, so that distances stay comparable.
    """

    source: Tensor

    def __init__(
        self, shape: DataShape, embedding: EmbeddingConfig | None, rate: float
    ) -> None:
        """Remember for each number of the input vector which column it comes from."""
        super().__init__()
        self.rate = rate
        n_other = shape.n_bin + len(shape.cardinalities)
        own = range(shape.n_num + n_other)
        sources = torch.tensor(shape.sources or [*own], dtype=torch.int64)
        each = 1 if embedding is None else embedding_width(embedding)
        widths = [each] * shape.n_num + [1] * shape.n_bin + [*shape.cardinalities]
        source = sources.repeat_interleave(torch.tensor(widths, dtype=torch.int64))
        self.register_buffer("source", source, persistent=False)
        self.n_columns = 1 + int(sources.max()) if len(sources) else 0

    def forward(self, weight: Tensor) -> Tensor | None:
        """Return factors (d_in,) of the input vector; None keeps it as it is.

        The first layer's weight (d, d_in) is there for its type and member axis.
        """
        if not self.training or self.rate == 0.0:
            return None
        ones = torch.ones_like(weight.detach()[0, : self.n_columns])
        return dropout(ones, self.rate)[self.source]


class PBLD(nn.Module):
    """PBLD: cosines with phases, then linear for each feature, beside the number.

    Shape: (..., n_features) -> (..., n_features * width); the last of a feature's
    outputs is the number itself.
    """

    def __init__(self, n_features: int, config: EmbeddingConfig) -> None:
        """Draw frequencies, phases and linear layers as RealMLP does."""
        super().__init__()
        k, width = config.n_frequencies, config.width - 1
        self.frequencies = nn.Parameter(torch.empty(n_features, k))
        self.phases = nn.Parameter(torch.empty(n_features, k))
        self.weight = nn.Parameter(torch.empty(n_features, k, width))
        self.bias = nn.Parameter(torch.empty(n_features, width))
        nn.init.normal_(self.frequencies, 0.0, config.frequency_scale)
        nn.init.uniform_(self.phases, -math.pi, math.pi)
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -(k**-0.5), k**-0.5)

    def forward(self, num: Tensor) -> Tensor:
        """Embed the numbers and join the embeddings feature by feature."""
        angle = 2 * math.pi * self.frequencies * num[..., None] + self.phases
        x = group_products(angle.cos(), self.weight) + self.bias
        return torch.cat([x, num[..., None]], -1).flatten(-2)


class FixedPeriodic(nn.Module):
    """Cosines whose frequencies and phases stay as they are, beside the number.

    Frequencies are the quantiles of a normal distribution, phases spread evenly: they
    are the same in every network. What is linear after them is left to the layer that
    follows. Shape: (..., n_features) -> (..., n_features * (n_frequencies + 1)).
    """

    frequencies: Tensor
    phases: Tensor

    def __init__(self, n_features: int, config: EmbeddingConfig) -> None:
        """Choose frequencies and phases."""
        super().__init__()
        k = config.n_frequencies
        shares = (torch.arange(k, dtype=torch.float64) + 0.5) / (2 * k) + 0.5
        frequencies = config.frequency_scale * torch.special.ndtri(shares)
        steps = torch.arange(n_features * k, dtype=torch.float64) * _GOLDEN
        phases = 2 * math.pi * (steps % 1.0) - math.pi
        self.register_buffer("frequencies", frequencies.float(), persistent=False)
        phases = phases.view(n_features, k).float()
        self.register_buffer("phases", phases, persistent=False)

    def forward(self, num: Tensor) -> Tensor:
        """Embed the numbers and join the embeddings feature by feature."""
        angle = 2 * math.pi * self.frequencies * num[..., None] + self.phases
        return torch.cat([angle.cos(), num[..., None]], -1).flatten(-2)


class Bins(nn.Module):
    """Piecewise-linear encoding between quantiles of the normal distribution.

    An output says how far a number has come through its bin, 0 to 1; the first and
    the last bin have no end on their outer side.
    Shape: (..., n_features) -> (..., n_features * width).
    """

    low: Tensor
    high: Tensor
    least: Tensor
    most: Tensor

    def __init__(self, n_features: int, config: EmbeddingConfig) -> None:
        """Take bins of equal probability."""
        super().__init__()
        shares = torch.arange(1, config.width, dtype=torch.float64) / config.width
        inner = torch.special.ndtri(shares)
        ends = torch.tensor([-3.0, 3.0], dtype=torch.float64)
        edges = torch.cat([ends[:1], inner, ends[1:]]).float()
        self.register_buffer("low", edges[:-1], persistent=False)
        self.register_buffer("high", edges[1:], persistent=False)
        least, most = torch.zeros(config.width), torch.ones(config.width)
        least[0], most[-1] = -math.inf, math.inf
        self.register_buffer("least", least, persistent=False)
        self.register_buffer("most", most, persistent=False)

    def forward(self, num: Tensor) -> Tensor:
        """Embed the numbers and join the embeddings feature by feature."""
        share = (num[..., None] - self.low) / (self.high - self.low)
        return share.clamp(self.least, self.most).flatten(-2)


_EMBEDDINGS = {
    "plr": PLR,
    "plr-lite": PLRLite,
    "pbld": PBLD,
    "pbld-fixed": FixedPeriodic,
    "bins": Bins,
}


def make_embedding(n_features: int, config: EmbeddingConfig) -> nn.Module:
    """Return the embedding that the config names."""
    if config.kind == "lr":
        return LinearReLU(n_features, config.width)
    return _EMBEDDINGS[config.kind](n_features, config)


def is_fixed(shape: DataShape, embedding: EmbeddingConfig | None) -> bool:
    """Whether no training step changes input vectors."""
    if embedding is None or shape.n_num == 0:
        return True
    return embedding.kind in ("pbld-fixed", "bins")


def embedding_width(embedding: EmbeddingConfig | None) -> int:
    """Return the width of one number, embedded."""
    if embedding is None:
        return 1
    if embedding.kind == "pbld-fixed":
        return embedding.n_frequencies + 1
    return embedding.width


def input_width(shape: DataShape, embedding: EmbeddingConfig | None) -> int:
    """Return the width of input vectors."""
    return shape.width + shape.n_num * (embedding_width(embedding) - 1)


class InputVector(nn.Module):
    """Rows -> u, the input vector: numbers, binary columns, one-hot categories.

    Shape: rows (...) -> (..., width).
    """

    def __init__(self, shape: DataShape, embedding: EmbeddingConfig | None) -> None:
        """Embed numbers only where there are any."""
        super().__init__()
        self.embedding: nn.Module = nn.Identity()
        if embedding is not None and shape.n_num > 0:
            self.embedding = make_embedding(shape.n_num, embedding)
        self.one_hot = OneHot(shape.cardinalities)
        self.width = input_width(shape, embedding)

    def forward(self, rows: Rows) -> Tensor:
        """Return the parts of the input vector, joined."""
        num = self.embedding(rows.num)
        return torch.cat([num, rows.bin, self.one_hot(rows.cat).to(num.dtype)], -1)
