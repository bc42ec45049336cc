"""DNNR is the mean of planes, and its scale is learned as its authors say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from torch import Tensor

from tabr.bench.methods import Setting
from tabr.bench.methods.dnnr import (
    DNNR,
    PER_FEATURE,
    fit_errors,
    gradients,
    learned_scales,
    level_means,
    scale_gradient,
)
from tabr.bench.methods.knn import nearest
from tabr.bench.tasks.task import LabelledRows
from tabr.metrics import rmse

RAW = Setting("regression", normalized=False, device="cpu")


def a_part(n: int, seed: int, n_features: int = 3) -> LabelledRows:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_features)).astype(np.float32)
    names = [f"column {i}" for i in range(n_features)]
    return LabelledRows(pd.DataFrame(X, columns=names), np.sin(X[:, 0]) + X[:, 1] ** 2)


def some_points(n: int = 80, p: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(n, p, generator=generator).double()
    noise = torch.randn(n, generator=generator).double()
    return points, points[:, 0].sin() + 0.1 * noise


def slowly(
    train: LabelledRows, X: NDArray[Any], k: int, n_derivative: int
) -> list[float]:
    """Transcribe the method, one query at a time."""
    known = train.X.to_numpy(np.float64)
    mean, std = train.y.mean(), train.y.std()
    y = (train.y - mean) / std

    def ordered(x: NDArray[Any]) -> NDArray[Any]:
        return np.square(known - x).sum(1).argsort()

    predictions = []
    for x in X.astype(np.float64):
        planes = []
        for i in ordered(x)[:k]:
            near = ordered(known[i])[1 : n_derivative + 1]  # the first is the row
            fit = Ridge(1e-6, fit_intercept=False).fit(
                known[near] - known[i], y[near] - y[i]
            )
            planes.append(y[i] + fit.coef_ @ (x - known[i]))
        predictions.append(np.mean(planes) * std + mean)
    return predictions


def test_prediction_is_the_mean_of_the_neighbours_planes() -> None:
    train, test = a_part(90, 0), a_part(20, 1)
    method = DNNR(RAW, 0, k=4, derivative_factor=3, scaling_neighbors=0)
    method.fit(train, test)
    expected = slowly(train, test.X.to_numpy(), k=4, n_derivative=9)
    np.testing.assert_allclose(method.predict(test.X), expected, rtol=1e-4, atol=1e-5)


def test_a_plane_is_predicted_where_no_neighbour_is() -> None:
    def plane(n: int, seed: int, far: float) -> LabelledRows:
        part = a_part(n, seed)
        X = part.X + far
        return LabelledRows(X, X.to_numpy() @ np.array([1.0, -2.0, 0.5]))

    train, test = plane(60, 0, 0.0), plane(20, 1, 5.0)
    method = DNNR(RAW, 0, scaling_neighbors=0).fit(train, test)
    assert rmse(test.y, method.predict(test.X)) < 1e-3 * test.y.std()


def test_gradients_are_ridge_regressions_for_each_number_of_neighbours() -> None:
    points, labels = some_points()
    near = nearest(points, 20).position
    counts = [5, 11, 20]
    for count, found in zip(
        counts, gradients(points, labels, near, counts), strict=True
    ):
        for i in (0, 7, 79):
            index = near[i, :count]
            fit = Ridge(1e-6, fit_intercept=False).fit(
                points[index] - points[i], labels[index] - labels[i]
            )
            np.testing.assert_allclose(found[i], fit.coef_, rtol=1e-6)


def test_nobody_is_a_neighbour_of_itself() -> None:
    points = torch.ones(6, 2).double()
    assert (nearest(points, 5).position != torch.arange(6)[:, None]).all()


def test_scale_follows_the_gradient_of_minus_the_correlation() -> None:
    points, labels = some_points()
    near = nearest(points, 12).position
    errors = fit_errors(points, labels, near)
    square = (points[near] - points[:, None]).square()
    scale = torch.tensor([1.0, 0.5, 2.0]).double().requires_grad_()
    loss = torch.zeros(()).double()
    for i in range(len(points)):
        dx, dy = points[near[i]] - points[i], labels[near[i]] - labels[i]
        slope = torch.linalg.lstsq(dx, dy[:, None]).solution
        error = (dy - (dx @ slope)[:, 0]).abs()
        distance = (dx * scale).norm(dim=1)
        loss = loss - torch.corrcoef(torch.stack([error, distance]))[0, 1]
    loss.backward()
    found = scale_gradient(scale.detach(), square, errors)
    torch.testing.assert_close(found, scale.grad, rtol=1e-4, atol=1e-5)


def test_scale_leaves_out_what_says_nothing() -> None:
    points, _ = some_points(400)
    labels = (3 * points[:, 0]).sin() + points[:, 1] ** 2  # nothing of the third
    *_, scale = learned_scales(points, labels, 23, 3, seed=0)
    assert scale[2].abs() < 0.5 * scale[:2].abs().min()


def test_no_scale_is_learned_from_fits_without_errors() -> None:
    points, labels = some_points()
    assert list(learned_scales(points, labels, 3, 10, seed=0)) == []
    alike = torch.zeros_like(labels)
    (scale,) = learned_scales(points, alike, 10, 1, seed=0)
    assert (scale == 1).all()


def test_what_is_not_given_is_chosen_by_the_validation_part() -> None:
    train, val = a_part(70, 0), a_part(40, 1)

    def score(**params: Any) -> float:
        method = DNNR(RAW, 0, **params).fit(train, val)
        return rmse(val.y, method.predict(val.X))

    fixed = {"derivative_factor": 4.0, "scaling_neighbors": 16}
    each = [
        score(k=k, scaling_epochs=epoch, **fixed)
        for k in (1, 2, 3, 5, 8, 70)
        for epoch in (1, 2, 5, 10)
    ]
    method = DNNR(RAW, 0, **fixed).fit(train, val)
    assert method.chosen.scaling_neighbors == 16 and method.chosen.n_derivative == 12
    assert rmse(val.y, method.predict(val.X)) <= min(each)
    k, _, _, epoch = method.chosen
    assert rmse(val.y, method.predict(val.X)) == score(
        k=k, scaling_epochs=epoch, **fixed
    )


def test_all_parts_of_the_grid_are_tried() -> None:
    train = a_part(200, 0)
    method = DNNR(RAW, 0, scaling_epochs=1).fit(train, a_part(20, 1))
    sizes = [size for size, _, _ in method._scales(torch.randn(200, 3).double())]
    assert sizes == [8, 16, 24, 32, 64, 96, 128, 0]  # 2 to 4 have no errors
    only = DNNR(RAW, 0, scaling_neighbors=PER_FEATURE, scaling_epochs=3)
    only.labels = method.labels
    assert [found[:2] for found in only._scales(torch.randn(200, 3).double())] == [
        (24, 3)
    ]


def test_levels_become_mean_labels() -> None:
    codes = np.array([[0, 0, 1, 2, 2, -1]]).T
    labels = np.array([1.0, 3.0, 9.0, -1.0, -2.0, 5.0])
    (means,) = level_means(codes, labels, (3,))
    np.testing.assert_allclose(means, [2.0, 0.0, -1.5, 0.0])


@pytest.mark.parametrize(
    "params",
    [
        {"k": 0},
        {"derivative_factor": 0.0},
        {"scaling_neighbors": -1},
        {"scaling_neighbors": "many"},
        {"scaling_epochs": 0},
        {"categories": "hash"},
    ],
)
def test_refuses_what_makes_no_sense(params: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="however"):
        DNNR(RAW, 0, **params)
