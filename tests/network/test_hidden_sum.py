"""The hidden sum of T, for points of any width."""

from __future__ import annotations

import pytest
import torch

from tabr.network import hidden_sum_cpu
from tabr.network.hidden_sum import hidden_sum


@pytest.mark.parametrize("p", [1, hidden_sum_cpu.NARROW, hidden_sum_cpu.NARROW + 1])
def test_sums_of_any_width_are_those_of_the_formula(p: int) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(5, 4, p), (5, 4), (6, p), (6,)]
    d, w, v, b = (torch.randn(s, generator=generator).double() for s in shapes)
    expected = (w[:, :, None] * (d @ v.T + b).relu()).sum(1)
    torch.testing.assert_close(hidden_sum(d, w, v, b, 0.0), expected)
