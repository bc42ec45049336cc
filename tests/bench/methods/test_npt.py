"""NPT is the official network, and a row meets itself and training rows alone."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tabr.bench.methods import Setting
from tabr.bench.methods.npt import (
    NPT,
    Block,
    Cells,
    Config,
    LookaheadLamb,
    Network,
    cell_losses,
    learning_rate_at,
    weight_of_cells_at,
    with_more_holes,
)
from tests.bench.methods.checks import SETTINGS, parts

SMALL = {"n_layers": 2, "width": 8, "n_heads": 2, "n_steps": 12, "batch_size": 70}


def some_cells(n: int, n_numbers: int = 2, levels: tuple[int, ...] = (3, 2)) -> Cells:
    codes = [torch.randint(k, (n, 1)) for k in levels]
    hole = torch.rand(n, n_numbers + len(levels)) < 0.3
    empty = torch.empty(n, 0, dtype=torch.int64)
    return Cells(torch.randn(n, n_numbers), torch.cat([empty, *codes], 1), hole)


@cache
def fitted(kind: str, label_masking: float = 0.15) -> NPT:
    data = parts(kind)
    method = NPT(SETTINGS[kind], 0, label_masking=label_masking, **SMALL)
    return method.fit(data.train, data.val)


def size(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def test_has_as_many_parameters_as_layers_by_column_would_have() -> None:
    n_numbers, levels, width = 3, (4, 2), 16
    columns = [2] * n_numbers + [n + 1 for n in levels]  # a value or levels, and a hole
    expected = len(columns) * width + 2 * width  # vectors of places and kinds
    for d_in in columns:
        expected += (d_in + 1) * width + (width + 1) * (d_in - 1)
    for d in (len(columns) * width, width) * 2:
        expected += 5 * (d + 1) * d + (d + 1) * 4 * d + (4 * d + 1) * d + 4 * d
    assert size(Network(n_numbers, levels, Config(4, width))) == expected


def slow_block(block: Block, x: Tensor, allowed: list[list[int]]) -> Tensor:
    """Attend slowly: x (n, width); item i to the items at allowed[i]."""
    width, n_heads = x.shape[1], block.attention.n_heads
    d = width // n_heads
    layer = block.attention
    query, key, value = layer.query(block.norm(x)), layer.key(x), layer.value(x)
    mixed = torch.zeros_like(x)
    for item, others in enumerate(allowed):
        for head in range(n_heads):
            part = slice(head * d, (head + 1) * d)
            scores = torch.stack([query[item, part] @ key[j, part] for j in others])
            weights = (scores / width**0.5).softmax(0)
            mixed[item, part] = sum(
                weight * value[j, part]
                for weight, j in zip(weights, others, strict=True)
            )
    hidden = block.shortcut(x) + layer.mix(mixed)
    norm, first, _, _, second, _ = block.layers
    return hidden + second(F.gelu(first(norm(hidden))))


def slow_tokens(network: Network, cells: Cells, levels: tuple[int, ...]) -> Tensor:
    """Embed each column by a linear layer of its value, or levels, and its hole."""
    tokens, columns = network.tokens, []
    n_numbers, tables = cells.number.shape[1], network.tokens.level.weight.split(levels)
    for column in range(cells.hole.shape[1]):
        hole = cells.hole[:, [column]].float()
        if column < n_numbers:
            known, weight = cells.number[:, [column]], tokens.number[column]
        else:
            j = column - n_numbers
            known = F.one_hot(cells.code[:, j], levels[j]).float()
            weight = torch.cat([tables[j], tokens.no_level[[j]]])
        inputs = torch.cat([known * (1 - hole), hole], 1)
        kind = tokens.kind[0 if column < n_numbers else 1]
        columns.append(
            inputs @ weight + tokens.bias[column] + tokens.place[column] + kind
        )
    return torch.stack(columns, 1)


@pytest.mark.parametrize("n_rows", [0, 2])
def test_is_what_the_slow_transcription_says(n_rows: int) -> None:
    levels, n_context, width = (3, 2), 4, 8
    network = Network(2, levels, Config(4, width, 2, 0.0))
    cells = some_cells(n_rows + n_context, 2, levels)
    context = list(range(n_rows, n_rows + n_context))
    allowed = [[*context, i] for i in range(n_rows)] + [context] * n_context
    with torch.no_grad():
        x = slow_tokens(network, cells, levels)
        every = [list(range(4))] * 4
        for number, block in enumerate(network.blocks):
            if number % 2 == 0:
                x = slow_block(block, x.flatten(1), allowed).view(x.shape)
            else:
                x = torch.stack([slow_block(block, row, every) for row in x])
        numbers, probabilities = network(cells, n_context)
        answers = network.answers
        expected = (x[:, :2] * answers.number).sum(-1) + answers.number_bias
        torch.testing.assert_close(numbers, expected, rtol=1e-4, atol=1e-5)
        biases = answers.level_bias.split(levels)
        for column, table in enumerate(answers.level.split(levels)):
            own = (x[:, 2 + column] @ table.T + biases[column]).log_softmax(-1)
            found = probabilities[:, column]
            torch.testing.assert_close(
                found[:, : len(table)], own, rtol=1e-4, atol=1e-5
            )
            assert (found[:, len(table) :] == -torch.inf).all()


def test_what_stands_in_a_hole_is_of_no_importance() -> None:
    network, cells = Network(2, (3, 2), Config(2, 8, 2, 0.0)), some_cells(5)
    number = torch.where(cells.hole[:, :2], 77.0, cells.number)
    code = torch.where(cells.hole[:, 2:], -1, cells.code)
    other = network(Cells(number, code, cells.hole), 5)
    for found, expected in zip(other, network(cells, 5), strict=True):
        torch.testing.assert_close(found, expected)


def test_chosen_cells_are_hidden_or_replaced() -> None:
    cells, n = some_cells(4000), 4000
    chance, noise = torch.tensor([0.2, 0.0, 0.5, 0.9]), torch.tensor([0.0, 0, 0, 0.5])
    more, chosen = with_more_holes(cells, chance, noise, torch.tensor([3.0, 2.0]))
    assert not (chosen & cells.hole).any()  # nobody knows the answer
    free = (~cells.hole).sum(0)
    np.testing.assert_allclose(chosen.sum(0) / free, chance, atol=0.05)
    hidden = more.hole & ~cells.hole
    np.testing.assert_allclose(hidden.sum(0) / free, chance * (1 - noise), atol=0.05)
    replaced = chosen & ~more.hole
    assert (more.hole | replaced | ~chosen).all()
    same = torch.cat([more.number == cells.number, more.code == cells.code], 1)
    assert same[~replaced].all()
    share = same[:, 3][replaced[:, 3]].float().mean()  # one of two levels, at random
    assert abs(share - 0.5) < 0.1 and len(same) == n
    assert more.code.min() >= 0 and (more.code < torch.tensor([3, 2])).all()


def test_a_cell_costs_a_square_or_minus_its_log_probability() -> None:
    truth = Cells(
        torch.tensor([[1.0]]), torch.tensor([[2]]), torch.zeros(1, 2, dtype=torch.bool)
    )
    levels = torch.tensor([[[0.2, 0.3, 0.5]]]).log()
    losses = cell_losses(torch.tensor([[3.0]]), levels, truth)
    np.testing.assert_allclose(losses, [[4.0, np.log(2)]], rtol=1e-6)


def test_loss_is_the_mean_of_what_was_chosen() -> None:
    method = fitted("classes")
    index = torch.arange(50)
    truth = method._cells(method.rows.take(index), method.labels[index])
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(3)
        cells, chosen = with_more_holes(truth, *method.chances)
        losses = cell_losses(*method.network(cells, 50), truth)
        expected = losses[:, -1][chosen[:, -1]].mean(), losses[:, :-1][chosen[:, :-1]]
        torch.manual_seed(3)
        of_labels = method.table_loss(index, 0.0)
        torch.manual_seed(3)
        of_cells = method.table_loss(index, 1.0)
    torch.testing.assert_close(of_labels, expected[0])
    torch.testing.assert_close(of_cells, expected[1].mean())


@pytest.mark.parametrize("kind", ["regression", "classes"])
def test_labels_of_the_context_are_seen_unless_all_are_masked(kind: str) -> None:
    data = parts(kind)
    for label_masking, seen in ((0.15, True), (1.0, False)):
        method = fitted(kind, label_masking)
        before, context = method.predict(data.test.X), method.context
        column = context.number if kind == "regression" else context.code
        other = column.clone()
        other[:, -1] = 2 - other[:, -1]
        name = "number" if kind == "regression" else "code"
        method.context = context._replace(**{name: other})
        after = method.predict(data.test.X)
        method.context = context
        assert np.allclose(before, after) is not seen


def test_the_context_of_predictions_are_training_rows() -> None:
    method = fitted("regression")
    known = torch.cat([method.rows.num, method.rows.bin, method.labels[:, None]], 1)
    context = method.context.number
    assert len(context) == 70
    assert torch.cdist(context, known).min(1).values.max() < 1e-3


def test_the_rate_falls_late_and_cells_lose_weight() -> None:
    shares = np.linspace(0, 1, 101)
    rates = [learning_rate_at(share) for share in shares]
    assert rates[:70] == [1.0] * 70 and rates[-1] == pytest.approx(0, abs=1e-9)
    assert rates[85] == pytest.approx(0.5, abs=1e-9)
    weights = [weight_of_cells_at(share) for share in shares]
    assert weights[0] == 1 and weights[50] == pytest.approx(0.5)
    assert weights[-1] == 0 and (np.diff(weights) < 0).all()


def test_takes_as_many_steps_as_asked_for_in_batches_of_one_size() -> None:
    data = parts("regression")
    method = NPT(SETTINGS["regression"], 0, **{**SMALL, "n_steps": 13})
    method.fit(data.train, data.val)
    assert method.training.batch_size == 70 and len(method.history.score) == 7
    assert method.lamb.n_done == method.lamb.n_steps == 14
    assert method.lamb.share == 1


def test_is_not_tuned_and_has_batches_of_its_own() -> None:
    method = NPT(Setting("regression"), 0)
    assert method.config == Config(8, 64, 8, 0.1, n_steps=2000)
    assert method.training.batch_size == 4096
    assert not NPT.has_batches


def test_refuses_a_width_that_the_heads_cannot_share() -> None:
    with pytest.raises(ValueError, match="multiple of n_heads"):
        NPT(Setting("regression"), 0, width=20)


# --- the optimizer --------------------------------------------------------------------


def slow_lamb(start: Tensor, gradients: list[Tensor], rate: float) -> Tensor:
    """Follow one tensor, number by number where it matters."""
    x, slow = start.clone().double(), None
    first, second = torch.zeros_like(x), torch.zeros_like(x)
    for number, gradient in enumerate(gradients, 1):
        g = gradient.double().clamp(-1, 1)
        first = 0.9 * first + 0.1 * g
        second = 0.999 * second + 0.001 * g * g
        step = first / (second.sqrt() + 1e-6)
        long, wide = min(float(x.norm()), 10.0), float(step.norm())
        ratio = long / wide if long > 0 and wide > 0 else 1.0
        x = x - rate * ratio * step
        if number % 6 == 0:
            slow = x if slow is None else slow + 0.5 * (x - slow)
            x = slow.clone()
    return x.float()


def test_lamb_follows_the_slow_transcription() -> None:
    generator = torch.Generator().manual_seed(0)
    starts = [
        torch.randn(3, 4, generator=generator),
        100 * torch.randn(5, generator=generator),  # longer than counts
        torch.zeros(4),  # of no length
    ]
    gradients = [
        [3 * torch.randn(start.shape, generator=generator) for _ in range(20)]
        for start in starts
    ]
    parameters = [start.clone().requires_grad_() for start in starts]
    optimizer = LookaheadLamb([*parameters, torch.empty(0, 3)], 0.01, torch.inf)
    for number in range(20):
        for parameter, of_it in zip(parameters, gradients, strict=True):
            parameter.grad = of_it[number]
        optimizer.step()
    for parameter, start, of_it in zip(parameters, starts, gradients, strict=True):
        expected = slow_lamb(start, of_it, 0.01)
        torch.testing.assert_close(parameter.detach(), expected, rtol=1e-4, atol=1e-5)


def test_a_step_of_lamb_is_as_long_as_the_tensor_times_the_rate() -> None:
    x = torch.full((4,), 2.0, requires_grad=True)  # of length 4
    x.grad = torch.tensor([1e-3, -5.0, 0.2, 7.0])
    before = x.detach().clone()
    LookaheadLamb([x], 0.1, torch.inf).step()
    torch.testing.assert_close((x.detach() - before).norm(), torch.tensor(0.4))


def test_lamb_leaves_gradients_as_they_are() -> None:
    x = torch.ones(2, requires_grad=True)
    x.grad = torch.tensor([5.0, -5.0])
    LookaheadLamb([x], 0.1, torch.inf).step()
    torch.testing.assert_close(x.grad, torch.tensor([5.0, -5.0]))
