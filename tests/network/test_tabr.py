"""The network beside the paper's equations: rows without neighbours, masks, modes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tabr.config import STEPS, EmbeddingConfig, NetworkConfig
from tabr.network.rows import Rows
from tabr.network.tabr import Context, TabR
from tabr.tables.shape import DataShape


def make(task: str = "regression", **values: object) -> TabR:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = NetworkConfig(**{"width": 8, **values})
        network = TabR(
            config, DataShape(3, 0, (), task, {"classes": 3, "binary": 2}.get(task, 0))
        )
    return network.double()


def rows(n: int, seed: int = 0) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    num = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    return Rows(num, num[:, :0], num[:, :0].long())


def context(network: TabR, b: int, m: int, found: Tensor | None = None) -> Context:
    points = network.points(rows(b * m, 1)).unflatten(0, (b, m)) if m else None
    if points is None:
        points = network.points(rows(1)).new_zeros(
            b, 0, network.points(rows(1)).shape[1]
        )
    labels = torch.linspace(-1, 1, b * m, dtype=torch.float64).view(b, m)
    if found is None:
        found = torch.ones(b, m, dtype=torch.bool)
    return Context(points, labels, found)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("m", [0, 4])
def test_rows_without_neighbours_are_predicted_and_train(step: str, m: int) -> None:
    network = make(retrieval=STEPS[step], encoder_blocks=1)
    nobody = torch.zeros(2, m, dtype=torch.bool)
    out = network(rows(2), context(network, 2, m, nobody))
    assert out.prediction.isfinite().all()
    assert (out.weights == 0).all()
    out.prediction.sum().backward()
    for parameter in network.parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all()


@pytest.mark.parametrize("step", STEPS)
def test_neighbour_that_was_not_found_has_no_influence(step: str) -> None:
    network = make(retrieval=STEPS[step]).eval()
    found = torch.tensor([[True, True, False]])
    with_junk = context(network, 1, 3, found)
    with_junk.points[0, 2] = 1e6
    without = Context(*(part[:, :2] for part in with_junk[:3]))
    a, b = network(rows(1), with_junk), network(rows(1), without)
    torch.testing.assert_close(a.prediction, b.prediction)
    torch.testing.assert_close(a.weights[:, :2], b.weights)


def test_order_of_neighbours_does_not_matter() -> None:
    network = make().eval()
    neighbors = context(network, 2, 5)
    order = torch.tensor([3, 0, 4, 1, 2])
    shuffled = Context(*(part[:, order] for part in neighbors[:3]))
    a, b = network(rows(2), neighbors), network(rows(2), shuffled)
    torch.testing.assert_close(a.prediction, b.prediction)
    torch.testing.assert_close(a.weights[:, order], b.weights)


def test_weights_sum_to_one_where_a_neighbour_was_found() -> None:
    network = make().eval()
    weights = network(rows(4), context(network, 4, 5)).weights
    torch.testing.assert_close(weights.sum(1), torch.ones(4, dtype=torch.float64))


def test_similarity_is_minus_the_squared_distance_of_keys() -> None:
    network = make().eval()
    neighbors = context(network, 2, 5)
    key = rows(2).num @ network.metric().key.T
    keys = neighbors.points @ network.metric().key.T
    expected = -(key[:, None] - keys).square().sum(-1)
    similarity = network(rows(2), neighbors).similarity
    torch.testing.assert_close(similarity, expected)


def test_dropout_acts_in_training_mode_only() -> None:
    network = make()
    neighbors = context(network, 3, 5)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first, second = (network(rows(3), neighbors).prediction for _ in range(2))
        assert not torch.equal(first, second)
        network.eval()
        first, second = (network(rows(3), neighbors).prediction for _ in range(2))
        assert torch.equal(first, second)


def test_label_embeddings_start_in_their_published_ranges() -> None:
    number = make("regression").label_value
    table = make("classes").label_value.table
    limit = 2**-0.5
    for parameter in number.parameters():
        assert parameter.abs().max() <= limit
        assert parameter.abs().max() > 0.5 * limit
    assert 0.8 < table.abs().max() <= 1


@pytest.mark.parametrize(("task", "outputs"), [("binary", 1), ("classes", 3)])
def test_two_classes_have_one_output_and_two_label_embeddings(
    task: str, outputs: int
) -> None:
    network = make(task)
    assert network.head[-1].out_features == outputs
    assert len(network.label_value.table) == max(2, outputs)


@pytest.mark.parametrize("has_found", [False, True])
@pytest.mark.parametrize(
    "shape",
    [{"encoder_blocks": 1}, {}, {"width": 2}],
    ids=["keys", "inputs", "inputs wider than keys"],
)
def test_neighbours_by_position_are_the_same_neighbours(
    has_found: bool, shape: dict[str, int]
) -> None:
    network = make(dropout=0.3, **shape)
    assert network.can_share
    positions = torch.randint(7, (4, 5), generator=torch.Generator().manual_seed(2))
    found = (positions > 0) if has_found else None
    labels = torch.linspace(-1, 1, 20, dtype=torch.float64).view(4, 5)
    results = []
    for by_position in (False, True):
        with torch.random.fork_rng():
            torch.manual_seed(0)  # the same activations drop
            points = network.points(rows(7, seed=5))
            near = Context(points[positions], labels, found)
            if by_position:
                near = Context(points, labels, found, positions)
            output = network(rows(4), near)
        loss = output.prediction.square().sum()
        results.append([*output, *torch.autograd.grad(loss, [*network.parameters()])])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("step", ["step-0", "step-1", "l2-k-v", "l2-qk-yv", "dp-k-yv"])
def test_a_network_that_reads_more_of_neighbours_does_not_share(step: str) -> None:
    assert not make(retrieval=STEPS[step], encoder_blocks=1).can_share


COLUMNS = {
    **{name: {"retrieval": retrieval} for name, retrieval in STEPS.items()},
    "scaled": {"scale_layer": True},
    "width": {"width": 2, "scale_layer": True},  # inputs are wider than keys
    "encoded": {"encoder_blocks": 1, "scale_layer": True},
    "row": {"row_embedding": EmbeddingConfig("pbld", 3, 2)},
    "both": {
        "embedding": EmbeddingConfig("bins", 3),
        "row_embedding": EmbeddingConfig("bins", 2),
    },
}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_step_without_a_column_is_one_whose_weights_it_does_not_have(
    name: str, shared: bool
) -> None:
    """Slowly: factors of columns are multiplied into all weights that read them."""
    values = {"dropout": 0.0, "context_dropout": 0.0, **COLUMNS[name]}
    network, slow = make(**values, column_dropout=0.4), make(**values)
    if shared and not network.can_share:
        pytest.skip("this network reads more of neighbours than can be shared")
    kept = torch.tensor([0.0, 2.0, 0.5], dtype=torch.float64)
    each = network.input.width // 3
    columns = kept.repeat_interleave(each)
    with torch.no_grad():
        slow.linear.weight *= columns
        if slow.row_embedding is not None:
            linear = slow.row_embedding[1]
            linear.weight *= kept.repeat_interleave(linear.in_features // 3)
    positions = torch.randint(7, (4, 5), generator=torch.Generator().manual_seed(2))
    labels = torch.linspace(-1, 1, 20, dtype=torch.float64).view(4, 5)
    results = []
    for model, factors in ((network, columns), (slow, None)):
        points = model.points(rows(7, seed=5), factors)
        near = Context(points[positions], labels)
        if shared:
            near = Context(points, labels, positions=positions)
        metric = model.metric()._replace(columns=factors)
        output = model(rows(4), near, metric)
        output.prediction.square().sum().backward()
        grads = {key: p.grad for key, p in model.named_parameters()}
        results.append((output, grads))
    (fast, of_fast), (expected, of_slow) = results
    for one, other in zip(fast, expected, strict=True):
        torch.testing.assert_close(one, other)
    assert fast.prediction.requires_grad
    of_slow["linear.weight"] *= columns
    if slow.row_embedding is not None:
        width = linear.in_features // 3
        of_slow["row_embedding.1.weight"] *= kept.repeat_interleave(width)
    for key, grad in of_fast.items():
        torch.testing.assert_close(grad, of_slow[key], msg=key)


def test_training_alone_does_without_columns() -> None:
    network = make(column_dropout=0.4)
    drawn = [network.metric().columns for _ in range(20)]
    assert any((columns == 0).any() for columns in drawn)
    assert network.eval().metric().columns is None
    assert make().metric().columns is None
