"""SAINT is the published network, and rows meet none but themselves and the context."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tabr.bench.methods import Setting
from tabr.bench.methods.saint import SAINT, Block, Config, Network, NumberVectors
from tabr.network.rows import Rows
from tabr.tables.shape import DataShape
from tests.bench.methods.checks import SETTINGS, parts

FIXED = (4, 32, 48, 4.0)  # the paper's shape for large tables
# Set -> columns (numbers and binary, levels), outputs, tuned shape, n_parameters, the
# last two from tuned-configs.json and results.csv.
PUBLISHED = {
    "california": (8, (), 1, (4, 8, 14, 1.982529691319599), 265_955),
    "adult": (
        7,
        (9, 16, 7, 15, 6, 5, 42),
        1,
        (2, 16, 2, 2.2326460335379377),
        982_023,
    ),
    "churn": (10, (3,), 1, (2, 4, 46, 1.65148833744677), 181_866),
    "house": (16, (), 1, (4, 4, 47, 1.6039690699620697), 523_699),
    "diamond": (6, (5, 7, 8), 1, (1, 8, 8, 1.3665284726825346), 82_643),
    "otto": (93, (), 9, (1, 28, 36, 0.6739019540013802), 45_734_563),
    "higgs-small": (28, (), 1, (2, 4, 7, 1.0284613757863865), 208_163),
    "black-friday": (5, (2, 7, 3, 5), 1, (4, 28, 46, 0.8871292403252736), 2_657_004),
    "covtype": (54, (), 7, FIXED, 167_142_915),
    "weather-small": (119, (), 1, FIXED, 781_636_665),
    "microsoft": (136, (), 1, FIXED, 1_016_903_487),
}


def a_schema(
    n_numbers: int, cardinalities: tuple[int, ...] = (), n_outputs: int = 1
) -> DataShape:
    task = "regression" if n_outputs == 1 else "classes"
    return DataShape(n_numbers, 0, cardinalities, task, n_outputs)


def some_rows(
    n: int, n_numbers: int, levels: tuple[int, ...] = (), seed: int = 0
) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    codes = [torch.randint(k, (n, 1), generator=generator) for k in levels]
    empty = torch.empty(n, 0)
    numbers = torch.randn(n, n_numbers, generator=generator)
    return Rows(numbers, empty, torch.cat([empty.long(), *codes], 1))


def n_parameters(*widths: int) -> int:
    """Count those of an MLP."""
    return sum((d_in + 1) * d_out for d_in, d_out in itertools.pairwise(widths))


def n_idle(n_numbers: int, cardinalities: tuple[int, ...], width: int) -> int:
    """Count the parameters of the official network that supervised training spares."""
    n_columns, n_levels = n_numbers + len(cardinalities), sum(cardinalities)
    d_row = n_columns * width
    eighth = d_row // 8
    vectors = (
        n_levels  # of categories, once more
        + 4 * n_columns  # two for masks, one more for masks, one for places
        + 2  # masks, of all columns alike
    )
    return (
        vectors * width
        + 2 * n_numbers  # a normalisation of numbers
        + n_parameters(d_row, 4 * eighth, 2 * eighth, 1)  # a head for whole rows
        + n_parameters(width, 2 * n_levels, n_levels)  # which category was masked?
        + n_parameters(width, n_numbers, 1)  # which number was masked?
        + 2 * n_parameters(d_row, 6 * d_row // 5, d_row // 2)  # contrastive heads
    )


@pytest.mark.parametrize("name", PUBLISHED)
def test_has_the_published_number_of_parameters(name: str) -> None:
    n_numbers, cardinalities, n_outputs, shape, expected = PUBLISHED[name]
    with torch.device("meta"):
        schema = a_schema(n_numbers, cardinalities, n_outputs)
        network = Network(schema, Config(*shape))
    used = sum(p.numel() for p in network.parameters())
    assert used + n_idle(n_numbers, cardinalities, shape[1]) == expected


def test_numbers_have_an_mlp_each() -> None:
    vectors, numbers = NumberVectors(3, 4), torch.randn(5, 3)
    for column in range(3):
        hidden = F.relu(
            numbers[:, [column]] @ vectors.weight_in[[column]] + vectors.bias_in[column]
        )
        expected = hidden @ vectors.weight_out[column] + vectors.bias_out[column]
        torch.testing.assert_close(vectors(numbers)[:, column], expected)


def attended(layer: nn.Module, x: Tensor, allowed: list[list[int]], d: int) -> Tensor:
    """Attend slowly: x (n, width); row i to the rows at allowed[i]."""
    query, key, value = (
        part.unflatten(-1, (8, d)) for part in layer.heads(x).chunk(3, -1)
    )
    out = torch.zeros(len(x), 8, d)
    for row, others in enumerate(allowed):
        for head in range(8):
            scores = torch.stack([query[row, head] @ key[j, head] for j in others])
            weights = (scores / d**0.5).softmax(0)
            for weight, j in zip(weights, others, strict=True):
                out[row, head] += weight * value[j, head]
    return layer.out(out.flatten(1))


def gated(layer: nn.Module, x: Tensor) -> Tensor:
    first, gate = layer.layer_in(x).chunk(2, -1)
    return layer.layer_out(first * F.gelu(gate))


def test_a_block_is_what_the_slow_transcription_says() -> None:
    n_rows, n_context, n_columns, width, d = 3, 4, 2, 6, 5
    block = Block(n_columns, Config(1, width, d, 1.7, dropout=0.0))
    for parameter in block.norms.parameters():  # drawn as ones and zeros
        nn.init.normal_(parameter)
    x = torch.randn(n_rows + n_context, n_columns, width)
    with torch.no_grad():
        fast = block(x, n_context)
        tokens = []
        for row in block.norms[0](x):
            everyone = [list(range(n_columns))] * n_columns
            row = block.norms[1](row + attended(block.columns, row, everyone, d))
            tokens.append(row + gated(block.columns_layer, row))
        rows = block.norms[2](torch.stack(tokens).flatten(1))
        context = list(range(n_rows, n_rows + n_context))
        allowed = [[i, *context] for i in range(n_rows)] + [context] * n_context
        rows = block.norms[3](rows + attended(block.rows, rows, allowed, d))
        slow = rows + gated(block.rows_layer, rows)
    torch.testing.assert_close(fast.flatten(1), slow, rtol=1e-4, atol=1e-5)


def test_rows_do_not_meet_each_other() -> None:
    network = Network(a_schema(2, (3,)), Config(2, 4, 3, 2.0)).eval()
    rows, context = some_rows(5, 2, (3,)), some_rows(6, 2, (3,), seed=1)
    together = network(rows, context)
    alone = [network(rows.take(slice(i, i + 1)), context) for i in range(5)]
    torch.testing.assert_close(torch.cat(alone), together, rtol=1e-4, atol=1e-6)


def test_rows_meet_every_row_of_the_context() -> None:
    network = Network(a_schema(2), Config(1, 4, 3, 2.0)).eval()
    rows, context = some_rows(1, 2), some_rows(6, 2, seed=1)
    context.num.requires_grad_()
    network(rows, context).sum().backward()
    assert context.num.grad is not None
    assert (context.num.grad.abs().sum(1) > 0).all()


def test_the_context_of_predictions_is_drawn_from_training_rows_by_the_seed() -> None:
    small = {"depth": 1, "width": 4, "head_width": 2, "batch_size": 32, "max_epochs": 1}
    data = parts("regression")

    def fitted(seed: int) -> SAINT:
        method = SAINT(SETTINGS["regression"], seed, **small)
        return method.fit(data.train, data.val)

    first, again, other = fitted(0), fitted(0), fitted(1)
    assert first.context.n_rows == 32
    torch.testing.assert_close(first.context.num, again.context.num)
    assert not torch.equal(first.context.num, other.context.num)
    distances = torch.cdist(first.context.num, first.rows.num)
    assert distances.min(1).values.max() < 1e-3


@pytest.mark.parametrize("schema", [a_schema(2), a_schema(0, (3, 2))])
def test_needs_no_particular_kind_of_column(schema: DataShape) -> None:
    network = Network(schema, Config(1, 4, 3, 2.0, 0.1, 0.1))
    rows = some_rows(4, schema.n_num, schema.cardinalities)
    assert network(rows, rows).shape == (4, 1)


def test_takes_a_published_configuration() -> None:
    config = {
        "batch_size": 512,
        "model": {
            "attentiontype": "colrow",
            "attn_dropout": 0.4,
            "depth": 2,
            "dim": 16,
            "dim_head": 3,
            "ff_dropout": 0.2,
            "ffn_mult": 1.5,
            "heads": 8,
        },
        "n_epochs": float("inf"),
        "optimizer": {"lr": 2e-4, "type": "AdamW", "weight_decay": 1e-5},
        "patience": 16,
    }
    method = SAINT(Setting("regression"), 0, **SAINT.published(config))
    assert method.config == Config(2, 16, 3, 1.5, 0.0, 0.2)
    assert method.training.batch_size == 512
