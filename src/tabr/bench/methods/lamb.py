"""LAMB (You et al., 2020) with Lookahead (Zhang et al., 2019): the optimizer of NPT.

LAMB is Adam whose step of each tensor has a length in proportion to that of the tensor.
As in the code that NPT uses, averages are not corrected for their beginning at zero,
and a tensor's length counts as 10 at most. Lookahead goes back half of the way every
sixth step; its slow weights begin as those after the first six.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

BETAS = (0.9, 0.999)
EPSILON = 1e-6
LONGEST = 10.0
CADENCE, BACK = 6, 0.5


class LookaheadLamb:
    """Trains parameters in place, without waiting for the device."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        """Begin with averages of zero."""
        self.parameters = [p for p in parameters if p.numel() > 0]
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(p) for p in self.parameters]
        self.slow: list[Tensor] = []
        self.n_steps = 0

    @torch.no_grad()
    def step(self, learning_rate: float, largest: float = torch.inf) -> None:
        """Take a step by gradients, each number cut to at most the largest."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        assert len(gradients) == len(self.parameters)
        gradients = list(torch._foreach_clamp_max(gradients, largest))
        torch._foreach_clamp_min_(gradients, -largest)
        torch._foreach_lerp_(self.first, gradients, 1 - BETAS[0])
        torch._foreach_mul_(self.second, BETAS[1])
        torch._foreach_addcmul_(self.second, gradients, gradients, 1 - BETAS[1])
        spread = torch._foreach_sqrt(self.second)
        torch._foreach_add_(spread, EPSILON)
        steps = torch._foreach_div(self.first, spread)
        long = torch.stack(torch._foreach_norm(self.parameters)).clamp_max(LONGEST)
        wide = torch.stack(torch._foreach_norm(steps))
        ratio = torch.where((long > 0) & (wide > 0), long / wide, 1.0)
        torch._foreach_mul_(steps, ratio.unbind())
        torch._foreach_add_(self.parameters, steps, alpha=-learning_rate)
        self.n_steps += 1
        if self.n_steps % CADENCE == 0:
            self._look_ahead()

    def _look_ahead(self) -> None:
        if not self.slow:
            self.slow = [p.clone() for p in self.parameters]
            return
        torch._foreach_lerp_(self.slow, self.parameters, BACK)
        torch._foreach_copy_(self.parameters, self.slow)
