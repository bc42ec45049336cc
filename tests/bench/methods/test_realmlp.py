"""RealMLP: its scaling, its layers, its schedules and what it keeps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tabr.bench.methods import Setting
from tabr.bench.methods.realmlp import (
    Config,
    Linear,
    Network,
    Numbers,
    RealMLP,
    Scaler,
    ScheduledAdam,
    flat_then_cosine,
    four_cycles,
)
from tabr.bench.tasks.task import LabelledRows
from tabr.metrics import rmse
from tabr.network.rows import Rows
from tabr.tables.preprocessor import Arrays
from tabr.tables.shape import DataShape
from tests.bench.methods.checks import SETTINGS, parts

SMALL = {"width": 16, "n_layers": 2, "batch_size": 32, "max_epochs": 4}


def a_network(
    n_num: int, n_bin: int, cardinalities: tuple[int, ...] = (), **config: Any
) -> Network:
    schema = DataShape(n_num, n_bin, cardinalities, "regression", 0)
    return Network(schema, Config("mish", **config))


def fitted(kind: str, **params: Any) -> RealMLP:
    data = parts(kind)
    return RealMLP(SETTINGS[kind], 0, **{**SMALL, **params}).fit(data.train, data.val)


def rows_of(method: RealMLP, X: pd.DataFrame) -> Rows:
    arrays = method.scaler(method.preprocessor.transform(X))
    return Rows.from_arrays(arrays, torch.device("cpu"))


# --- scaling --------------------------------------------------------------------------


def test_columns_are_scaled_by_quartiles_and_clipped_smoothly() -> None:
    rng = np.random.default_rng(0)
    num = np.stack(
        [rng.normal(5, 9, 101), np.arange(101) == 3, np.full(101, 7.0)], axis=1
    ).astype(np.float32)
    nothing = np.zeros((101, 0), dtype=np.float32)
    arrays = Arrays(num, nothing, nothing.astype(np.int64))
    scaled = Scaler.fit(arrays, ())(arrays).num
    x = num[:, 0].astype(np.float64)
    z = (x - np.median(x)) / (np.quantile(x, 0.75) - np.quantile(x, 0.25))
    np.testing.assert_allclose(scaled[:, 0], z / np.sqrt(1 + z**2 / 9), rtol=1e-5)
    # equal quartiles: half the range is the unit
    assert scaled[3, 1] == pytest.approx(2 / math.sqrt(1 + 4 / 9))
    assert (scaled[:, 2] == 0).all()
    far = Arrays(num * 0 + 1e30, nothing, nothing.astype(np.int64))
    assert (np.abs(Scaler.fit(arrays, ())(far).num) <= 3).all()


def test_few_levels_are_one_hot_and_many_stay_codes() -> None:
    rng = np.random.default_rng(0)
    nothing = np.zeros((90, 0), dtype=np.float32)
    cat = np.stack([rng.integers(0, 8, 90), rng.integers(0, 9, 90)], axis=1)
    scaler = Scaler.fit(Arrays(nothing, nothing, cat), (8, 9))
    unseen = Arrays(nothing[:1], nothing[:1], np.array([[-1, -1]]))
    scaled = scaler(unseen)
    assert scaler.large == (9,)
    assert scaled.bin.shape == (1, 8) and scaled.cat.tolist() == [[-1]]
    assert len(set(scaled.bin.ravel())) == 1  # no level differs from the others


# --- layers ---------------------------------------------------------------------------


def test_the_default_network_has_as_many_parameters_as_its_formula() -> None:
    network = a_network(8, 0)
    numbers = 8 * (16 + 16 + 16 * 3 + 3)
    scale, activations = 8 * 4, 3 * 256
    layers = (8 * 4 + 1) * 256 + 2 * 257 * 256 + 257
    expected = numbers + scale + activations + layers
    assert sum(p.numel() for p in network.parameters()) == expected


@pytest.mark.parametrize("kind", ["pl", "plr", "pbld"])
def test_an_embedded_number_follows_its_formula(kind: Any) -> None:
    module = Numbers(2, kind, 0.5)
    num = torch.randn(4, 2)
    columns = []
    for j in range(2):
        angle = 2 * math.pi * num[:, j, None] * module.frequency[j]
        if kind == "pbld":
            wave = torch.cos(angle + module.phase[j])
        else:
            wave = torch.cat([angle.cos(), angle.sin()], 1)
        columns.append(wave @ module.weight[j] + module.bias[j])
    expected = torch.cat(columns, 1)
    if kind == "plr":
        expected = expected.relu()
    if kind == "pbld":
        expected = torch.cat([expected, num], 1)
    torch.testing.assert_close(module(num), expected)
    assert module(num).shape == (4, module.width)


def test_layers_begin_with_variance_one_and_kinks_among_the_rows() -> None:
    x = 3 + 5 * torch.randn(2000, 7)
    layer = Linear(7, 40)
    layer.adapt(x)
    free = layer(x) - layer.bias
    torch.testing.assert_close(free.std(0, correction=0), torch.ones(40))
    assert (-layer.bias >= free.amin(0)).all() and (-layer.bias <= free.amax(0)).all()
    assert layer.bias.std() > 0.1
    torch.testing.assert_close(free, x @ layer.weight / math.sqrt(7))


def test_a_layer_without_any_variance_stays_finite() -> None:
    layer = Linear(3, 5)
    layer.adapt(torch.ones(10, 3))
    assert layer.weight.abs().max() < 10


def test_the_network_is_its_formula() -> None:
    schema = DataShape(2, 1, (3, 2), "classes", 4)
    network = Network(schema, Config("selu", n_layers=2, width=6))
    for parameter in network.parameters():
        nn.init.normal_(parameter)
    rows = Rows(
        torch.randn(5, 2),
        torch.rand(5, 1),
        torch.tensor([[0, 1], [2, 0], [-1, 1], [1, -1], [-1, -1]]),
    )
    tables = network.categories.weight.split([3, 2])
    embedded = [
        torch.stack([t[c] if c >= 0 else torch.zeros(8) for c in codes])
        for t, codes in zip(tables, rows.cat.T, strict=True)
    ]
    x = torch.cat([network.numbers(rows.num), rows.bin, *embedded], 1) * network.scale
    for block in network.blocks:
        z = x @ block.linear.weight / math.sqrt(x.shape[1]) + block.linear.bias
        x = (1 - block.share) * z + block.share * F.selu(z)
    x = x @ network.output.weight / math.sqrt(6) + network.output.bias
    torch.testing.assert_close(network(rows), x)


def test_dropout_drops_its_share_and_keeps_the_mean() -> None:
    block = a_network(1, 0).blocks[0]
    x = torch.randn(1, 4).expand(4000, -1)
    certain = block(x)[0]
    out = block(x, torch.tensor(0.3))
    assert (out == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
    torch.testing.assert_close(out.mean(0), certain, atol=0.1, rtol=0.1)
    assert torch.equal(block(x, torch.tensor(0.0)), block(x))


# --- schedules ------------------------------------------------------------------------


def test_the_learning_rate_has_four_cycles_each_twice_as_long() -> None:
    times = torch.tensor([2.0**i - 1 for i in range(5)]) / 15
    torch.testing.assert_close(four_cycles(times), torch.zeros(5), atol=1e-6, rtol=0)
    middles = torch.tensor([2.0 ** (i + 0.5) - 1 for i in range(4)]) / 15
    torch.testing.assert_close(four_cycles(middles), torch.ones(4))


def test_dropout_and_decay_are_flat_and_then_fade() -> None:
    times = torch.tensor([0.0, 0.3, 0.5, 0.75, 1.0])
    expected = torch.tensor([1.0, 1.0, 1.0, 0.5, 0.0])
    torch.testing.assert_close(flat_then_cosine(times), expected)


def test_the_optimizer_is_adam_with_the_papers_factors() -> None:
    torch.manual_seed(0)
    network = a_network(2, 1, (9,), n_layers=1, width=4)
    start = {name: p.detach().clone() for name, p in network.named_parameters()}
    grads = {name: torch.randn_like(p) for name, p in network.named_parameters()}
    optimizer = ScheduledAdam(network, 0.1, 0.5, n_steps=40)
    for _ in range(30):
        for name, parameter in network.named_parameters():
            parameter.grad = grads[name].clone()
        optimizer.step()
    for name, parameter in network.named_parameters():
        factor, decays = 1.0, True
        if name.startswith("numbers."):
            factor = 0.1
        elif name.endswith("bias"):
            factor, decays = 0.1, False
        elif name.endswith("share"):
            factor = 0.1
        elif name == "scale":
            factor = 6.0
        value, mean, square = start[name].double(), 0.0, 0.0
        for step in range(30):
            time = step / 40
            wave = math.cos(2 * math.pi * math.log2(1 + 15 * time))
            rate = 0.1 * factor * (1 - wave) / 2
            fade = (1 + math.cos(math.pi * max(0, 2 * time - 1))) / 2
            if decays:
                value = value * (1 - rate * 0.5 * fade)
            mean = 0.9 * mean + 0.1 * grads[name].double()
            square = 0.95 * square + 0.05 * grads[name].double() ** 2
            mean_now = mean / (1 - 0.9 ** (step + 1))
            square_now = square / (1 - 0.95 ** (step + 1))
            value = value - rate * mean_now / (square_now.sqrt() + 1e-8)
        torch.testing.assert_close(parameter.double(), value, rtol=1e-4, atol=1e-5)


# --- the method -----------------------------------------------------------------------


def test_smoothed_labels_are_its_own_and_not_those_of_the_loop() -> None:
    smooth, hard = (fitted("classes", label_smoothing=share) for share in (0.3, 0.0))
    assert smooth.config.label_smoothing == 0.3
    X = parts("classes").test.X
    assert smooth.predict(X).max() < hard.predict(X).max()


def test_all_epochs_are_run_the_schedule_ends_and_the_best_is_kept() -> None:
    method = fitted("regression", max_epochs=6)
    assert len(method.history.score) == 6
    assert method.adam.time == 1
    val = parts("regression").val
    score = -rmse(val.y, method.predict(val.X))
    assert score == pytest.approx(method.history.best_score, rel=1e-5)


def test_values_stay_within_those_of_training() -> None:
    method = fitted("regression")
    train = parts("regression").train
    far = train.X.copy()
    far["size"] *= 1000
    with torch.no_grad():
        method.network.output.bias += 50
    assert method.predict(far).max() == pytest.approx(train.y.max(), rel=1e-6)


def test_labels_are_smoothed() -> None:
    method = fitted("classes", dropout=0.0)
    index = torch.arange(20)
    log = method.network(method.rows.take(index)).log_softmax(1)
    soft = 0.9 * F.one_hot(method.labels[index], 3) + 0.1 / 3
    torch.testing.assert_close(method.loss(index), -(soft * log).sum(1).mean())


def test_two_classes_have_two_outputs() -> None:
    method = fitted("binary")
    X = parts("binary").test.X
    with torch.no_grad():
        expected = method.network(rows_of(method, X)).double().softmax(1)
    np.testing.assert_allclose(method.predict(X), expected, rtol=1e-5, atol=1e-6)


def test_defaults_follow_the_outcome() -> None:
    number, label = (
        RealMLP(Setting(outcome), 0) for outcome in ("regression", "classification")
    )
    assert (number.training.learning_rate, number.config.activation) == (0.2, "mish")
    assert (label.training.learning_rate, label.config.activation) == (0.04, "selu")


def test_columns_with_many_levels_are_learned() -> None:
    rng = np.random.default_rng(0)
    town = rng.integers(0, 20, 300).astype(str)
    y = np.array([float(t) for t in town])
    X = pd.DataFrame({"town": town, "noise": rng.normal(size=300)})
    setting = Setting("regression", {"town": "categorical"}, device="cpu")
    train, val = LabelledRows(X[:200], y[:200]), LabelledRows(X[200:], y[200:])
    method = RealMLP(setting, 0, **{**SMALL, "max_epochs": 20}).fit(train, val)
    assert method.scaler.large == (20,)
    assert rmse(val.y, method.predict(val.X)) < 0.4 * y.std()


def test_a_table_of_categories_alone_is_enough() -> None:
    network = a_network(0, 2, (9,))
    rows = Rows(torch.zeros(3, 0), torch.rand(3, 2), torch.tensor([[0], [8], [-1]]))
    network.adapt(rows)
    assert network(rows).isfinite().all()
