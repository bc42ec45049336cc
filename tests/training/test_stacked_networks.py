"""Networks run as one, against each of them alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tabr.config import STEPS, EmbeddingConfig, NetworkConfig, Task, TrainingConfig
from tabr.device.cuda_graphs import Lane
from tabr.network.rows import Rows
from tabr.network.tabr import TabR
from tabr.tables.shape import DataShape
from tabr.training.contexts import Contexts, TrainingRows
from tabr.training.loop import Job, fit_networks
from tabr.training.losses import BatchLoss
from tabr.training.stacked_networks import Stack, StackedLosses, share_storage

CPU = torch.device("cpu")
CONFIGS = {
    **{name: {"retrieval": retrieval} for name, retrieval in STEPS.items()},
    "deep": {"encoder_blocks": 1, "predictor_blocks": 2},
    "embedded": {"embedding": EmbeddingConfig("plr-lite", 3, 2)},
    "plr": {"embedding": EmbeddingConfig("plr", 3, 2)},
    "lr": {"embedding": EmbeddingConfig("lr", 3)},
    "scaled": {"scale_layer": True, "row_embedding": EmbeddingConfig("pbld", 3, 2)},
    "heads": {"n_heads": 3, "row_embedding": EmbeddingConfig("bins", 4)},
}


def table(task: Task, n: int = 60, seed: int = 0) -> tuple[Rows, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    num = torch.randn(n, 3, generator=generator)
    codes = torch.randint(-1, 4, (n, 1), generator=generator)
    rows = Rows(num, (num[:, :1] > 0).float(), codes)
    y = num[:, 0] * 2 + num[:, 1].sin() + codes[:, 0]
    if task == "regression":
        return rows, (y - y.mean()) / y.std()
    return rows, (y > 0).long() + (y > 1).long() * (task == "classes")


def networks(task: Task, n: int, dropout: float = 0.0, **values: object) -> list[TabR]:
    rates = {"dropout": dropout, "context_dropout": dropout}
    config = NetworkConfig(width=8, **rates, **values)
    n_classes = {"regression": 0, "binary": 2, "classes": 3}[task]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return [TabR(config, DataShape(3, 1, (4,), task, n_classes)) for _ in range(n)]


def close(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return bool((a - b).norm() <= 1e-9 * (1e-3 + b.norm()))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("task", ["regression", "binary", "classes"])
@pytest.mark.parametrize("m", [4, 70])
@pytest.mark.parametrize("in_parts", [False, True])
def test_losses_and_gradients_are_those_of_each_network_alone(
    name: str, task: Task, m: int, in_parts: bool
) -> None:
    rows, labels = table(task)
    rows = rows.in_precision(torch.float64)
    labels = labels.double() if task == "regression" else labels
    weights = torch.rand(60, generator=torch.Generator().manual_seed(1)).double()
    members = [network.double() for network in networks(task, 3, **CONFIGS[name])]
    data = TrainingRows(rows, labels, weights)
    of_each = [data] * 3
    if in_parts:  # each holds out other rows, none of its batch
        everybody = torch.arange(60)
        held_out = [everybody[40:52], everybody[:12], everybody[15:27]]
        parts = [everybody[~torch.isin(everybody, out)] for out in held_out]
        of_each = [replace(data, part=part) for part in parts]
    losses = [
        BatchLoss(Contexts(n, rows_of_one, m), task)
        for n, rows_of_one in zip(members, of_each, strict=True)
    ]
    batches = torch.stack([torch.arange(k, k + 9) for k in (0, 20, 3)])
    for b in (9, 2):  # all candidates are encoded, or the neighbours alone
        expected = []
        for network, loss, batch in zip(members, losses, batches, strict=True):
            network.zero_grad()
            value = loss(batch[:b])
            value.backward()
            expected.append((value, [p.grad for p in network.parameters()]))
        if b == 2:
            share_storage(members)
        as_one = StackedLosses(losses, [Lane(CPU) for _ in members])
        joint = as_one.gradients(batches[:, :b])
        for network, value, alone in zip(members, joint, expected, strict=True):
            assert close(value, alone[0].detach())
            grads = [p.grad for p in network.parameters()]
            assert all(map(close, grads, alone[1]))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("places", [(0, 1, 2, 3), (0, 1), (1, 3), (0, 1, 3), (2,)])
def test_a_stack_follows_its_networks_and_changes_none(
    shared: bool, places: tuple[int, ...]
) -> None:
    everybody = networks("regression", 4)
    if shared:
        before = [p.detach().clone() for n in everybody for p in n.parameters()]
        share_storage(everybody)
        after = [p.detach() for n in everybody for p in n.parameters()]
        assert all(map(torch.equal, before, after))
    members = [everybody[place] for place in places]
    stack = Stack(members)
    in_place = stack.tensors["linear.weight"].data_ptr() in {
        network.linear.weight.data_ptr() for network in everybody
    }
    assert in_place == (len(places) == 1 or (shared and places != (0, 1, 3)))
    for _ in range(2):
        before = [p.detach().clone() for n in members for p in n.parameters()]
        stack.follow()
        names = dict(members[0].named_parameters())
        for place, network in enumerate(members):
            for name, parameter in network.named_parameters():
                assert torch.equal(stack.tensors[name][place], parameter)
        assert stack.tensors.keys() == names.keys()
        after = [p.detach() for n in members for p in n.parameters()]
        assert all(map(torch.equal, before, after))
        with torch.no_grad():
            for parameter in members[-1].parameters():
                parameter.add_(1)


def equal_members(**values: object) -> tuple[Tensor, Tensor]:
    """Losses of one batch: (200, 3) of three equal members as one, (600,) of one."""
    members = networks("regression", 3, **values)
    rows, labels = table("regression")
    data = TrainingRows(rows, labels)
    losses = [BatchLoss(Contexts(n, data, 9), "regression") for n in members]
    for network in members[1:]:
        network.load_state_dict(members[0].state_dict())
    as_one = StackedLosses(losses, [Lane(CPU) for _ in members])
    batches = torch.arange(60).expand(3, 60)
    joint = torch.stack([as_one.gradients(batches) for _ in range(200)])
    alone = torch.stack([losses[0](batches[0]).detach() for _ in range(600)])
    return joint, alone


def test_members_drop_other_numbers_but_as_many() -> None:
    values, alone = equal_members(dropout=0.4)
    # Draws of their own: few of 600 float32 can be equal by chance, shared draws 400.
    assert len(values.unique()) > 590
    spread = float(alone.std()) / 600**0.5
    assert abs(float(values.mean() - alone.mean())) < 5 * spread
    assert 0.8 < float(values.std() / alone.std()) < 1.25


@pytest.mark.parametrize("name", ["tabr-s", "scaled", "deep"])
def test_members_do_without_other_columns(name: str) -> None:
    values, alone = equal_members(column_dropout=0.4, **CONFIGS.get(name, {}))
    # Five columns can be kept and dropped in 32 ways, and equal ones give equal losses.
    patterns = values.round(decimals=4).unique()
    assert 12 < len(patterns) <= 32
    assert len(torch.cat([patterns, alone.round(decimals=4)]).unique()) <= 33
    assert (values[:, 0] != values[:, 1]).double().mean() > 0.5
    spread = float(alone.std()) / 600**0.5
    assert abs(float(values.mean() - alone.mean())) < 6 * spread


@pytest.mark.parametrize("name", ["deep", "embedded"])
def test_members_draw_where_all_candidates_are_encoded_for_the_search(
    name: str,
) -> None:
    members = networks("regression", 2, dropout=0.4, **CONFIGS[name])
    rows, labels = table("regression")
    data = TrainingRows(rows, labels)
    losses = [BatchLoss(Contexts(n, data, 4), "regression") for n in members]
    as_one = StackedLosses(losses, [Lane(CPU) for _ in members])
    batches = torch.arange(4).view(2, 2)  # 2 rows x 4 neighbours are fewer than all
    values = torch.cat([as_one.gradients(batches) for _ in range(5)])
    assert values.isfinite().all()
    assert len(values.unique()) == 10


def test_members_stop_one_by_one_as_they_would_alone() -> None:
    rows, labels = table("regression", 200)
    config = TrainingConfig(1e-2, batch_size=64, patience=2, max_epochs=40)

    def fit(places: Sequence[int]) -> list[list[float]]:
        chosen = [networks("regression", 3)[place] for place in places]
        data = TrainingRows(rows, labels)
        losses = [BatchLoss(Contexts(n, data, 9), "regression") for n in chosen]
        lanes = [Lane(CPU) for _ in chosen]
        every = torch.arange(200)
        jobs = [
            Job(
                loss.contexts.network,
                loss,
                lambda loss=loss: loss(every)[None],
                lambda output: -float(output),
                torch.Generator().manual_seed(place),
                lane,
            )
            for place, loss, lane in zip(places, losses, lanes, strict=True)
        ]

        def joint(left: Sequence[int]) -> StackedLosses:
            shapes.append(len(left))
            return StackedLosses([losses[i] for i in left], [lanes[i] for i in left])

        shapes: list[int] = []
        as_one = joint if len(places) > 1 else None
        histories = fit_networks(jobs, 200, config, joint=as_one)
        assert sorted(shapes, reverse=True) == shapes
        assert not as_one or (shapes[0] == len(places) and len(shapes) > 1)
        return [history.score for history in histories]

    joint = fit([0, 1, 2])
    alone = [fit([place])[0] for place in (0, 1, 2)]
    assert len({len(scores) for scores in alone}) > 1
    for ours, theirs in zip(joint, alone, strict=True):
        assert ours == pytest.approx(theirs, rel=0.02)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("width", [3, 200])
def test_on_a_gpu_each_draws_what_it_would_draw_alone(name: str, width: int) -> None:
    device = torch.device("cuda")
    generator = torch.Generator().manual_seed(0)
    num = torch.randn(600, width, generator=generator).to(device)
    rows = Rows(num, num[:, :0], num[:, :0].long())
    labels = num[:, 0] * 2 + num[:, 1].sin()
    rates = {"dropout": 0.3, "context_dropout": 0.2, "block_dropout": 0.1}
    rates["column_dropout"] = 0.2
    config = NetworkConfig(width=40, **rates, **CONFIGS[name])
    batches = torch.randint(600, (3, 70), generator=generator).to(device)

    def build() -> tuple[list[BatchLoss], list[Lane]]:
        lanes = [Lane(device, seed) for seed in (7, 8, 9)]
        losses = []
        for lane in lanes:
            with torch.random.fork_rng(devices=[device]), lane:
                torch.default_generator.manual_seed(0)
                network = TabR(config, DataShape(width, 0, (), "regression", 0)).to(
                    device
                )
                contexts = Contexts(network, TrainingRows(rows, labels), 20)
                contexts.freeze()  # rounding would exchange neighbours that almost tie
                losses.append(BatchLoss(contexts, "regression"))
        torch.cuda.synchronize()
        return losses, lanes

    losses, lanes = build()
    expected = []
    for _ in range(2):
        for loss, lane, batch in zip(losses, lanes, batches, strict=True):
            network = loss.contexts.network
            network.zero_grad()
            with lane:
                value = loss(batch)
                value.backward()
            torch.cuda.synchronize()
            grads = [parameter.grad for parameter in network.parameters()]
            expected.append([value.detach(), *grads])
    losses, lanes = build()
    as_one, found = StackedLosses(losses, lanes), []
    for _ in range(2):
        with as_one.lane:
            values = as_one.gradients(batches)
        torch.cuda.synchronize()
        for loss, value in zip(losses, values, strict=True):
            found.append([value, *(p.grad for p in loss.contexts.network.parameters())])
    n_seen = 0
    for ours, theirs in zip(found, expected, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            if a is None or b is None:
                assert a is b
                continue
            n_seen += 1
            # Activations within rounding of zero may fall on either side.
            assert float((a - b).norm()) <= 1e-3 * float(b.norm()) + 1e-5
    assert n_seen > 10
    assert len({float(ours[0]) for ours in found}) == 6
