"""Contexts of training rows, and how they change."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tabr.config import STEPS, EmbeddingConfig, NetworkConfig
from tabr.device.random import dropout
from tabr.network.rows import Rows, take
from tabr.network.tabr import Context, TabR
from tabr.tables.shape import DataShape
from tabr.training.contexts import Contexts, TrainingRows, context_change

CONFIGS = {
    "tabr-s": {},
    "deep": {"encoder_blocks": 1},
    "embedded": {"embedding": EmbeddingConfig("plr-lite", 3, 2)},
    "wide": {"embedding": EmbeddingConfig("pbld-fixed", 4, 12)},  # inputs of 39
    "step-1": {"retrieval": STEPS["step-1"]},
    "step-3": {"retrieval": STEPS["step-3"]},
}


def table(n: int = 60, seed: int = 0) -> tuple[Rows, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    num = torch.randn(n, 3, generator=generator)
    y = num[:, 0] * 2 + num[:, 1].sin()
    return Rows(num, num[:, :0], num[:, :0].long()), (y - y.mean()) / y.std()


def make(name: str = "tabr-s", **values: object) -> TabR:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = NetworkConfig(**{"width": 8, **CONFIGS[name], **values})
        return TabR(config, DataShape(3, 0, (), "regression", 0))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("m", [4, 96])
@pytest.mark.parametrize("frozen", [False, True])
def test_own_label_never_influences_own_prediction(
    name: str, m: int, frozen: bool
) -> None:
    network = make(name).eval()
    rows, labels = table()
    duplicated = Rows(*(torch.cat([part, part[:5]]) for part in rows))
    labels = torch.cat([labels, labels[:5]])
    batch = torch.arange(65)

    def predictions(labels: Tensor) -> Tensor:
        contexts = Contexts(network, TrainingRows(duplicated, labels), m)
        if frozen:
            contexts.freeze()
        return network(duplicated, contexts.of(batch)).prediction.squeeze(-1)

    before = predictions(labels)
    n_seen = 0
    for i in (0, 3, 17, 30, 41, 62):
        changed = labels.clone()
        changed[i] += 5
        after = predictions(changed)
        assert after[i] == before[i]
        n_seen += int((after != before).sum())
    assert n_seen > 0  # others do see these labels


@pytest.mark.parametrize("name", CONFIGS)
def test_context_does_not_depend_on_how_neighbours_are_encoded(name: str) -> None:
    network = make(name).eval()
    rows, labels = table()
    contexts = Contexts(network, TrainingRows(rows, labels), 4)
    few, many = torch.tensor([5, 9]), torch.arange(60)  # 2 x 4 < 60 <= 60 x 4
    one, all_ = contexts.of(few), contexts.of(many)
    assert one.found is all_.found is None  # everybody found four
    for part, whole in zip(one[:2], all_[:2], strict=True):
        torch.testing.assert_close(part, whole[few])


@pytest.mark.parametrize(
    ("name", "width", "most"),
    [("embedded", 40, 4), ("embedded", 200, 2), ("wide", 16, 4)],
)
def test_few_candidates_are_multiplied_before_they_are_paired(
    name: str, width: int, most: int
) -> None:
    network = make(name, width=width).eval()
    rows, labels = table()
    contexts = Contexts(network, TrainingRows(rows, labels), 4)
    b = 60 * most // 4
    few, many = contexts.of(torch.arange(b - 1)), contexts.of(torch.arange(b))
    assert few.positions is None  # most x 60 candidates > (b - 1) x 4 pairs
    assert many.positions is not None and len(many.points) == 60
    gathered = Context(many.points[many.positions], many.labels, many.found)
    first = Rows(*(part[:b] for part in rows))
    one, other = network(first, many), network(first, gathered)
    torch.testing.assert_close(one, other)


def test_neighbours_are_gradient_sources_where_points_are_learned() -> None:
    rows, labels = table()
    for name, learned in (("tabr-s", False), ("deep", True)):
        network = make(name)
        for batch in (torch.tensor([1, 2]), torch.arange(60)):
            context = Contexts(network, TrainingRows(rows, labels), 4).of(batch)
            assert context.points.requires_grad == learned


def test_frozen_contexts_stay_while_the_network_moves() -> None:
    network = make("deep").eval()
    rows, labels = table()
    contexts = Contexts(network, TrainingRows(rows, labels), 4)
    batch = torch.arange(60)
    contexts.freeze()
    assert contexts.frozen is not None
    before, frozen = contexts.of(batch), contexts.frozen.position.clone()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0, 1, generator=torch.Generator().manual_seed(3))
    after = contexts.of(batch)
    assert torch.equal(contexts.frozen.position, frozen)
    assert torch.equal(before.labels, after.labels)  # the same neighbours
    assert not torch.equal(before.points, after.points)  # encoded anew


def test_freezing_changes_no_neighbour_at_that_moment() -> None:
    network = make().eval()
    contexts = Contexts(network, TrainingRows(*table()), 4)
    fresh = contexts.of(torch.arange(60))
    contexts.freeze()
    for a, b in zip(fresh[:2], contexts.of(torch.arange(60))[:2], strict=True):
        assert torch.equal(a, b)


def test_context_change_is_the_papers_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    old, new = (
        torch.stack([torch.randperm(12, generator=generator)[:5] for _ in range(40)])
        for _ in range(2)
    )
    a, b = (torch.rand(40, 5, generator=generator).softmax(1) for _ in range(2))
    b[:3, 2:] = 0  # not found
    ours = context_change(old, a, new, b)
    for i in range(40):
        before = dict(zip(old[i].tolist(), a[i].tolist(), strict=True))
        now = dict(zip(new[i].tolist(), b[i].tolist(), strict=True))
        novel = sum(w for k, w in now.items() if k not in before)
        both = now.keys() & before.keys()
        grown = sum(now[k] for k in both) - sum(before[k] for k in both)
        assert ours[i].item() == pytest.approx(novel + max(grown, 0), abs=1e-6)
    assert context_change(old, a, old, a).abs().max() < 1e-6


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("frozen", [False, True])
def test_a_part_is_searched_as_if_the_others_were_not_there(
    name: str, frozen: bool
) -> None:
    rows, labels = table()
    part = torch.arange(60)[torch.arange(60) % 3 != 1]
    network = make(name).eval()
    with_part = Contexts(network, TrainingRows(rows, labels, part=part), 7)
    alone = Contexts(network, TrainingRows(rows.take(part), labels[part]), 7)
    if frozen:
        with_part.freeze()
        alone.freeze()
    places = torch.tensor([3, 0, 39, 17])
    near = with_part.neighbors(part[places], with_part.snapshot(4))
    expected = alone.neighbors(places, alone.snapshot(4))
    assert torch.equal(near.position, part[expected.position])
    ours, theirs = with_part.of(part[places]), alone.of(places)
    assert torch.equal(ours.labels, theirs.labels)
    torch.testing.assert_close(with_part.weighted()[1], alone.weighted()[1])


def test_no_row_of_a_part_meets_itself_or_who_is_held_out() -> None:
    rows, labels = table()
    part = torch.tensor([2, 3, 5, 8, 13, 21, 34, 55])
    contexts = Contexts(make().eval(), TrainingRows(rows, labels, part=part), 20)
    near = contexts.neighbors(part, contexts.snapshot(len(part)))
    for row, positions, found in zip(part, *near, strict=True):
        others = set(positions[found].tolist())
        assert others == set(part.tolist()) - {int(row)}


def test_a_step_finds_neighbours_among_a_share_that_is_drawn_for_it() -> None:
    rows, labels = table()
    network, batch = make(), torch.arange(0, 60, 7)
    contexts = Contexts(network, TrainingRows(rows, labels), 9, share=0.4)
    torch.manual_seed(5)
    found = contexts.neighbors(batch, contexts.snapshot(len(batch)))
    torch.manual_seed(5)
    drawn = dropout(torch.ones(60), 0.6) > 0
    keys = network.points(rows) @ network.metric().key.T
    distances = torch.cdist(keys[batch], keys)
    distances[:, ~drawn] = torch.inf
    distances[torch.arange(len(batch)), batch] = torch.inf
    expected = distances.argsort(1)[:, :9]
    for ours, theirs in zip(found.position, expected, strict=True):
        assert set(ours.tolist()) == set(theirs.tolist())
    again = contexts.neighbors(batch, contexts.snapshot(len(batch)))
    assert not torch.equal(again.position, found.position)  # another draw


def test_predictions_look_at_all_candidates() -> None:
    rows, labels = table()
    network = make().eval()
    sampled = Contexts(network, TrainingRows(rows, labels), 9, share=0.4)
    whole = Contexts(network, TrainingRows(rows, labels), 9)
    ours, theirs = sampled.weighted(), whole.weighted()
    assert torch.equal(ours[0], theirs[0])


def test_a_row_may_find_fewer_than_m_of_a_share() -> None:
    rows, labels = table(12)
    contexts = Contexts(make(), TrainingRows(rows, labels), 11, share=0.3)
    context = contexts.of(torch.arange(12))
    assert context.found is not None and not context.found.all()
    output = contexts.network(rows, context).prediction
    assert torch.isfinite(output).all()


@pytest.mark.parametrize("name", ["tabr-s", "step-1", "step-3"])
def test_neighbours_are_found_by_all_columns(name: str) -> None:
    """The search of a step is that of a network that does without none."""
    rows, labels = table()
    data, batch = TrainingRows(rows, labels), torch.arange(60)
    contexts = Contexts(make(name, column_dropout=0.9), data, 4)
    expected = Contexts(make(name), data, 4).of(batch)
    n_without = 0
    for _ in range(5):
        snapshot = contexts.snapshot(len(batch))
        found = contexts.context(contexts.neighbors(batch, snapshot), snapshot)
        torch.testing.assert_close(found.labels, expected.labels)
        assert snapshot.metric.columns is not None
        n_without += int((snapshot.metric.columns == 0).any())
    assert n_without == 5


@pytest.mark.parametrize("b", [2, 60])
def test_encoded_neighbours_are_without_a_column_as_their_row_is(b: int) -> None:
    network = make("deep", column_dropout=0.5, dropout=0.0)
    rows, labels = table()
    contexts = Contexts(network, TrainingRows(rows, labels), 4)
    batch = torch.arange(b)
    n_without = 0
    for _ in range(10):
        snapshot = contexts.snapshot(b)
        columns = snapshot.metric.columns
        near = contexts.neighbors(batch, snapshot)
        found = contexts.context(near, snapshot)
        points = found.points
        if found.positions is not None:
            points = points[found.positions]
        expected = network.points(rows.take(near.position), columns)
        torch.testing.assert_close(points, expected)
        n_without += int(
            not torch.equal(points, network.points(rows.take(near.position)))
        )
    assert n_without > 5


@pytest.mark.parametrize(("n_num", "shares"), [(2, False), (50, True)])
def test_products_are_shared_where_zeros_are_not_passed_by(
    n_num: int, shares: bool
) -> None:
    """Both points have 52 numbers: two and fifty levels, or numbers alone."""
    pytest.importorskip("numba")
    n, generator = 4000, torch.Generator().manual_seed(0)
    num = torch.randn(n, n_num, generator=generator)
    cat = torch.randint(50 if n_num == 2 else 2, (n, 1), generator=generator)
    levels = (50,) if n_num == 2 else (2,)
    rows = Rows(num, num[:, :0], cat)
    shape = DataShape(n_num, 0, levels, "regression", 0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = TabR(NetworkConfig(width=64), shape)
    contexts = Contexts(network, TrainingRows(rows, num[:, 0]), 96)
    context = contexts.of(torch.arange(256))
    assert (context.positions is not None) == shares
    expected = take(network.points(rows), contexts.neighbors(
        torch.arange(256), contexts.snapshot(256)
    ).position)  # fmt: skip
    points = context.points if not shares else take(context.points, context.positions)
    torch.testing.assert_close(points, expected)
