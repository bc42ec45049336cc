"""ModernNCA: who votes, how much a vote weighs, and what is kept."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from tabr.bench.methods import Setting, modern_nca
from tabr.bench.methods.modern_nca import ModernNCA, closeness
from tabr.metrics import rmse
from tabr.network.rows import Rows
from tabr.tables.shape import DataShape
from tabr.tables.targets import NumberTarget
from tests.bench.methods.checks import KINDS, SETTINGS, parts

SMALL = {
    "width": 16,
    "embedding_width": 4,
    "n_frequencies": 4,
    "batch_size": 32,
    "max_epochs": 3,
}


def fitted(kind: str, **params: Any) -> ModernNCA:
    data = parts(kind)
    method = ModernNCA(SETTINGS[kind], 0, **{**SMALL, **params})
    return method.fit(data.train, data.val)


def vote(point: np.ndarray, candidates: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """A slow transcription of the paper's prediction for one row."""
    weights = [math.exp(-math.dist(point, other)) for other in candidates]
    total = sum(weights)
    return sum(
        weight / total * target for weight, target in zip(weights, targets, strict=True)
    )


def test_the_default_network_has_as_many_parameters_as_its_formula() -> None:
    method = ModernNCA(Setting("regression"), 0)
    method.labels, method.target = torch.zeros(3), NumberTarget().fit([0.0, 1.0])
    method.network = method.build(DataShape(8, 0, (), "regression", 0))
    waves, embedding, linear = 8 * 77, (2 * 77 + 1) * 34, (8 * 34 + 1) * 128
    assert method.n_parameters == waves + embedding + linear


@pytest.mark.parametrize("kind", KINDS)
def test_a_prediction_is_the_vote_of_all_training_rows(kind: str) -> None:
    method = fitted(kind)
    X = parts(kind).test.X.head(5)
    rows = Rows.from_arrays(method.preprocessor.transform(X), torch.device("cpu"))
    with torch.no_grad():
        points = method.network(rows).double().numpy()
        candidates = method.network(method.rows).double().numpy()
    targets = method.targets.double().numpy()
    expected = np.stack([vote(point, candidates, targets) for point in points])
    if kind == "regression":
        expected = method.decoded(expected[:, 0])
    np.testing.assert_allclose(method.predict(X), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loss_is_of_the_vote_of_the_batch_and_the_drawn_without_oneself(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = fitted(kind)
    index, drawn = torch.tensor([5, 0, 99]), torch.tensor([7, 8, 50, 139])
    monkeypatch.setattr(method, "_others", lambda _: drawn)
    points = method.network(method.rows).detach().double().numpy()
    targets = method.targets.double().numpy()
    losses = []
    for row in index.tolist():
        seen = [i for i in (*index.tolist(), *drawn.tolist()) if i != row]
        mean = vote(points[row], points[seen], targets[seen])
        if kind == "regression":
            losses.append(float((mean - targets[row])[0] ** 2))
        else:
            losses.append(-math.log(mean[targets[row].argmax()] + 1e-7))
    assert method.loss(index).item() == pytest.approx(np.mean(losses), rel=1e-3)


def test_no_row_sees_its_own_label() -> None:
    method = fitted("regression", share=1.0)
    index = torch.tensor([12])
    before = method.labels[12] - method.loss(index).sqrt()
    other = method.labels[12] + method.loss(index).sqrt()
    method.targets[12] += 100
    now = method.targets[12] - method.loss(index).sqrt()
    assert min(abs(now - before), abs(now - other)) < 1e-3


def test_a_share_of_the_others_is_drawn_anew_for_each_step() -> None:
    method = fitted("regression", share=0.3)
    index = torch.arange(10, 40)
    first, second = method._others(index), method._others(index)
    assert len(first) == len(second) == int(0.3 * 110)
    assert len(first.unique()) == len(first)
    assert not torch.isin(first, index).any()
    assert set(first.tolist()) != set(second.tolist())
    every = torch.cat([method._others(index) for _ in range(60)]).unique()
    assert len(every) == 110
    assert len(method._others(torch.arange(140))) == 0
    assert len(method._others(torch.arange(139))) == 1


def test_gradients_are_finite_where_rows_are_equal() -> None:
    points = torch.ones(3, 4, requires_grad=True)
    near = closeness(points[:2], points)
    assert (near.abs() < 1e-6).all()
    near.softmax(1)[:, 0].sum().backward()
    assert points.grad is not None and points.grad.isfinite().all()


def test_candidates_are_encoded_once_and_chunks_do_not_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    method = fitted("classes", n_blocks=1, block_width=8)
    X = parts("classes").test.X
    whole = method.predict(X)
    sizes: list[int] = []
    handle = method.network.register_forward_hook(
        lambda _, inputs, __: sizes.append(inputs[0].n_rows)
    )
    monkeypatch.setattr(modern_nca, "_CELLS", 140 * 7)  # seven rows at a time
    np.testing.assert_allclose(method.predict(X), whole, rtol=1e-4, atol=1e-6)
    handle.remove()
    assert sizes == [140, *[7] * 7, 1]


def test_running_statistics_of_the_best_epoch_are_kept() -> None:
    params = {"n_blocks": 2, "block_width": 16, "learning_rate": 0.1, "max_epochs": 12}
    method = fitted("regression", **params)
    assert 0 <= method.history.best_epoch < 11  # others followed it
    val = parts("regression").val
    score = -rmse(val.y, method.predict(val.X))
    assert score == pytest.approx(method.history.best_score, rel=1e-5)


def test_a_batch_may_be_one_row() -> None:
    method = fitted("regression", n_blocks=1, block_width=8, batch_size=139)
    assert np.isfinite(method.history.loss).all()


def test_an_impossible_share_is_refused() -> None:
    with pytest.raises(ValueError, match="share=0"):
        ModernNCA(Setting("regression"), 0, share=0)
