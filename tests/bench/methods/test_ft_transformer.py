"""FT-Transformer is the published network, and treats every kind of table."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tabr.bench.methods import Setting
from tabr.bench.methods.ft_transformer import Config, FTTransformer, Network
from tabr.bench.methods.layers import CategoryVectors
from tabr.network.rows import Rows
from tabr.tables.shape import DataShape

CONFIG = {
    "batch_size": 256,
    "data": {"cat_policy": "ordinal", "num_policy": "quantile", "y_policy": None},
    "model": {
        "attention_dropout": 0.05,
        "d_token": 248,
        "ffn_d_hidden_factor": 2.252340225685858,
        "ffn_dropout": 0.25,
        "n_blocks": 2,
        "residual_dropout": 0.1,
    },
    "n_epochs": float("inf"),
    "optimizer": {"lr": 2e-4, "type": "AdamW", "weight_decay": 1e-5},
    "patience": 16,
}


def a_schema(n_num: int, n_bin: int, cardinalities: tuple[int, ...] = ()) -> DataShape:
    return DataShape(n_num, n_bin, cardinalities, "regression", 0)


def some_rows(schema: DataShape, n: int = 5, seed: int = 0) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    codes = [
        torch.randint(levels, (n,), generator=generator)
        for levels in schema.cardinalities
    ]
    return Rows(
        torch.randn(n, schema.n_num, generator=generator),
        torch.randint(2, (n, schema.n_bin), generator=generator).float(),
        torch.stack(codes, 1) if codes else torch.empty(n, 0, dtype=torch.int64),
    )


def size(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize(
    ("schema", "shape", "n_parameters"),
    [  # sets of the second benchmark, their tuned shapes, and results.csv
        (a_schema(8, 0), (2, 248, 2.252340225685858), 1_333_497),  # california
        (a_schema(7, 0, (7,)), (2, 360, 2.0919223290596074), 2_681_413),  # electricity
    ],
)
def test_has_the_published_number_of_parameters(
    schema: DataShape, shape: tuple[int, int, float], n_parameters: int
) -> None:
    assert size(Network(schema, Config(*shape))) == n_parameters


def package_twin(network: Network, schema: DataShape) -> nn.Module:
    """Return the package's network with the same weights."""
    package = pytest.importorskip("rtdl_revisiting_models")
    twin: nn.Module = package.FTTransformer(
        n_cont_features=schema.n_num + schema.n_bin,
        cat_cardinalities=list(schema.cardinalities),
        d_out=1,
        n_blocks=len(network.blocks),
        d_block=16,
        attention_n_heads=8,
        attention_dropout=0.0,
        ffn_d_hidden_multiplier=1.5,
        ffn_dropout=0.0,
        residual_dropout=0.0,
    )
    tokens, state = network.tokens, twin.state_dict()
    n_numbers = len(tokens.number)
    state["cls_embedding.weight"] = tokens.reader[0]
    state["cont_embeddings.weight"] = tokens.number
    state["cont_embeddings.bias"] = tokens.bias[:n_numbers]
    tables = tokens.category.weight.split(list(schema.cardinalities))
    for column, table in enumerate(tables):
        state[f"cat_embeddings.embeddings.{column}.weight"] = table
    state["cat_embeddings.bias"] = tokens.bias[n_numbers:]
    names = {
        "norm": "attention_normalization",
        "attention.query": "attention.W_q",
        "attention.key": "attention.W_k",
        "attention.value": "attention.W_v",
        "attention.mix": "attention.W_out",
        "layers_norm": "ffn_normalization",
        "layers.layer_in": "ffn.linear1",
        "layers.layer_out": "ffn.linear2",
    }
    for number, block in enumerate(network.blocks):
        for name, value in block.state_dict().items():
            layer, _, kind = name.rpartition(".")
            state[f"backbone.blocks.{number}.{names[layer]}.{kind}"] = value
    for place, name in ((0, "normalization"), (2, "linear")):
        for kind in ("weight", "bias"):
            value = getattr(network.output[place], kind)
            state[f"backbone.output.{name}.{kind}"] = value
    twin.load_state_dict(state)
    return twin


@pytest.mark.parametrize("n_blocks", [1, 3])
def test_computes_what_the_package_does(n_blocks: int) -> None:
    schema = a_schema(3, 1, (4, 2))
    network = Network(schema, Config(n_blocks, 16, 1.5, 0.0, 0.0, 0.0))
    twin = package_twin(network, schema)
    rows = some_rows(schema, 7)
    expected: Tensor = twin(torch.cat([rows.num, rows.bin], 1), rows.cat)
    torch.testing.assert_close(network(rows), expected, rtol=1e-4, atol=1e-5)


def test_a_code_without_a_level_has_the_zero_vector() -> None:
    vectors = CategoryVectors((2, 3), 4)
    nn.init.normal_(vectors.weight)
    out = vectors(torch.tensor([[1, -1], [-1, 2]]))
    assert (out[0, 1] == 0).all() and (out[1, 0] == 0).all()
    torch.testing.assert_close(out[0, 0], vectors.weight[1])
    torch.testing.assert_close(out[1, 1], vectors.weight[2 + 2])


@pytest.mark.parametrize(
    "schema", [a_schema(2, 0), a_schema(0, 2), a_schema(0, 0, (3,))]
)
def test_needs_no_particular_kind_of_column(schema: DataShape) -> None:
    network = Network(schema, Config(2, 16, 1.5, 0.1, 0.1, 0.1))
    out = network(some_rows(schema))
    assert out.shape == (5, 1)
    out.sum().backward()
    assert all(p.grad is not None for p in network.parameters() if p.numel())


def test_takes_a_published_configuration() -> None:
    params = FTTransformer.published(CONFIG)
    method = FTTransformer(Setting("regression"), 0, **params)
    assert method.config == Config(2, 248, 2.252340225685858, 0.05, 0.25, 0.1)
    assert method.training.learning_rate == 2e-4
    assert method.training.weight_decay == 1e-5


def test_refuses_a_width_that_the_heads_cannot_share() -> None:
    with pytest.raises(ValueError, match="multiple of 8, however: width=20"):
        FTTransformer(Setting("regression"), 0, width=20)
