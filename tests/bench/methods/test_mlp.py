"""The multilayer perceptron."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tabr.bench.methods import METHODS, Setting
from tabr.bench.methods.neural import NeuralMethod
from tabr.bench.parameters import parameters
from tabr.bench.tasks.catalog import select
from tabr.network.rows import Rows
from tabr.tables.shape import DataShape

SCHEMAS = {
    "california": DataShape(8, 0, (), "regression", 0),
    # Six numbers, sex, and seven columns of 100 levels in all.
    "adult": DataShape(6, 1, (9, 16, 7, 15, 6, 5, 42), "binary", 2),
}


# The counts are those of the published runs.
@pytest.mark.parametrize(
    ("name", "task", "count"),
    [
        ("mlp", "california", 20_563),
        ("mlp-lr", "california", 1_272_631),
        ("mlp-plr", "california", 3_152_511),
        ("mlp-plr-lite", "california", 320_520),
        ("mlp", "adult", 470_142),
        ("mlp-lr", "adult", 74_472),
        ("mlp-plr", "adult", 100_875),
        ("mlp-plr-lite", "adult", 177_367),
    ],
)
def test_has_as_many_parameters_as_published(name: str, task: str, count: int) -> None:
    params = parameters(select([task])[0], name, "tuned")
    method = METHODS[name].make(Setting("regression"), 0, **params)
    assert isinstance(method, NeuralMethod)
    network = method.build(SCHEMAS[task])
    assert sum(p.numel() for p in network.parameters()) == count


def test_is_a_chain_of_linear_relu_and_dropout() -> None:
    method: Any = METHODS["mlp"].make(Setting("regression"), 0, n_layers=2, width=5)
    schema = DataShape(2, 1, (3,), "regression", 0)
    network = method.build(schema).eval()
    rows = Rows(
        torch.randn(4, 2), torch.ones(4, 1), torch.tensor([[0], [2], [-1], [1]])
    )
    x = torch.zeros(4, 6)
    x[:, :2], x[:, 2] = rows.num, 1
    for row, code in enumerate(rows.cat[:, 0].tolist()):
        if code >= 0:
            x[row, 3 + code] = 1
    _, first, _, _, second, _, _, last = network
    for layer in (first, second):
        x = (x @ layer.weight.T + layer.bias).clamp(min=0)
    torch.testing.assert_close(network(rows), x @ last.weight.T + last.bias)
