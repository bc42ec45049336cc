"""TabM: its shape, what its members see and how they are joined."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tabr.bench.methods import Setting
from tabr.bench.methods.tabm import TabM, piecewise_linear
from tabr.network.rows import Rows
from tabr.tables.shape import DataShape
from tabr.training.optimizers import AdamW, decay_groups
from tests.bench.methods.checks import SETTINGS, parts

CALIFORNIA = DataShape(8, 0, (), "regression", 0)
SMALL = {"k": 4, "width": 16, "n_layers": 1, "learning_rate": 0.01, "batch_size": 32}
EMBEDDED = {"embedding": "piecewise-linear", "embedding_width": 4, "n_bins": 6}


def fitted(kind: str, **params: Any) -> TabM:
    data = parts(kind)
    method = TabM(SETTINGS[kind], 0, **{**SMALL, "max_epochs": 3, **params})
    return method.fit(data.train, data.val)


def in_training(method: TabM) -> TabM:
    """Members may see different rows; without dropout, what they say is certain."""
    method.network.train()
    return method


@pytest.mark.parametrize(
    ("params", "published"),
    [
        ({"architecture": "tabm", "width": 400}, 438_688),
        ({"architecture": "tabm-mini", "width": 304}, 198_192),
        (
            {
                "architecture": "tabm",
                "embedding": "piecewise-linear",
                "width": 416,
                "embedding_width": 20,
                "n_bins": 47,
            },
            545_472,
        ),
        (
            {
                "architecture": "tabm-mini",
                "embedding": "piecewise-linear",
                "width": 576,
                "embedding_width": 16,
                "n_bins": 30,
            },
            765_664,
        ),
    ],
)
def test_the_authors_tuned_networks_have_as_many_parameters(
    params: dict[str, Any], published: int
) -> None:
    method = TabM(Setting("regression"), 0, n_layers=3, **params)
    method.device = torch.device("cpu")
    num = torch.randn(2000, 8)
    method.rows = Rows(num, num[:, :0], num[:, :0].long())
    network = method.build(CALIFORNIA)
    assert sum(p.numel() for p in network.parameters()) == published


@pytest.mark.parametrize("kind", ["regression", "binary", "classes"])
@pytest.mark.parametrize("shares_batches", [False, True])
def test_the_loss_is_the_mean_of_the_members_losses(
    kind: str, shares_batches: bool
) -> None:
    method = in_training(fitted(kind, shares_batches=shares_batches, dropout=0.0))
    index = torch.tensor([3, 0, 139, 77])
    losses = []
    for member in range(4):
        rows = index
        if not shares_batches:
            rows = (index + method.starts[member]) % 140
        output = method.network(method.rows.take(rows))[:, member]
        labels = method.labels[rows]
        if kind == "regression":
            losses.append((output[:, 0] - labels).square().mean())
        else:
            losses.append(F.cross_entropy(output, labels))
    expected = torch.stack(losses).mean()
    torch.testing.assert_close(method.loss(index), expected)
    joined = F.mse_loss if kind == "regression" else F.cross_entropy
    mean = method.network(method.rows.take(index)).mean(1)
    other = joined(mean.squeeze(1), method.labels[index])
    assert abs(other - expected) > 1e-6  # the loss of the mean is another thing


def test_each_member_sees_every_row_once_an_epoch_and_in_another_order() -> None:
    method = in_training(fitted("regression"))
    seen: list[torch.Tensor] = []
    network = method.network

    def spy(rows: Rows) -> torch.Tensor:
        seen.append(rows.num)
        return network(rows)

    object.__setattr__(method, "network", spy)
    for batch in torch.randperm(140).split(32):
        method.loss(batch)
    num = torch.cat(seen)  # (n, k, columns)
    every = method.rows.num[:, 0].sort().values
    for member in range(4):
        torch.testing.assert_close(num[:, member, 0].sort().values, every)
    assert len(num[0, :, 0].unique()) > 1


@pytest.mark.parametrize("kind", ["binary", "classes"])
def test_probabilities_are_averaged_and_not_logits(kind: str) -> None:
    method = fitted(kind)
    X = parts(kind).test.X
    rows = Rows.from_arrays(method.preprocessor.transform(X), torch.device("cpu"))
    with torch.no_grad():
        output = method.network(rows).double()
    np.testing.assert_allclose(
        method.predict(X), output.softmax(-1).mean(1).numpy(), rtol=1e-5, atol=1e-7
    )
    of_logits = output.mean(1).softmax(-1).numpy()
    assert np.abs(method.predict(X) - of_logits).max() > 1e-4


def test_values_are_the_mean_of_the_members() -> None:
    method = fitted("regression", **EMBEDDED)
    X = parts("regression").test.X
    rows = Rows.from_arrays(method.preprocessor.transform(X), torch.device("cpu"))
    with torch.no_grad():
        mean = method.network(rows).mean(1).numpy()
    np.testing.assert_allclose(
        method.predict(X), method.target.in_units(mean), rtol=1e-5
    )


def test_an_embedding_begins_linear_and_can_bend_at_every_quantile() -> None:
    num = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    embedding = piecewise_linear(num, 3, 5)
    x = torch.linspace(-2, 2, 41)[:, None].expand(-1, 2)
    bends = embedding(x).diff(dim=0).diff(dim=0).abs().amax((1, 2))
    assert bends.max() < 1e-5
    with torch.no_grad():
        embedding.linear.weight += torch.arange(5.0)[:, None]  # a slope for each bin
    bent = embedding(x).diff(dim=0).diff(dim=0).abs().amax((1, 2)) > 1e-4
    assert 4 <= bent.sum() <= 2 * 2 * 4  # four inner edges in each of two columns


@pytest.mark.filterwarnings("ignore:The 0-th feature has just two bin edges")
def test_a_constant_column_can_be_embedded() -> None:
    embedding = piecewise_linear(torch.zeros(50, 1), 3, 5)
    assert embedding(torch.zeros(2, 1)).isfinite().all()


def test_biases_and_the_linear_part_of_embeddings_are_spared_from_decay() -> None:
    method = fitted("regression", **EMBEDDED)
    _, spared = decay_groups(method.network, method.training.mode)
    spared_ids = {id(p) for p in spared["params"]}
    names = {n for n, p in method.network.named_parameters() if id(p) in spared_ids}
    assert names == {
        "embedding.linear0.weight",
        "embedding.linear0.bias",
        "backbone.blocks.0.0.bias",
        "output.bias",
    }


def test_long_gradients_are_shortened_and_short_ones_are_not() -> None:
    network = torch.nn.Linear(2, 1, bias=False)
    optimizer = AdamW(network, TabM.training_defaults)
    for given, used in (((3.0, 4.0), (0.6, 0.8)), ((0.3, 0.4), (0.3, 0.4))):
        network.weight.grad = torch.tensor([given])
        before = network.weight.detach().clone()
        optimizer.step()
        torch.testing.assert_close(network.weight.grad, torch.tensor([used]))
        assert not torch.equal(network.weight, before)


def test_without_the_library_the_pip_line_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tabm", None)
    with pytest.raises(ImportError, match=r"pip install 'tabr\[baselines\]'"):
        fitted("regression")
