"""RealMLP with its tuned defaults, RealMLP-TD (Holzmüller et al., 2024).

An MLP in the neural tangent parametrisation on robustly scaled numbers and their
periodic embeddings, with a scale for each input, parametric activations and an
initialisation by training rows. Adam's learning rate goes up and down four times, and
dropout and weight decay fade in the second half, over a fixed number of epochs.

Scaling belongs to the method, so tables that others leave as they are are scaled too.

NOTE[DIFF]: the authors drop the last, smaller batch of an epoch; here it is used.
NOTE[DIFF]: of equal epochs the first is kept, and not the last.
NOTE[DIFF]: a value without a level is a zero embedding; the authors train one for it.
NOTE[DIFF]: the authors draw some choices of their space with unequal chances.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from tabr.bench.methods.base import Encoded, Floats, Setting, one_hot
from tabr.bench.methods.layers import CategoryVectors
from tabr.bench.methods.neural import NeuralMethod
from tabr.bench.methods.spaces import Joint, LogUniform, OneOf, Space
from tabr.metrics import Score
from tabr.network.rows import Rows
from tabr.tables.preprocessor import Arrays
from tabr.tables.shape import DataShape

NumberKind = Literal["none", "pl", "plr", "pbld"]
Activation = Literal["selu", "mish", "relu"]
ACTIVATIONS = {"selu": F.selu, "mish": F.mish, "relu": F.relu}
_ONE_HOT = 8  # levels, and the authors' ninth is for values without one
_CATEGORY_WIDTH = 8
_HIDDEN, _NUMBER_WIDTH = 16, 4  # of an embedded number
_ROWS = 10_000  # that the initialisation looks at


@dataclass(frozen=True)
class Config:
    """The shape of the network, its dropout, and the smoothing of its labels.

    `numbers` tells how they are embedded, `frequency_scale` is the standard deviation
    of the initial frequencies, and with `has_scale` each input has a scale of its own.
    """

    activation: Activation
    numbers: NumberKind = "pbld"
    frequency_scale: float = 0.1
    has_scale: bool = True
    n_layers: int = 3
    width: int = 256
    dropout: float = 0.15
    label_smoothing: float = 0.1


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
        """Return a scaler by medians and quartiles; a constant column becomes zero."""
        nothing = np.zeros(0)
        columns = cls(cardinalities, nothing, nothing)._columns(arrays)
        quantiles = np.quantile(columns.T.copy(), [0.25, 0.5, 0.75, 0, 1], axis=1)
        low, center, high, least, most = quantiles.astype(np.float64)
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
        """The cardinalities of the columns to be embedded."""
        return tuple(n for n in self.cardinalities if n > _ONE_HOT)

    @property
    def _is_large(self) -> NDArray[np.bool_]:
        return np.array(self.cardinalities, dtype=np.int64) > _ONE_HOT

    def _columns(self, arrays: Arrays) -> NDArray[np.float32]:
        small = [n for n in self.cardinalities if n <= _ONE_HOT]
        codes = arrays.cat[:, ~self._is_large]
        return one_hot(replace(arrays, cat=codes), small)


# --- the network ----------------------------------------------------------------------


class Numbers(nn.Module):
    """Embeddings of numbers by waves: (b, p) -> (b, width).

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
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d_in, d_out))
        self.bias = nn.Parameter(torch.zeros(d_out))

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output."""
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
    """A linear layer, a parametric activation and dropout.

    It begins with the activation itself; a share of zero would be the identity.
    """

    def __init__(self, d_in: int, d_out: int, activation: Activation) -> None:
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

    def __init__(self, schema: DataShape, config: Config) -> None:
        """Make the layers; `adapt` sets what depends on rows."""
        super().__init__()
        self.numbers: Numbers | None = None
        n_num, n_categories = schema.n_num, len(schema.cardinalities)
        d_in = n_num + schema.n_bin + _CATEGORY_WIDTH * n_categories
        if config.numbers != "none" and n_num > 0:
            self.numbers = Numbers(n_num, config.numbers, config.frequency_scale)
            d_in += self.numbers.width - n_num
        self.categories = CategoryVectors(schema.cardinalities, _CATEGORY_WIDTH)
        nn.init.normal_(self.categories.weight)
        self.scale = nn.Parameter(torch.ones(d_in)) if config.has_scale else None
        widths = [d_in] + [config.width] * config.n_layers
        self.blocks = nn.ModuleList(
            Block(width_in, width_out, config.activation)
            for width_in, width_out in itertools.pairwise(widths)
        )
        self.output = Linear(widths[-1], max(1, schema.n_classes))

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
        x = torch.cat([num, rows.bin, self.categories(rows.cat).flatten(1)], 1)
        return x if self.scale is None else x * self.scale


# --- the optimizer --------------------------------------------------------------------


def four_cycles(time: Tensor) -> Tensor:
    """Return the learning rate's factor at a time from 0 to 1: four ups and downs.

    Each takes twice as long as the one before.
    """
    return 0.5 - 0.5 * (2 * math.pi * (1 + 15 * time).log2()).cos()


def flat_then_cosine(time: Tensor) -> Tensor:
    """Return one in the first half of the time, then a cosine down to zero."""
    return 0.5 + 0.5 * (math.pi * (2 * time - 1).clamp_min(0)).cos()


class ScheduledAdam:
    """Adam, and decay of what is not a bias, by rates that change with each step.

    Each kind of parameter has its own multiple of the learning rate. The device holds
    the time and the rates, so that a CUDA graph can repeat a step.
    """

    def __init__(
        self, network: Network, learning_rate: float, weight_decay: float, n_steps: int
    ) -> None:
        self.rates = learning_rate, weight_decay
        groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
        for name, parameter in network.named_parameters():
            groups.setdefault(_group(name), []).append(parameter)
        device = next(network.parameters()).device
        self.n_steps, self.step_number = n_steps, torch.zeros((), device=device)
        self.factors = list(groups)
        self.adam = torch.optim.Adam(
            [
                {"params": parameters, "lr": torch.zeros((), device=device)}
                for parameters in groups.values()
            ],
            betas=(0.9, 0.95),
            fused=device.type in ("cpu", "cuda"),
            capturable=device.type == "cuda",
        )

    @property
    def time(self) -> Tensor:
        """The share of the training that is done, from 0 to 1."""
        return self.step_number / self.n_steps

    @torch.no_grad()
    def step(self) -> None:
        """Apply the gradients."""
        learning_rate, weight_decay = self.rates
        rate = learning_rate * four_cycles(self.time)
        decay = weight_decay * flat_then_cosine(self.time)
        groups = zip(self.adam.param_groups, self.factors, strict=True)
        for group, (factor, decays) in groups:
            group["lr"].copy_(factor * rate)
            if decays:
                torch._foreach_mul_(group["params"], 1 - factor * rate * decay)
        self.adam.step()
        self.step_number.add_(1)


def _group(name: str) -> tuple[float, bool]:
    """Return a parameter's multiple of the learning rate, and whether it decays."""
    module, _, kind = name.rpartition(".")
    if module == "numbers":
        return 0.1, True
    if kind == "bias":
        return 0.1, False
    return {"scale": 6.0, "share": 0.1}.get(kind, 1.0), True


# --- the method -----------------------------------------------------------------------


class RealMLP(NeuralMethod):
    """A well-tempered MLP; learning rate and activation default by the outcome.

    Without them the learning rate is 0.2 for numbers and 0.04 for classes, and the
    activation is Mish or SELU.
    """

    config_type = Config
    normalization = "none"
    has_batches = False  # the authors have one size for all tables
    training_defaults = replace(NeuralMethod.training_defaults, weight_decay=0.02)
    search_space: ClassVar[Space] = {
        "layers": Joint(
            {
                "3 x 256": {"n_layers": 3, "width": 256},
                "5 x 64": {"n_layers": 5, "width": 64},
                "1 x 512": {"n_layers": 1, "width": 512},
            }
        ),
        "numbers": OneOf(["none", "pbld", "pl", "plr"]),
        "frequency_scale": LogUniform(0.05, 0.5),
        "has_scale": OneOf([True, False]),
        "activation": OneOf(["relu", "selu", "mish"]),
        "dropout": OneOf([0.0, 0.15, 0.3]),
        "label_smoothing": OneOf([0.0, 0.1]),
        "learning_rate": LogUniform(0.02, 0.3),
        "weight_decay": OneOf([0.0, 0.02]),
    }

    network: Network
    scaler: Scaler
    adam: ScheduledAdam
    bounds: tuple[Tensor, Tensor]  # of the training labels

    def __init__(
        self, setting: Setting, seed: int, *, max_epochs: int = 256, **params: Any
    ) -> None:
        """Keep the parameters; all epochs are run, and the best is kept."""
        if setting.outcome == "regression":
            defaults = {"learning_rate": 0.2, "activation": "mish"}
        else:
            defaults = {"learning_rate": 0.04, "activation": "selu"}
        params = {**defaults, **params, "patience": max_epochs}
        super().__init__(setting, seed, max_epochs=max_epochs, **params)
        self.n_epochs = max_epochs

    def build(self, schema: DataShape) -> nn.Module:
        """Return the network, initialised by training rows, and make its optimizer."""
        self.bounds = self.labels.min(), self.labels.max()
        schema = replace(schema, cardinalities=self.scaler.large)
        network = Network(schema, self.config).to(self.device)
        some = torch.randperm(self.rows.n_rows)[:_ROWS].to(self.device)
        network.adapt(self.rows.take(some))
        training = self.training
        n_steps = self.n_epochs * math.ceil(self.rows.n_rows / training.batch_size)
        rates = training.learning_rate, training.weight_decay
        self.adam = ScheduledAdam(network, *rates, n_steps)
        return network

    def optimizer(self) -> ScheduledAdam:
        """Return the optimizer of the network."""
        return self.adam

    def loss(self, index: Tensor) -> Tensor:
        """Return the mean loss of the training rows at index (b,), labels smoothed."""
        dropout = self.config.dropout * flat_then_cosine(self.adam.time)
        output = self.network(self.rows.take(index), dropout)
        labels = self.labels[index]
        if self.task == "regression":
            return F.mse_loss(output.squeeze(1), labels)
        smoothing = self.config.label_smoothing
        return F.cross_entropy(output, labels, label_smoothing=smoothing)

    def outputs(self, rows: Rows) -> Tensor:
        """Return the outputs for rows; values stay within those of training."""
        output: Tensor = self.network(rows)
        if self.task == "regression":
            return output.clamp(*self.bounds)
        return self.outputs_of(output)

    def _fit(self, train: Encoded, val: Encoded, score: Score) -> None:
        self.scaler = Scaler.fit(train.arrays, self.preprocessor.cardinalities)
        train, val = (
            Encoded(self.scaler(part.arrays), part.labels) for part in (train, val)
        )
        super()._fit(train, val, score)

    def _predict(self, arrays: Arrays) -> Floats:
        return super()._predict(self.scaler(arrays))
