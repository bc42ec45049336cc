"""ANP has the published size, follows its equations and predicts alike each time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional as F

from tabr.bench.methods.anp import (
    ANP,
    MAX_ROWS,
    MIN_ROWS,
    Attention,
    Config,
    Gaussian,
    Memory,
    Network,
    WarmedAdamW,
    task_sizes,
)
from tabr.config import TrainingConfig
from tabr.metrics import rmse
from tabr.tables.shape import DataShape
from tests.bench.methods.checks import SETTINGS, parts

SETTING = SETTINGS["regression"]
SMALL: dict[str, Any] = {
    "width": 16,
    "n_self": 1,
    "n_cross": 2,
    "n_decoder": 1,
    "batch_size": 8,
    "learning_rate": 0.01,
    "warmup_steps": 20,
}
# Set -> columns, tuned width and layers (self, cross, decoder), n_parameters, the last
# two from tuned-configs.json and results.csv.
PUBLISHED = {
    "california": ((8, 0, ()), (364, 2, 2, 1), 5_592_862),
    "house": ((16, 0, ()), (320, 2, 2, 1), 4_338_242),
    "diamond": ((6, 0, (5, 7, 8)), (305, 2, 1, 3), 5_134_562),
    "black-friday": ((4, 1, (2, 7, 3, 5)), (330, 2, 1, 2), 4_997_082),
    "weather-small": ((119, 0, ()), (274, 2, 1, 3), 4_241_842),
}


def a_config(width: int, n_self: int, n_cross: int, n_decoder: int) -> dict[str, Any]:
    return {
        "batch_size": 256,
        "eval_batch_size_context": 32_000,
        "model": {
            "d_hidden": width,
            "num_cross_attention_l": n_cross,
            "num_layers_dec": n_decoder,
            "num_self_attention_l": n_self,
        },
        "optimizer": {"lr": 0.0005, "type": "AdamW", "weight_decay": 0.0},
        "patience": 16,
    }


@pytest.mark.parametrize("name", PUBLISHED)
def test_has_as_many_parameters_as_published(name: str) -> None:
    columns, shape, expected = PUBLISHED[name]
    method = ANP(SETTING, 0, **ANP.published(a_config(*shape)))
    network = Network(DataShape(*columns, "regression", 0), method.config)
    assert sum(p.numel() for p in network.parameters()) == expected


def a_network(width: int = 20) -> Network:
    """Heads of width 5, which is filled up, and all layers twice."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = Config(width=width, n_self=2, n_cross=2, n_decoder=2)
        return Network(DataShape(3, 0, (), "regression", 0), config).double().eval()


def some_rows(*shape: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(*shape, 3, generator=generator).double()
    return x, x[..., 0] - x[..., 1]


def slow_attention(layer: Attention, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """One row and one head at a time: x (t, w), keys and values (n, w)."""
    query, key, value = layer.query(x), layer.key(keys), layer.value(values)
    heads = [slice(h * layer.d_head, (h + 1) * layer.d_head) for h in range(4)]
    rows = []
    for i in range(len(x)):
        found = []
        for head in heads:
            score = (key[:, head] * query[i, head]).sum(1) / layer.d_head**0.5
            found.append((score.softmax(0)[:, None] * value[:, head]).sum(0))
        change = layer.output(torch.cat([x[i], *found]))
        rows.append(layer.norm(x[i] + change))
    return torch.stack(rows)


def slow_encoder(encoder: nn.Sequential, pairs: Tensor) -> Tensor:
    values: Tensor = encoder[0](pairs)
    for layer in encoder[1:]:
        values = slow_attention(layer, values, values, values)
    return values


def slowly(
    network: Network, context: Tensor, labels: Tensor, x: Tensor
) -> tuple[Tensor, Tensor]:
    """Transcribe a prediction: means and variances (t,)."""
    pairs = torch.cat([context, labels[:, None]], 1)
    values = slow_encoder(network.values, pairs)
    keys, found = network.key(context), network.query(x)
    for layer in network.cross_attentions:
        found = slow_attention(layer, found, keys, values)
    latent = network.latent
    summary = F.relu(latent.hidden(slow_encoder(latent.encoder, pairs).mean(0)))
    z = latent.mean(summary)
    hidden = torch.cat([found, z.repeat(len(x), 1), network.target(x)], 1)
    linear = [layer for layer in network.decoder if isinstance(layer, nn.Linear)]
    for layer in linear[:-1]:
        hidden = F.relu(layer(hidden))
    output = linear[-1](hidden)
    return output[:, 0], 0.1 + 0.9 * F.softplus(output[:, 1])


def test_prediction_follows_the_equations() -> None:
    network = a_network()
    (context, labels), (x, _) = some_rows(9), some_rows(4)
    mean, variance = network(x, network.remembered(context, labels))
    expected = slowly(network, context, labels, x)
    torch.testing.assert_close(mean[:, 0], expected[0])
    torch.testing.assert_close(variance[:, 0], expected[1])


def test_loss_is_likelihood_and_divergence() -> None:
    network = a_network()
    x, labels = some_rows(5, 12)
    n_context = 7
    torch.manual_seed(2)
    found = network.loss(x, labels, n_context)

    pairs = torch.cat([x, labels[..., None]], -1)

    def normal(given: Gaussian) -> Normal:
        return Normal(given.mean, given.log_variance.exp().sqrt())

    prior, posterior = (normal(network.latent(p)) for p in (pairs[:, :7], pairs))
    torch.manual_seed(2)
    z = posterior.rsample()
    context = network.remembered(x[:, :n_context], labels[:, :n_context]).layers
    mean, variance = network(x, Memory(context, z))
    fit = F.gaussian_nll_loss(mean, labels[..., None], variance)
    expected = fit + kl_divergence(posterior, prior).sum()
    torch.testing.assert_close(found, expected)


def test_order_of_the_context_does_not_matter() -> None:
    network = a_network()
    (context, labels), (x, _) = some_rows(9), some_rows(4)
    order = torch.tensor([3, 1, 8, 0, 2, 7, 5, 4, 6])
    one = network(x, network.remembered(context, labels))[0]
    other = network(x, network.remembered(context[order], labels[order]))[0]
    torch.testing.assert_close(one, other)


def test_predictions_are_those_of_the_best_epoch_each_time() -> None:
    data = parts("regression")
    method = ANP(SETTING, 0, max_epochs=4, **SMALL).fit(data.train, data.val)
    assert len(method.context) == len(data.train.y) // 3
    prediction = method.predict(data.val.X)
    np.testing.assert_array_equal(prediction, method.predict(data.val.X))
    score = -rmse(data.val.y, prediction)
    assert score == pytest.approx(method.history.best_score, rel=1e-5)


def test_learning_rate_rises_and_falls() -> None:
    network = torch.nn.Linear(2, 1)
    config = TrainingConfig(learning_rate=0.01, weight_decay=0.0)
    optimizer, rates = WarmedAdamW(network, config, 20), []
    for _ in range(80):
        network.zero_grad()
        network(torch.ones(1, 2)).sum().backward()
        before = network.weight.detach().clone()
        optimizer.step()
        rates.append(float((network.weight.detach() - before).abs().max()))
    # With gradients that never change, a step of Adam is as long as the rate.
    expected = [0.01 * min(n / 20, (20 / n) ** 0.5) for n in range(1, 81)]
    np.testing.assert_allclose(rates, expected, rtol=1e-2)


def test_optimizer_obeys_the_learning_rate() -> None:
    data = parts("regression")

    def change(warmup_steps: int) -> float:
        params = {**SMALL, "warmup_steps": warmup_steps, "weight_decay": 0.0}
        method = ANP(SETTING, 0, max_epochs=1, **params).fit(data.train, data.val)
        schema = DataShape(2, 2, (3,), "regression", 0)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            network = method.build(schema)
        pairs = zip(network.parameters(), method.network.parameters(), strict=True)
        return max((a - b).abs().max().item() for a, b in pairs)

    # Adam's steps are about as long as the rate: 1 + 2 + ... + 18 parts of 10,000.
    assert 0 < change(10_000) < 2 * 171 * 0.01 / 10_000
    assert change(20) > 50 * change(10_000)


def test_tasks_have_10_to_500_rows() -> None:
    for n_rows, most in ((5000, MAX_ROWS), (60, 30)):
        drawn = [task_sizes(n_rows) for _ in range(300)]
        for n_context, n_task in drawn:
            assert MIN_ROWS <= n_context <= n_task < most
    assert all(1 <= c <= t < 3 for c, t in [task_sizes(4) for _ in range(20)])


@pytest.mark.parametrize(
    "params", [{"context_share": 0.0}, {"max_context": 0}, {"warmup_steps": 0}]
)
def test_refuses_what_makes_no_sense(params: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="however"):
        ANP(SETTING, 0, **params)
