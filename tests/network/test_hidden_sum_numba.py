"""The hidden sum of T in compiled loops, against plain torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from tabr.device.compiled import has_numba
from tabr.network import hidden_sum_cpu
from tabr.network.hidden_sum import _kernel, hidden_sum

pytest.importorskip("numba")
from tabr.device.tiles_numba import TILE
from tabr.network.hidden_sum_numba import Dense, Shared
from tabr.network.sparse_numba import Sparse

RATE = 0.38852797479169876

shapes = pytest.mark.parametrize(
    ("b", "m", "p", "h"),
    [
        (1, 1, 1, 1),
        (1, 96, 8, 530),
        (7, 1, 3, TILE),
        (5, 6, 4, 13),
        (3, 7, 16, TILE + 1),
        (4, 9, 31, 2 * TILE - 1),
        (33, 3, 32, 77),
        (6, 10, TILE + 3, 40),
    ],
)
both_forms = pytest.mark.parametrize("form", [Dense, Sparse])
both_types = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
both_counts = pytest.mark.parametrize("n_threads", [1, 2])


def inputs(
    b: int,
    m: int,
    p: int,
    h: int,
    dtype: torch.dtype = torch.float64,
    form: Any = Dense,
) -> list[Tensor]:
    """Arguments; differences for the sparse form are mostly zero, without gradient."""
    generator = torch.Generator().manual_seed(0)
    arguments = [
        torch.randn(shape, generator=generator).to(dtype)
        for shape in [(b, m, p), (b, m), (h, p), (h,)]
    ]
    if form is Sparse:
        arguments[0] *= torch.rand(b, m, p, generator=generator) < 0.3
    for argument in arguments[form is Sparse :]:
        argument.requires_grad_()
    return arguments


@contextmanager
def threads(n: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def seeded(form: Any, *arguments: Any) -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return form.apply(*arguments)


def masks(b: int, m: int, h: int, rate: float, dtype: torch.dtype) -> Tensor:
    """The factors (b, m, h) of a seed: each neighbour by itself has activations 1."""
    weight, bias = torch.zeros(h, 1, dtype=dtype), torch.ones(h, dtype=dtype)
    difference = torch.zeros(b, m, 1, dtype=dtype)
    alone = torch.eye(m, dtype=dtype)
    columns = [
        seeded(Dense, difference, w.repeat(b, 1), weight, bias, rate) for w in alone
    ]
    return torch.stack(columns, 1)


def plain(
    difference: Tensor, weights: Tensor, weight: Tensor, bias: Tensor, mask: Any
) -> Tensor:
    hidden = (difference @ weight.T + bias).relu() * mask
    return (weights[:, :, None] * hidden).sum(1)


def check(sums: Tensor, expected: Tensor, arguments: list[Tensor]) -> None:
    """Compare sums and all gradients, up to the rounding of their type."""
    exact = sums.dtype == torch.float64
    rtol, atol = (1e-9, 1e-11) if exact else (1e-4, 1e-3)
    g = torch.randn(sums.shape, generator=torch.Generator().manual_seed(1)).to(sums)
    arguments = [argument for argument in arguments if argument.requires_grad]
    gradients = [
        torch.autograd.grad((out * g).sum(), arguments) for out in (sums, expected)
    ]
    torch.testing.assert_close(sums, expected, rtol=rtol, atol=atol)
    for gradient, plain_gradient in zip(*gradients, strict=True):
        torch.testing.assert_close(gradient, plain_gradient, rtol=rtol, atol=atol)


@shapes
@both_forms
@both_types
@both_counts
@pytest.mark.parametrize("rate", [0.0, RATE])
def test_sums_and_gradients_are_those_of_plain_torch(
    b: int,
    m: int,
    p: int,
    h: int,
    form: Any,
    dtype: torch.dtype,
    n_threads: int,
    rate: float,
) -> None:
    arguments = inputs(b, m, p, h, dtype, form)
    with threads(n_threads):
        mask = masks(b, m, h, rate, dtype) if rate else 1.0
        sums = seeded(form, *arguments, rate)
        check(sums, plain(*arguments, mask), arguments)


def dropped(weights: Tensor) -> Tensor:
    """Weights (b, m) under dropout: two in five are zero, and all of the last row."""
    generator = torch.Generator().manual_seed(3)
    kept = torch.rand(weights.shape, generator=generator) > 0.4
    kept[-1] = False
    return weights * kept


@shapes
@both_forms
@both_counts
@pytest.mark.parametrize("rate", [0.0, RATE])
def test_neighbours_that_dropout_left_no_weight_change_nothing(
    b: int, m: int, p: int, h: int, form: Any, n_threads: int, rate: float
) -> None:
    arguments = inputs(b, m, p, h, form=form)
    difference, weights, *others = arguments
    with threads(n_threads):
        mask = masks(b, m, h, rate, torch.float64) if rate else 1.0
        sums = seeded(form, difference, dropped(weights), *others, rate)
        expected = plain(difference, dropped(weights), *others, mask)
        check(sums, expected, arguments)


@shapes
@both_counts
def test_shared_products_of_neighbours_without_weight_change_nothing(
    b: int, m: int, p: int, h: int, n_threads: int
) -> None:
    rows, candidates = (torch.randn(n, h, dtype=torch.float64) for n in (b, 9))
    arguments = [rows.requires_grad_(), candidates.requires_grad_()]
    weights = torch.randn(b, m, dtype=torch.float64, requires_grad=True)
    index = torch.randint(9, (b, m))
    with threads(n_threads):
        products = *arguments, index, dropped(weights)
        sums = Shared.apply(*products, 0.0)
        hidden = (rows[:, None] - candidates[index]).relu()
        expected = (dropped(weights)[:, :, None] * hidden).sum(1)
        check(sums, expected, [*arguments, weights])


@shapes
@both_types
@both_counts
@pytest.mark.parametrize("rate", [0.0, RATE])
def test_shared_products_give_the_sums_and_gradients_of_plain_torch(
    b: int, m: int, p: int, h: int, dtype: torch.dtype, n_threads: int, rate: float
) -> None:
    rows, weights, candidates, _ = inputs(b, m, p, h, dtype)
    rows = torch.cat([rows[:, 0].detach()] * h, 1)[:, :h].clone().requires_grad_()
    candidates = torch.cat([candidates.detach()[:9]] * h, 1)[:, :h].clone()
    arguments = [rows, candidates.requires_grad_(), weights]
    generator = torch.Generator().manual_seed(2)
    index = torch.randint(len(candidates), (b, m), generator=generator)
    with threads(n_threads):
        mask = masks(b, m, h, rate, dtype) if rate else 1.0
        sums = seeded(Shared, rows, candidates, index, weights, rate)
        hidden = (rows[:, None] - candidates[index]).relu() * mask
        check(sums, (weights[:, :, None] * hidden).sum(1), arguments)


@both_forms
def test_gradients_are_right_under_dropout(form: Any) -> None:
    def of(*arguments: Tensor) -> Tensor:
        return seeded(form, *arguments, 0.4)

    assert torch.autograd.gradcheck(of, inputs(5, 6, 3, 7, form=form))


def test_differences_that_need_no_gradient_get_none() -> None:
    difference, *others = inputs(5, 6, 3, 7)
    results = [
        torch.autograd.grad(Dense.apply(d, *others, 0.0).square().sum(), others)
        for d in (difference, difference.detach())
    ]
    for with_it, without in zip(*results, strict=True):
        assert torch.equal(with_it, without)


@both_forms
def test_same_seed_gives_the_same_bits(form: Any) -> None:
    arguments = inputs(40, 9, 8, 530, torch.float32, form)
    with threads(2):
        results = []
        for _ in range(5):
            out = seeded(form, *arguments, RATE)
            grads = torch.autograd.grad(out.square().sum(), arguments[1:])
            results.append([out, *grads])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@both_forms
def test_a_row_is_the_same_alone_and_among_others(form: Any) -> None:
    difference, *others = inputs(9, 10, 8, 200, torch.float32, form)
    weights, weight, bias = others
    together = form.apply(difference, weights, weight, bias, 0.0)
    for i in range(len(weights)):
        row = difference[i : i + 1], weights[i : i + 1]
        alone = form.apply(*row, weight, bias, 0.0)
        assert torch.equal(together[i], alone[0])


@pytest.mark.parametrize("rate", [0.1, RATE, 0.6, 0.99])
def test_masks_keep_the_rate_and_the_mean(rate: float) -> None:
    mask = masks(50, 60, 530, rate, torch.float64)
    n = mask.numel()
    assert abs((mask == 0).double().mean() - rate) < 5 * (rate * (1 - rate) / n) ** 0.5
    spread = (rate / (1 - rate)) ** 0.5
    assert abs(mask.mean() - 1) < 5 * spread / n**0.5 + 2**-16 / (1 - rate)


def test_masks_of_neighbouring_places_are_independent() -> None:
    mask = masks(50, 60, 530, RATE, torch.float64)
    centred = (mask - mask.mean()) / mask.std()
    half = TILE // 2
    pairs = [
        (centred[1:], centred[:-1]),
        (centred[:, 1:], centred[:, :-1]),
        (centred[:, 4:], centred[:, :-4]),
        (centred[..., 1:], centred[..., :-1]),
        (centred[..., half:], centred[..., :-half]),  # of one hash
        (centred[..., TILE:], centred[..., :-TILE]),
        (centred[:, 1:, 1:], centred[:, :-1, :-1]),
        (centred[:, 1:, :-1], centred[:, :-1, 1:]),
    ]
    for a, b in pairs:
        assert abs((a * b).mean()) < 5 / a.numel() ** 0.5
    # Counts of a place over rows and of a row over places spread as independent ones.
    for axes in ((0, 1), (0, 2), (1, 2)):
        counts = (
            centred.sum(axes) / (centred.numel() / centred.shape[3 - sum(axes)]) ** 0.5
        )
        assert abs(counts.var() - 1) < 5 * (2 / len(counts)) ** 0.5


def test_seeds_give_masks_of_their_own() -> None:
    arguments = [a.detach() for a in inputs(20, 9, 3, 300)]
    with torch.random.fork_rng():
        outs = [Dense.apply(*arguments, 0.5) for _ in range(2)]
    assert not torch.equal(*outs)


@both_forms
def test_what_is_no_number_is_seen(form: Any) -> None:
    arguments = [a.detach() for a in inputs(3, 5, 2, 7)]
    arguments[0][1, 2, 0] = torch.nan
    out = form.apply(*arguments, 0.0)
    assert torch.equal(out.isnan().all(1), torch.tensor([False, True, False]))
    assert not out[[0, 2]].isnan().any()


@both_forms
def test_no_rows_and_no_neighbours_give_zeros(form: Any) -> None:
    for b, m in ((0, 5), (4, 0)):
        arguments = inputs(b, m, 3, 7, form=form)
        out = form.apply(*arguments, 0.3)
        assert torch.equal(out, torch.zeros(b, 7, dtype=torch.float64))
        gradients = torch.autograd.grad(out.sum(), arguments[1:])
        assert not any(gradient.any() for gradient in gradients)


@both_forms
def test_tensors_may_lie_in_memory_in_any_order(form: Any) -> None:
    arguments = inputs(6, 7, 5, 20, form=form)
    turned = [
        arguments[0].transpose(0, 1).contiguous().transpose(0, 1),
        arguments[1].T.contiguous().T,
        arguments[2].T.contiguous().T,
        arguments[3].repeat_interleave(2)[::2],
    ]
    out = form.apply(*turned, 0.0)
    check(out, plain(*arguments, 1.0), arguments)


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "numba", None)
    has_numba.cache_clear()
    yield
    has_numba.cache_clear()


@pytest.mark.usefixtures("without_numba")
def test_without_numba_the_sums_are_the_same() -> None:
    arguments = inputs(9, 10, 8, 200)
    assert _kernel(arguments[0]) is hidden_sum_cpu.Narrow
    expected = Dense.apply(*arguments, 0.0)
    check(hidden_sum(*arguments, 0.0), expected, arguments)


def test_other_types_than_floats_of_numba_are_left_to_torch() -> None:
    assert _kernel(torch.zeros(1, 1, 8)) is Dense
    assert _kernel(torch.zeros(1, 1, 8).bfloat16()) is hidden_sum_cpu.Narrow


def test_zeros_of_wide_differences_are_passed_by_if_these_get_no_gradient() -> None:
    wide = torch.zeros(1, 1, hidden_sum_cpu.NARROW + 1)
    assert _kernel(wide) is Sparse
    assert _kernel(wide.requires_grad_()) is Dense
