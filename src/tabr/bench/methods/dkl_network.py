"""The network of DKL: a perceptron, a kernel on a square and a Gaussian process."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabr.bench.methods.mlp import Network as Perceptron
from tabr.bench.methods.neural import Schema
from tabr.network.rows import Rows

Kernel = Literal["rbf", "sm"]
EDGE = 0.95  # features lie between -EDGE and EDGE
LOWEST_NOISE = 1e-4
N_MIXTURES = 4
JITTER = 1e-8


class Network(nn.Module):
    """Rows (n) -> features (n, 2) -> a root (n, r) of their kernel matrix."""

    def __init__(
        self,
        schema: Schema,
        kernel: Kernel,
        n_layers: int,
        width: int,
        dropout: float,
        grid_size: int,
    ) -> None:
        """Make the layers as torch does by default."""
        super().__init__()
        to_plane = replace(schema, task="classes", n_classes=2)  # two outputs
        self.perceptron = Perceptron(to_plane, None, n_layers, width, dropout)
        self.square = Square()
        self.kernel = RBF() if kernel == "rbf" else SpectralMixture()
        self.process = Process()
        self.grid_size = grid_size

    def root(self, rows: Rows) -> Tensor:
        """Return R (n, r) of the rows, in double precision."""
        features: Tensor = self.square(self.perceptron(rows))
        return kernel_root(self.kernel, features.double(), self.grid_size)


def kernel_root(kernel: nn.Module, features: Tensor, grid_size: int) -> Tensor:
    """Return R (n, r), where R R^T is the kernel matrix of features (n, 2).

    Along each axis it is the kernel of a grid's points, carried to the places between
    them (Nystroem); the roots of both axes are multiplied in all pairs.
    """
    grid = torch.linspace(
        -EDGE, EDGE, grid_size, dtype=features.dtype, device=features.device
    )
    grid = grid[:, None].expand(-1, 2)
    between = kernel(grid[:, None] - grid).permute(2, 0, 1)  # (2, g, g)
    to_grid = kernel(grid[:, None] - features).permute(2, 0, 1)  # (2, g, n)
    eye = torch.eye(grid_size, dtype=features.dtype, device=features.device)
    factor = _factor(between + JITTER * eye)
    roots: Tensor = torch.linalg.solve_triangular(factor, to_grid, upper=False)
    first, second = roots.mT.unbind()
    return (first[:, :, None] * second[:, None]).flatten(1)


class Square(nn.Module):
    """Scale features (n, 2) into a square, by the range of all their values.

    The range is that of the last step of training, dropout and all, as it is the one
    that the kernel was learned with. Values outside go to the edge.
    """

    range: Tensor

    def __init__(self) -> None:
        """Begin with the square itself."""
        super().__init__()
        self.register_buffer("range", torch.tensor([-1.0, 1.0]))

    def forward(self, x: Tensor) -> Tensor:
        """Scale, and in training learn the range."""
        if self.training:
            low, high = x.min(), x.max()
            self.range.copy_(torch.stack([low, high]).detach())
        else:
            low, high = self.range
            x = x.clamp(low, high)
        return ((x - low) * (2 / (high - low)) - 1) * EDGE


class RBF(nn.Module):
    """Differences (..., 2) along the axes -> the kernel's factors (..., 2)."""

    def __init__(self) -> None:
        """Begin with all at softplus(0), as GPyTorch does."""
        super().__init__()
        self.raw_scale = nn.Parameter(torch.zeros(()))
        self.raw_length = nn.Parameter(torch.zeros(2))

    def forward(self, difference: Tensor) -> Tensor:
        """Return each axis' factor; the scale is in both, as on GPyTorch's grid."""
        scaled = difference / F.softplus(self.raw_length)
        return F.softplus(self.raw_scale) * (-scaled.square() / 2).exp()


class SpectralMixture(nn.Module):
    """Differences (..., 2) along the axes -> the kernel's factors (..., 2).

    GPyTorch's four components begin alike, so their gradients are alike and they stay
    so: this is one of fourfold weight.
    """

    def __init__(self) -> None:
        """Begin with all at softplus(0), as GPyTorch does."""
        super().__init__()
        self.raw_scale = nn.Parameter(torch.zeros(()))
        self.raw_weight = nn.Parameter(torch.zeros(()))
        self.raw_frequency = nn.Parameter(torch.zeros(2))
        self.raw_width = nn.Parameter(torch.zeros(2))

    def forward(self, difference: Tensor) -> Tensor:
        """Return each axis' factor; scale and weight are in both."""
        turns = 2 * math.pi * difference
        decay = (-(turns * F.softplus(self.raw_width)).square() / 2).exp()
        wave = (turns * F.softplus(self.raw_frequency)).cos()
        weight = N_MIXTURES * F.softplus(self.raw_weight)
        return F.softplus(self.raw_scale) * weight * decay * wave


class Posterior(NamedTuple):
    """What predictions need of the training rows: weights (r,) and a constant."""

    weights: Tensor
    mean: Tensor


class Process(nn.Module):
    """Labels of a Gaussian process: constant mean, kernel matrix R R^T, noise."""

    def __init__(self) -> None:
        """Begin as GPyTorch does."""
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
        """Return what the labels tell of other rows."""
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
        noise = F.softplus(self.raw_noise.double()) + LOWEST_NOISE
        error = labels - self.mean
        eye = torch.eye(root.shape[1], dtype=root.dtype, device=root.device)
        factor = _factor(eye + root.mT @ root / noise)
        product = root.mT @ error[:, None] / noise
        projected = torch.linalg.solve_triangular(factor, product, upper=False)
        return noise, error, factor, projected


def _factor(matrix: Tensor) -> Tensor:
    """Return Cholesky factors (..., r, r); nan where there is none.

    So the loop tells what to do about it, and no step waits for the device.
    """
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(matrix)
    return factor.masked_fill(failed[..., None, None] > 0, math.nan)
