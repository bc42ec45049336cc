"""DKL is an exact Gaussian process, and the one that GPyTorch describes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tabr.bench.methods.dkl import (
    DKL,
    EDGE,
    RBF,
    Config,
    Network,
    Process,
    SpectralMixture,
    Square,
    kernel_root,
)
from tabr.metrics import rmse
from tabr.network.rows import Rows
from tabr.tables.shape import DataShape
from tests.bench.methods.checks import SETTINGS, parts

SMALL = {"width": 16, "n_layers": 1, "grid_size": 12, "learning_rate": 0.03}
TUNED = {  # of california, from tuned-configs.json
    "kernel": "rbf",
    "lr": 0.0077514101268319705,
    "mlp": {
        "activation": "ReLU",
        "d_layer": 417,
        "dropout": 0.35986611722813866,
        "n_blocks": 3,
    },
    "patience": 16,
    "weight_decay": 0.0,
}


def some_features(n: int = 60) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    features = (2 * torch.rand(n, 2, generator=generator).double() - 1) * EDGE
    noise = torch.randn(n, generator=generator).double()
    return features, (3 * features[:, 0]).sin() + features[:, 1] + 0.1 * noise


def a_kernel(kind: str) -> torch.nn.Module:
    kernel = RBF() if kind == "rbf" else SpectralMixture()
    generator = torch.Generator().manual_seed(1)
    for parameter in kernel.parameters():
        change = torch.rand(parameter.shape, generator=generator)
        parameter.data = 0.6 * change - 0.3
    return kernel


def matrix(kernel: torch.nn.Module, a: Tensor, b: Tensor) -> Tensor:
    factors: Tensor = kernel(a[:, None] - b)
    return factors.prod(-1)


@pytest.mark.parametrize("kind", ["rbf", "sm"])
def test_root_gives_back_the_kernel_matrix(kind: str) -> None:
    features, _ = some_features()
    kernel = a_kernel(kind)
    root = kernel_root(kernel, features, 40)
    expected = matrix(kernel, features, features)
    torch.testing.assert_close(root @ root.mT, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["rbf", "sm"])
def test_loss_and_prediction_are_those_of_the_full_process(kind: str) -> None:
    features, labels = some_features()
    (x, y), others = (features[:40], labels[:40]), features[40:]
    kernel, process = a_kernel(kind), Process()
    process.mean.data, process.raw_noise.data = torch.tensor(0.3), torch.tensor(-2.0)
    root = kernel_root(kernel, x, 40)

    noise = math.log1p(math.exp(-2.0)) + 1e-4
    full = matrix(kernel, x, x) + noise * torch.eye(40).double()
    mean = torch.full((40,), 0.3).double()
    density = torch.distributions.MultivariateNormal(mean, full)
    expected = -density.log_prob(y) / 40
    torch.testing.assert_close(process.loss(root, y), expected, rtol=1e-5, atol=0)
    posterior = process.posterior(root, y)
    found = kernel_root(kernel, others, 40) @ posterior.weights + posterior.mean
    expected = 0.3 + matrix(kernel, others, x) @ torch.linalg.solve(full, y - 0.3)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["rbf", "sm"])
def test_is_the_process_of_gpytorch(kind: str) -> None:
    gpytorch: Any = pytest.importorskip("gpytorch")
    kernels, features, labels = gpytorch.kernels, *some_features()
    inner = (
        kernels.RBFKernel(ard_num_dims=2)
        if kind == "rbf"
        else kernels.SpectralMixtureKernel(num_mixtures=4, ard_num_dims=2)
    )
    # On a grid the scale multiplies both factors, that is twice.
    covariance = kernels.ScaleKernel(kernels.ScaleKernel(inner))

    class Model(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self) -> None:
            likelihood = gpytorch.likelihoods.GaussianLikelihood()
            super().__init__(features[:40], labels[:40], likelihood)
            self.mean, self.covariance = gpytorch.means.ConstantMean(), covariance

        def forward(self, x: Tensor) -> Any:
            normal = gpytorch.distributions.MultivariateNormal
            return normal(self.mean(x), self.covariance(x))

    model = Model().double()
    likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    expected = -likelihood(model(features[:40]), labels[:40])

    kernel, process = RBF() if kind == "rbf" else SpectralMixture(), Process()
    root = kernel_root(kernel, features, 40)
    torch.testing.assert_close(
        process.loss(root[:40], labels[:40]), expected, rtol=1e-5, atol=0
    )
    posterior = process.posterior(root[:40], labels[:40])
    found = root[40:] @ posterior.weights + posterior.mean
    mean = model.eval()(features[40:]).mean
    torch.testing.assert_close(found, mean, rtol=1e-4, atol=1e-4)


def test_square_remembers_the_range_of_training() -> None:
    square = Square()
    x = torch.tensor([[0.0, 4.0], [2.0, 8.0]])
    inside = square(x)
    assert inside.min() == -EDGE and inside.max() == pytest.approx(EDGE)
    square.eval()
    torch.testing.assert_close(square(x), inside)
    outside = square(torch.tensor([[99.0, -99.0]]))
    torch.testing.assert_close(outside, torch.tensor([[EDGE, -EDGE]]))


def test_every_parameter_learns() -> None:
    schema = DataShape(3, 0, (), "regression", 0)
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(30, 3, generator=generator)
    rows = Rows(numbers, torch.empty(30, 0), torch.empty(30, 0).long())
    network = Network(schema, Config(kernel="sm", n_layers=2, width=8, grid_size=10))
    network.process.loss(network.root(rows), numbers[:, 0].double()).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_predictions_are_those_of_the_best_epoch() -> None:
    data = parts("regression")
    method = DKL(SETTINGS["regression"], 0, patience=3, dropout=0.3, **SMALL)
    method.fit(data.train, data.val)
    assert len(method.history.score) > method.best_epoch + 1  # it went on
    score = -rmse(data.val.y, method.predict(data.val.X))
    assert score == pytest.approx(method.history.best_score, rel=1e-5)


def test_a_step_takes_all_rows() -> None:
    data = parts("regression")
    method = DKL(SETTINGS["regression"], 0, max_epochs=1, dropout=0.0, **SMALL)
    method.fit(data.train, data.val)
    schema = DataShape(2, 2, (3,), "regression", 0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = method.build(schema)
    assert isinstance(network, Network)
    first = network.process.loss(network.root(method.rows), method.labels.double())
    assert method.history.loss[0] == pytest.approx(first.item(), rel=1e-6)


def test_published_configuration_is_translated() -> None:
    params = DKL.published(TUNED)
    method = DKL(SETTINGS["regression"], 0, **params)
    network = method.build(DataShape(8, 0, (), "regression", 0))
    counted = sum(p.numel() for p in network.parameters() if p.requires_grad)
    mlp = 8 * 417 + 417 + 2 * (417 * 417 + 417) + 417 * 2 + 2
    assert counted == mlp + 3 + 2  # scale and lengths; mean and noise
    assert np.isclose(params["learning_rate"], 0.00775, rtol=1e-3)


@pytest.mark.parametrize("params", [{"kernel": "matern"}, {"grid_size": 1}])
def test_refuses_what_makes_no_sense(params: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="however"):
        DKL(SETTINGS["regression"], 0, **params)
