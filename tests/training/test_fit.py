"""Fitting one TabR, or several."""

from __future__ import annotations

import gc
from functools import partial

import pytest
import torch
from torch import Tensor

from tabr.candidates.point_index import PointIndex, candidate_points
from tabr.config import STEPS, NetworkConfig, Recipe, TrainingConfig
from tabr.device.cuda_graphs import GraphedFunction
from tabr.network.tabr import TabR
from tabr.prediction.predict import predict
from tabr.tables.shape import DataShape
from tabr.training.contexts import TrainingRows
from tabr.training.fit import MemberSpec, ValidationRows, fit_tabr
from tests.training.test_contexts import CONFIGS, table

SHAPE = DataShape(3, 0, (), "regression", 0)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("freeze_after", [None, 1])
def test_every_variant_learns(name: str, freeze_after: int | None) -> None:
    rows, labels = table(300)
    validation, target = table(80, seed=1)

    def score(output: Tensor) -> float:
        return -float((output.squeeze(-1) - target).square().mean())

    recipe = Recipe(
        NetworkConfig(width=16, dropout=0.0, context_dropout=0.1, **CONFIGS[name]),
        TrainingConfig(1e-2, batch_size=64, max_epochs=8, freeze_after=freeze_after),
        16,
    )
    data = TrainingRows(rows, labels), ValidationRows(validation, score)
    (member,) = fit_tabr([MemberSpec(recipe, *data)], SHAPE)
    network, history = member.network, member.history
    assert history.best_score > -0.3  # the targets' variance is one
    index = PointIndex(network, candidate_points(network, rows), labels)
    output, neighbors = predict(index, validation, 16)
    assert score(output.prediction) == pytest.approx(history.best_score, rel=1e-4)
    assert neighbors.position.shape == output.weights.shape == (80, 16)


def test_nothing_of_a_fit_waits_for_the_garbage_collector() -> None:
    rows, labels = table()
    recipe = Recipe(NetworkConfig(width=8), TrainingConfig(max_epochs=2), 5)
    validation = ValidationRows(rows, lambda output: -float(output.std()))

    def kept() -> int:
        return sum(type(thing) is GraphedFunction for thing in gc.get_objects())

    gc.collect()
    before = kept()
    gc.disable()
    try:
        data = TrainingRows(rows, labels), validation
        fitted = fit_tabr([MemberSpec(recipe, *data, seed) for seed in (0, 1)], SHAPE)
        assert len(fitted) == 2
        assert kept() == before  # a captured graph would keep its memory
    finally:
        gc.enable()


def test_weights_of_zero_silence_a_loss() -> None:
    rows, labels = table(40)
    spoiled = labels.clone()
    spoiled[:20] = 100
    weights = torch.cat([torch.zeros(20), torch.full((20,), 2.0)])

    def fit(labels: Tensor) -> TabR:
        # With one neighbour each, labels of others would still be seen: so no context.
        recipe = Recipe(
            NetworkConfig(width=8, retrieval=STEPS["step-0"]),
            TrainingConfig(1e-2, batch_size=40, max_epochs=3),
            4,
        )
        data = TrainingRows(rows, labels, weights)
        validation = ValidationRows(rows, lambda _: 0.0)
        return fit_tabr([MemberSpec(recipe, data, validation)], SHAPE)[0].network

    for a, b in zip(fit(labels).parameters(), fit(spoiled).parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("freeze_after", [None, 2])
def test_context_change_is_recorded_when_asked_for(freeze_after: int | None) -> None:
    rows, labels = table(200)
    training = {"batch_size": 64, "max_epochs": 5, "freeze_after": freeze_after}
    training_config = TrainingConfig(1e-2, **training, record_context=True)
    recipe = Recipe(NetworkConfig(width=16), training_config, 16)
    data = TrainingRows(rows, labels), ValidationRows(rows, lambda _: 0.0)
    history = fit_tabr([MemberSpec(recipe, *data)], SHAPE)[0].history
    assert len(history.context_change) == len(history.score) - 1
    assert all(0 < change < 1 for change in history.context_change)


def scores_on_gpu(
    network: NetworkConfig, training: TrainingConfig, seeds: list[int]
) -> list[list[float]]:
    """Fit networks of 2000 rows; return the scores of each after its epochs."""
    rows, labels = (part.to("cuda") for part in table(2000))

    def score(output: Tensor) -> float:
        return -float((output.squeeze(-1) - labels).square().mean())

    data = TrainingRows(rows, labels), ValidationRows(rows, score)
    recipe = Recipe(network, training, 16)
    fitted = fit_tabr([MemberSpec(recipe, *data, seed) for seed in seeds], SHAPE)
    return [member.history.score for member in fitted]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", CONFIGS)
def test_networks_fitted_as_one_become_what_each_becomes_alone(name: str) -> None:
    network = NetworkConfig(width=32, **CONFIGS[name])
    training = TrainingConfig(1e-3, batch_size=256, max_epochs=6)
    fit = partial(scores_on_gpu, network, training)
    joint, alone = fit([3, 4, 5]), [fit([seed])[0] for seed in (3, 4, 5)]
    for ours, theirs in zip(joint, alone, strict=True):
        assert ours == pytest.approx(theirs, rel=0.02)  # rounding grows by the epoch
    assert fit([3, 4, 5]) == joint


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("n_members", [1, 3])
@pytest.mark.parametrize("freeze_after", [None, 0, 1, 2])
def test_no_step_stays_eager_after_a_freeze(
    freeze_after: int | None, n_members: int, caplog: pytest.LogCaptureFixture
) -> None:
    training = TrainingConfig(
        1e-3, batch_size=256, max_epochs=4, freeze_after=freeze_after
    )
    with caplog.at_level("INFO", logger="tabr.device.cuda_graphs"):
        scores_on_gpu(NetworkConfig(width=32), training, list(range(n_members)))
    assert "stay eager" not in caplog.text
