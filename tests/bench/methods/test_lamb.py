"""LAMB with Lookahead does what its formulas say."""

from __future__ import annotations

import torch
from torch import Tensor

from tabr.bench.methods.lamb import LookaheadLamb


def slowly(
    start: Tensor, gradients: list[Tensor], rate: float, largest: float
) -> Tensor:
    """Follow one tensor, number by number where it matters."""
    x, slow = start.clone().double(), None
    first, second = torch.zeros_like(x), torch.zeros_like(x)
    for number, gradient in enumerate(gradients, 1):
        g = gradient.double().clamp(-largest, largest)
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


def test_follows_the_slow_transcription() -> None:
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
    optimizer = LookaheadLamb([*parameters, torch.empty(0, 3)])
    for number in range(20):
        for parameter, of_it in zip(parameters, gradients, strict=True):
            parameter.grad = of_it[number]
        optimizer.step(0.01, largest=1.0)
    for parameter, start, of_it in zip(parameters, starts, gradients, strict=True):
        expected = slowly(start, of_it, 0.01, 1.0)
        torch.testing.assert_close(parameter.detach(), expected, rtol=1e-4, atol=1e-5)


def test_a_step_is_as_long_as_the_tensor_times_the_rate() -> None:
    x = torch.full((4,), 2.0, requires_grad=True)  # of length 4
    x.grad = torch.tensor([1e-3, -5.0, 0.2, 7.0])
    before = x.detach().clone()
    LookaheadLamb([x]).step(0.1)
    torch.testing.assert_close((x.detach() - before).norm(), torch.tensor(0.4))


def test_leaves_gradients_as_they_are() -> None:
    x = torch.ones(2, requires_grad=True)
    x.grad = torch.tensor([5.0, -5.0])
    LookaheadLamb([x]).step(0.1, largest=1.0)
    torch.testing.assert_close(x.grad, torch.tensor([5.0, -5.0]))
