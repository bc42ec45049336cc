"""The hidden sum of T on CPUs, by activations and by moments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tabr.network import hidden_sum_cpu

both_forms = pytest.mark.parametrize(
    "form", [hidden_sum_cpu.Narrow, hidden_sum_cpu.Wide]
)


def inputs(b: int = 5, m: int = 4, p: int = 3, h: int = 6) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(b, m, p), (b, m), (h, p), (h,)]
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in shapes
    ]


def plain(difference: Tensor, weights: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    hidden = (difference @ weight.T + bias).relu()
    return (weights[:, :, None] * hidden).sum(1)


def check_sums_and_gradients(
    sums: Tensor, expected: Tensor, arguments: list[Tensor]
) -> None:
    torch.testing.assert_close(sums, expected)
    gradients = [
        torch.autograd.grad(out.square().sum(), arguments) for out in (sums, expected)
    ]
    for gradient, plain_gradient in zip(*gradients, strict=True):
        torch.testing.assert_close(gradient, plain_gradient)


@both_forms
@pytest.mark.parametrize("cache_bytes", [1, 400, 10**9])
@pytest.mark.parametrize("b", [1, 5])
def test_chunks_change_neither_output_nor_gradients(
    form: Any, cache_bytes: int, b: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hidden_sum_cpu, "CACHE_BYTES", cache_bytes)
    arguments = inputs(b)
    sums, expected = form.apply(*arguments, 0.0), plain(*arguments)
    check_sums_and_gradients(sums, expected, arguments)


@both_forms
def test_gradients_are_right_under_dropout(form: Any) -> None:
    def seeded(*arguments: Tensor) -> Tensor:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return form.apply(*arguments, 0.4)

    assert torch.autograd.gradcheck(seeded, inputs())


@both_forms
def test_threads_change_nothing_but_rounding(
    form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hidden_sum_cpu, "CACHE_BYTES", 400)
    before = torch.get_num_threads()
    results = []
    for n_threads in (1, 3):
        torch.set_num_threads(n_threads)
        try:
            with torch.random.fork_rng():
                torch.manual_seed(0)
                arguments = inputs(17)
                out = form.apply(*arguments, 0.5)
                results.append([out, *torch.autograd.grad(out.sum(), arguments)])
            assert torch.get_num_threads() == n_threads
        finally:
            torch.set_num_threads(before)
    for single, threaded in zip(*results, strict=True):
        torch.testing.assert_close(single, threaded)


@pytest.mark.parametrize("rate", [0.1, 0.38852797479169876, 0.6])
def test_masks_keep_the_rate_and_the_mean(rate: float) -> None:
    masks = hidden_sum_cpu._masks(2000, 500, rate, np.random.default_rng(0))
    assert abs((masks == 0).double().mean() - rate) < 2e-3
    assert abs(masks.double().mean() - 1) < 4e-3
    # Neighbouring values and rows are independent.
    centred = masks.double() - masks.double().mean()
    for a, b in ((centred[:, 1:], centred[:, :-1]), (centred[1:], centred[:-1])):
        assert abs((a * b).mean() / centred.square().mean()) < 5e-3


def test_both_forms_draw_the_same_masks() -> None:
    outs = []
    for form in (hidden_sum_cpu.Narrow, hidden_sum_cpu.Wide):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            outs.append(form.apply(*inputs(30), 0.4))
    torch.testing.assert_close(*outs)


@both_forms
def test_dropout_leaves_the_expectation(form: Any) -> None:
    arguments = [argument.detach() for argument in inputs(40, 30, 3, 6)]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        mean = torch.stack([form.apply(*arguments, 0.4) for _ in range(400)]).mean(0)
    exact = plain(*arguments)
    assert (mean - exact).abs().max() < 0.15 * exact.abs().max()


@both_forms
def test_no_neighbours_give_zero(form: Any) -> None:
    difference, weights, weight, bias = (a.detach() for a in inputs())
    out = form.apply(difference[:, :0], weights[:, :0], weight, bias, 0.3)
    assert torch.equal(out, torch.zeros(5, 6, dtype=torch.float64))


def shared_inputs(b: int = 5, m: int = 4, n: int = 7, h: int = 6) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    rows, candidates, weights = (
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in [(b, h), (n, h), (b, m)]
    )
    return [rows, candidates, torch.randint(n, (b, m), generator=generator), weights]


@pytest.mark.parametrize("cache_bytes", [1, 400, 10**9])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_shared_products_give_the_same_sums_and_gradients(
    cache_bytes: int, n_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hidden_sum_cpu, "CACHE_BYTES", cache_bytes)
    rows, candidates, index, weights = arguments = shared_inputs(17)
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            sums: Any = hidden_sum_cpu.Shared.apply(*arguments, 0.4)
        with torch.random.fork_rng():
            torch.manual_seed(0)  # the same masks
            unit, zero = torch.eye(6, dtype=rows.dtype), rows.new_zeros(6)
            pairs = rows[:, None] - candidates[index]
            expected = hidden_sum_cpu.Wide.apply(pairs, weights, unit, zero, 0.4)
        check_sums_and_gradients(sums, expected, [rows, candidates, weights])
    finally:
        torch.set_num_threads(before)


def test_gradients_of_shared_products_are_right() -> None:
    rows, candidates, index, weights = shared_inputs()

    def seeded(rows: Tensor, candidates: Tensor, weights: Tensor) -> Tensor:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return hidden_sum_cpu.Shared.apply(rows, candidates, index, weights, 0.4)

    assert torch.autograd.gradcheck(seeded, [rows, candidates, weights])
