"""Deep kernel learning, DKL (Wilson et al., 2016).

A multilayer perceptron maps a row to two numbers, scaled into a square, and a Gaussian
process on that square gives the label. All parameters, the network's and the kernel's,
maximise the marginal likelihood of the training labels. Each step takes all rows, so
that a step is an epoch; early stopping decides by the mean prediction.

The model, its kernels and where they begin are those of GPyTorch's example of DKL,
which the paper's runs followed: a constant mean, a kernel that is a product over the
two axes ("rbf", or "sm", the spectral mixture), noise of variance 1e-4 and more.

NOTE[DIFF]: there the kernel is interpolated on a grid (KISS-GP), systems are solved by
conjugate gradients up to a tolerance, and the determinant is estimated from random
vectors. Here the grid is one of inducing points along each axis: the kernel is of low
rank, and for it everything is exact, in double precision and without chance. So the
library is not needed; the tests compare with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabr.bench.methods import mlp
from tabr.bench.methods.base import Encoded, check_minimum
from tabr.bench.methods.neural import NeuralMethod
from tabr.bench.methods.spaces import Integer, OneOf, Space, Uniform, ZeroOr, rates
from tabr.errors import ParameterError
from tabr.metrics import Score
from tabr.network.rows import Rows
from tabr.tables.shape import DataShape

Kernel = Literal["rbf", "sm"]
EDGE = 0.95  # features lie between -EDGE and EDGE
MIN_NOISE = 1e-4
N_MIXTURES = 4
JITTER = 1e-8


@dataclass(frozen=True)
class Config(mlp.Config):
    """The shape of the perceptron, and the kernel.

    A grid has `grid_size` inducing points along each of the two axes. Forty do for
    lengths of 0.1 and more on a square whose side is 1.9.
    """

    kernel: Kernel = "rbf"
    grid_size: int = 40

    def __post_init__(self) -> None:
        """Check the kernel and its grid."""
        super().__post_init__()
        check_minimum(2, grid_size=self.grid_size)
        if self.kernel not in ("rbf", "sm"):
            raise ParameterError(
                f"kernel must be 'rbf' or 'sm', however: {self.kernel!r}"
            )


class Square(nn.Module):
    """Features (n, 2) scaled into a square, by the range of all their values.

    The range is that of the last step of training, dropout and all, as it is the one
    that the kernel was learned with. Values outside go to the edge.
    """

    range: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("range", torch.tensor([-1.0, 1.0]))

    def forward(self, x: Tensor) -> Tensor:
        """Return scaled features; in training, keep their range."""
        if self.training:
            low, high = x.min(), x.max()
            self.range.copy_(torch.stack([low, high]).detach())
        else:
            low, high = self.range
            x = x.clamp(low, high)
        return ((x - low) * (2 / (high - low)) - 1) * EDGE


class RBF(nn.Module):
    """Differences (..., 2) along the axes -> the kernel's factors (..., 2).

    All begins at softplus(0), as in GPyTorch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.raw_scale = nn.Parameter(torch.zeros(()))
        self.raw_length = nn.Parameter(torch.zeros(2))

    def forward(self, difference: Tensor) -> Tensor:
        """Return the factor of each axis; each has the scale, as on GPyTorch's grid."""
        scaled = difference / F.softplus(self.raw_length)
        return F.softplus(self.raw_scale) * (-scaled.square() / 2).exp()


class SpectralMixture(nn.Module):
    """Differences (..., 2) along the axes -> the kernel's factors (..., 2).

    All begins at softplus(0), as in GPyTorch. Its four components begin alike, so their
    gradients are alike and they stay so: this is one of fourfold weight.
    """

    def __init__(self) -> None:
        super().__init__()
        self.raw_scale = nn.Parameter(torch.zeros(()))
        self.raw_weight = nn.Parameter(torch.zeros(()))
        self.raw_frequency = nn.Parameter(torch.zeros(2))
        self.raw_width = nn.Parameter(torch.zeros(2))

    def forward(self, difference: Tensor) -> Tensor:
        """Return the factor of each axis; each has the scale and the weight."""
        turns = 2 * math.pi * difference
        decay = (-(turns * F.softplus(self.raw_width)).square() / 2).exp()
        wave = (turns * F.softplus(self.raw_frequency)).cos()
        weight = N_MIXTURES * F.softplus(self.raw_weight)
        return F.softplus(self.raw_scale) * weight * decay * wave


def kernel_root(kernel: nn.Module, features: Tensor, grid_size: int) -> Tensor:
    """Return R (n, r), where R R^T is the kernel matrix of features (n, 2).

    Along each axis it is the kernel of a grid's points, carried to the places between
    them (Nystroem); the roots of the two axes are multiplied in all pairs.
    """
    grid = torch.linspace(
        -EDGE, EDGE, grid_size, dtype=features.dtype, device=features.device
    )
    grid = grid[:, None].expand(-1, 2)
    between = kernel(grid[:, None] - grid).permute(2, 0, 1)  # (2, g, g)
    to_grid = kernel(grid[:, None] - features).permute(2, 0, 1)  # (2, g, n)
    factor = _factor(between + JITTER * _eye_like(between))
    roots: Tensor = torch.linalg.solve_triangular(factor, to_grid, upper=False)
    first, second = roots.mT.unbind()
    return (first[:, :, None] * second[:, None]).flatten(1)


class Posterior(NamedTuple):
    """The training rows as predictions need them: weights (r,) and a constant."""

    weights: Tensor
    mean: Tensor


class Process(nn.Module):
    """Labels of a Gaussian process: constant mean, kernel matrix R R^T, noise."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(()))
        self.raw_noise = nn.Parameter(torch.zeros(()))

    def loss(self, root: Tensor, labels: Tensor) -> Tensor:
        """Return minus the log likelihood of labels (n,), divided by n."""
        noise, error, factor, projected = self._solved(root, labels)
        square = error.square().sum() / noise - projected.square().sum()
        log_determinant = 2 * factor.diagonal().log().sum() + len(error) * noise.log()
        total = square + log_determinant + len(error) * math.log(2 * math.pi)
        return total / (2 * len(error))

    def posterior(self, root: Tensor, labels: Tensor) -> Posterior:
        """Return the process given labels (n,) of rows with this root (n, r)."""
        _, _, factor, projected = self._solved(root, labels)
        weights = torch.linalg.solve_triangular(factor.mT, projected, upper=True)
        return Posterior(weights.squeeze(-1), self.mean.double())

    def _solved(
        self, root: Tensor, labels: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the noise s, errors e (n,), and L (r, r) and b (r, 1).

        The kernel matrix with noise is R R^T + s I. Its inverse and determinant come
        from L L^T = I + R^T R / s and b = L^-1 R^T e / s.
        """
        noise = F.softplus(self.raw_noise.double()) + MIN_NOISE
        error = labels - self.mean
        square = root.mT @ root / noise
        factor = _factor(_eye_like(square) + square)
        product = root.mT @ error[:, None] / noise
        projected = torch.linalg.solve_triangular(factor, product, upper=False)
        return noise, error, factor, projected


def _eye_like(matrix: Tensor) -> Tensor:
    return torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def _factor(matrix: Tensor) -> Tensor:
    """Return Cholesky factors (..., r, r); nan where there is none."""
    # So the training loop reports it, and no step waits for the device.
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(matrix)
    return factor.masked_fill(failed[..., None, None] > 0, math.nan)


class Network(nn.Module):
    """Rows (n) -> features (n, 2) -> a root (n, r) of their kernel matrix."""

    def __init__(self, schema: DataShape, config: Config) -> None:
        super().__init__()
        to_plane = replace(schema, task="classes", n_classes=2)  # two outputs
        self.perceptron = mlp.perceptron(to_plane, config)
        self.square = Square()
        self.kernel = RBF() if config.kernel == "rbf" else SpectralMixture()
        self.process = Process()
        self.grid_size = config.grid_size

    def root(self, rows: Rows) -> Tensor:
        """Return R (n, r) of the rows, in double precision."""
        features: Tensor = self.square(self.perceptron(rows))
        return kernel_root(self.kernel, features.double(), self.grid_size)


class DKL(NeuralMethod):
    """A Gaussian process on the features that a multilayer perceptron makes of rows."""

    config_type = Config
    outcomes = ("regression",)
    has_batches = False  # all rows are one
    captures = False  # one step an epoch: nothing to be gained
    training_defaults = replace(NeuralMethod.training_defaults, learning_rate=0.005)
    search_space: ClassVar[Space] = {
        "kernel": OneOf(["rbf", "sm"]),
        "n_layers": Integer(1, 4),
        "width": Integer(64, 768),
        "dropout": ZeroOr(Uniform(0.0, 0.5)),
        **rates((1e-5, 1e-2), max_decay=1e-3),
    }
    published_names: ClassVar[Mapping[str, str]] = {
        "kernel": "kernel",
        "n_layers": "mlp.n_blocks",
        "width": "mlp.d_layer",
        "dropout": "mlp.dropout",
        "learning_rate": "lr",
        "weight_decay": "weight_decay",
        "patience": "patience",
    }

    network: Network
    posterior: Posterior

    def build(self, schema: DataShape) -> nn.Module:
        """Return the network."""
        return Network(schema, self.config)

    def _fit(self, train: Encoded, val: Encoded, score: Score) -> None:
        self.training = replace(self.training, batch_size=train.n_rows)
        super()._fit(train, val, score)

    def loss(self, index: Tensor) -> Tensor:
        """Return minus the log likelihood of all labels, for each row."""
        root = self.network.root(self.rows)
        return self.network.process.loss(root, self.labels.double()).float()

    def prepare(self) -> None:
        """Compute the posterior, which all rows share."""
        root = self.network.root(self.rows)
        self.posterior = self.network.process.posterior(root, self.labels.double())

    def outputs(self, rows: Rows) -> Tensor:
        """Return posterior means (n, 1)."""
        root = self.network.root(rows)
        return (root @ self.posterior.weights + self.posterior.mean)[:, None]
