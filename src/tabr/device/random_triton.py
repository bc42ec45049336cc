"""The factors of dropout, drawn for several members at once by a Triton kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit(do_not_specialize=["n"])
def _factors(seeds, out, n, rate, scale, BLOCK: tl.constexpr):
    """Draw the factors: one program for each block of one member."""
    member = tl.program_id(1).to(tl.int64)
    number = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    # Seven rounds suffice for the generator to pass all known tests.
    drawn = tl.rand(tl.load(seeds + member), number, n_rounds=7)
    value = tl.where(drawn < rate, 0.0, scale)
    tl.store(out + member * n + number, value, mask=number < n)


def factors(seeds: Tensor, shape: Sequence[int], rate: float) -> Tensor:
    """Return zeros at this rate, and 1 / (1 - rate) elsewhere: (k, *shape)."""
    k, n = len(seeds), math.prod(shape)
    out = torch.empty(k, *shape, device=seeds.device)
    if n:
        _factors[(triton.cdiv(n, _BLOCK), k)](
            seeds, out, n, rate, 1 / (1 - rate), BLOCK=_BLOCK
        )
    return out
