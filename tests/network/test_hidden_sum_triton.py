"""The Triton kernels against plain float64; they need a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def inputs(b: int, m: int, p: int, h: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(b, m, p), (b, m), (h, p), (h,)]
    return [
        torch.randn(shape, generator=generator).cuda().requires_grad_()
        for shape in shapes
    ]


def close(a: Tensor, b: Tensor, rtol: float = 1e-5) -> bool:
    return bool((a.double() - b.double()).norm() <= rtol * (1e-9 + b.double().norm()))


@pytest.mark.parametrize(
    ("b", "m", "p", "h"),
    [
        (1, 1, 1, 1),
        (3, 40, 5, 70),
        (256, 96, 8, 530),
        (77, 97, 33, 530),
        (20, 96, 128, 64),
        (33, 31, 119, 131),
        (5, 130, 26, 530),
        (3, 7, 300, 33),
    ],
)
def test_kernels_equal_plain_float64(b: int, m: int, p: int, h: int) -> None:
    from tabr.network.hidden_sum_triton import HiddenSum

    arguments = inputs(b, m, p, h)
    sums = HiddenSum.apply(*arguments, 0.0)
    exact = [a.detach().double().requires_grad_() for a in arguments]
    difference, weights, weight, bias = exact
    hidden = (difference @ weight.T + bias).relu()
    exact_sums = (weights[:, None] @ hidden).squeeze(1)
    assert close(sums, exact_sums)
    g = torch.randn(b, h, generator=torch.Generator().manual_seed(1)).cuda()
    grads = torch.autograd.grad((sums * g).sum(), arguments)
    expected = torch.autograd.grad((exact_sums * g).sum(), exact)
    # Of millions of activations a few lie within rounding of zero, where float32 and
    # float64 may disagree on which side they are: their slopes then differ by one.
    assert all(close(a, e, 1e-3) for a, e in zip(grads, expected, strict=True))


def test_forward_and_backward_draw_the_same_masks() -> None:
    from tabr.network.hidden_sum_triton import HiddenSum

    arguments = inputs(50, 96, 8, 530)
    out = HiddenSum.apply(*arguments, 0.4)
    g = torch.randn_like(out)
    total = (out * g).sum()
    _, for_weights, for_weight, for_bias = torch.autograd.grad(total, arguments)
    _, weights, weight, bias = arguments
    # The sum is linear in the weights, and in weight and bias together.
    assert close((for_weights * weights).sum(), total)
    assert close((for_weight * weight).sum() + (for_bias * bias).sum(), total)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_without_gradients_the_sums_are_the_same(dropout: float) -> None:
    from tabr.network.hidden_sum_triton import HiddenSum

    arguments = inputs(20, 96, 54, 530)
    sums = []
    for enabled in (True, False):
        with torch.random.fork_rng(devices=["cuda"]), torch.set_grad_enabled(enabled):
            torch.cuda.manual_seed(0)
            sums.append(HiddenSum.apply(*arguments, dropout))
    assert torch.equal(*sums)
    assert [s.requires_grad for s in sums] == [True, False]


@pytest.mark.parametrize("p", [8, 119])
def test_fixed_points_change_no_other_gradient(p: int) -> None:
    from tabr.network.hidden_sum_triton import HiddenSum

    arguments = inputs(20, 96, p, 530)
    sums = HiddenSum.apply(*arguments, 0.0)
    expected = torch.autograd.grad(sums.sum(), arguments)[1:]
    sums = HiddenSum.apply(arguments[0].detach(), *arguments[1:], 0.0)
    grads = torch.autograd.grad(sums.sum(), arguments[1:])
    assert all(close(a, e, 1e-6) for a, e in zip(grads, expected, strict=True))


def test_no_rows_and_no_neighbours_give_zeros() -> None:
    from tabr.network.hidden_sum_triton import HiddenSum

    for b, m in ((0, 96), (4, 0)):
        arguments = inputs(b, m, 8, 70)
        sums = HiddenSum.apply(*arguments, 0.4)
        assert sums.shape == (b, 70)
        grads = torch.autograd.grad(sums.sum(), arguments)
        assert not any(t.any() for t in (sums, *grads))


def test_dropout_keeps_rate_and_mean_and_changes_from_call_to_call() -> None:
    from tabr.network.hidden_sum_triton import HiddenSum

    difference = torch.zeros(64, 96, 4, device="cuda")
    weights = torch.zeros(64, 96, device="cuda")
    weights[:, 5] = 1  # one neighbour: the output shows its mask
    weight, bias = torch.zeros(530, 4, device="cuda"), torch.ones(530, device="cuda")
    masks = [HiddenSum.apply(difference, weights, weight, bias, 0.4) for _ in range(2)]
    for mask in masks:
        assert abs((mask == 0).double().mean() - 0.4) < 0.02
        assert abs(mask.double().mean() - 1) < 0.04
    assert not torch.equal(*masks)


@pytest.mark.parametrize("rate", [1e-6, 0.1, 0.389, 0.75, 0.99])
def test_dropout_keeps_any_rate(rate: float) -> None:
    from tabr.network.hidden_sum_triton import HiddenSum

    difference = torch.zeros(512, 33, 4, device="cuda")
    weights = torch.full((512, 33), 1 / 33, device="cuda")
    weight, bias = torch.zeros(530, 4, device="cuda"), torch.ones(530, device="cuda")
    means = HiddenSum.apply(difference, weights, weight, bias, rate)
    spread = (rate / (1 - rate)) ** 0.5  # of one activation, dropped or scaled up
    assert abs(means.mean() - 1) <= 5 * spread / (512 * 33 * 530) ** 0.5 + 1e-5
    assert abs(means.std() - spread / 33**0.5) <= 0.02 * spread + 1e-3


def test_same_seed_gives_the_same_bits() -> None:
    from tabr.network.hidden_sum_triton import HiddenSum

    arguments = inputs(256, 96, 8, 530)
    results = []
    for _ in range(2):
        with torch.random.fork_rng(devices=["cuda"]):
            torch.cuda.manual_seed(0)
            out = HiddenSum.apply(*arguments, 0.4)
            results.append([out, *torch.autograd.grad(out.square().sum(), arguments)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_a_captured_graph_draws_new_masks_at_each_replay() -> None:
    from tabr.network.hidden_sum_triton import HiddenSum

    arguments = [a.detach() for a in inputs(16, 96, 8, 530)]
    HiddenSum.apply(*arguments, 0.4)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = HiddenSum.apply(*arguments, 0.4)
    graph.replay()
    first = out.clone()
    graph.replay()
    assert not torch.equal(first, out)
