"""The hidden layer of T, summed over a row's neighbours.

T's last layer is linear and has no bias, so only the weighted sum of its hidden
activations is needed: sum_i w_i Dropout(ReLU(W (p - p_i) + b)). That sum is (b, h)
while the activations are (b, m, h), by far the largest tensor of a training step.
On a CPU they are made in chunks that stay in cache, and made again in the backward
pass; on a GPU Triton kernels do the same in registers (`pairs_triton`); elsewhere torch
does it in one go.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tabr.threads import split_work

# One chunk of activations: small enough for a core's share of the caches, large enough
# that calling torch costs little beside the work (2 MB took half the time of 0.8 MB).
_CACHE_BYTES = 2_000_000
_POOL_ROWS = 4096  # dropout masks that one call draws


def hidden_sum(
    difference: Tensor, weights: Tensor, weight: Tensor, bias: Tensor, dropout: float
) -> Tensor:
    """Return sum_i weights_i Dropout(ReLU(weight difference_i + bias)).

    Shapes: difference (b, m, p), weights (b, m), weight (h, p), bias (h) -> (b, h).
    """
    arguments = difference, weights, weight, bias, dropout
    if difference.device.type == "cpu":
        out: Tensor = _HiddenSum.apply(*arguments)  # type: ignore[no-untyped-call]
        return out
    kernels = _kernels(difference)
    if kernels is not None:
        out = kernels.HiddenSum.apply(*arguments)
        return out
    hidden = F.dropout(F.linear(difference, weight, bias).relu(), dropout)
    return (weights[:, None] @ hidden).squeeze(1)


def _kernels(difference: Tensor) -> Any:
    """Return the module of Triton kernels if they can serve these points."""
    if difference.device.type != "cuda" or difference.dtype != torch.float32:
        return None
    if importlib.util.find_spec("triton") is None:
        return None
    from tabr import pairs_triton

    return pairs_triton if difference.shape[-1] <= pairs_triton.WIDEST else None


class _HiddenSum(torch.autograd.Function):
    """`hidden_sum` in chunks of rows; the backward pass makes the chunks again."""

    @staticmethod
    def forward(
        ctx: Any,
        difference: Tensor,
        weights: Tensor,
        weight: Tensor,
        bias: Tensor,
        dropout: float,
    ) -> Tensor:
        chunks = _Chunks(difference, weight, bias, dropout)
        out = weights.new_empty(len(difference), len(weight))

        def work(numbers: range) -> None:
            for rows, hidden in chunks.hidden(numbers):
                torch.bmm(weights[rows, None], hidden, out=out[rows, None])

        split_work(work, chunks.n)
        ctx.save_for_backward(difference, weights, weight)
        ctx.chunks = chunks
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        difference, weights, weight = ctx.saved_tensors
        chunks: _Chunks = ctx.chunks
        needs_difference, needs_weights = ctx.needs_input_grad[:2]
        grad_weights = torch.empty_like(weights) if needs_weights else None
        grad_difference = torch.empty_like(difference) if needs_difference else None

        def work(numbers: range) -> tuple[Tensor, Tensor]:
            grad_weight = torch.zeros_like(weight)
            grad_bias = weight.new_zeros(len(weight))
            for rows, hidden in chunks.hidden(numbers):
                g = grad[rows]  # (r, h)
                if grad_weights is not None:
                    torch.bmm(hidden, g[:, :, None], out=grad_weights[rows, :, None])
                # Where an activation lived, its slope is the mask's scale; else zero.
                gate = hidden.sign_()  # (r, m, h)
                w = weights[rows] * chunks.scale
                moments = gate.transpose(1, 2) @ (w[:, :, None] * difference[rows])
                grad_weight += (moments * g[:, :, None]).sum(0)
                grad_bias += ((w[:, None] @ gate).squeeze(1) * g).sum(0)
                if grad_difference is not None:
                    gate.mul_(g[:, None])
                    torch.mul(gate @ weight, w[:, :, None], out=grad_difference[rows])
            return grad_weight, grad_bias

        parts = split_work(work, chunks.n)
        grad_weight, grad_bias = (sum(part) for part in zip(*parts, strict=True))
        return grad_difference, grad_weights, grad_weight, grad_bias, None


class _Chunks:
    """Cache-sized chunks of dropped-out activations, the same at each walk.

    Dropout masks are slices of a pool drawn anew for each call: drawing one for
    every activation of a step costs several times the arithmetic. Within a slice
    all masks are independent; two rows of a batch may share some.
    """

    def __init__(
        self, difference: Tensor, weight: Tensor, bias: Tensor, dropout: float
    ) -> None:
        b, m, _ = difference.shape
        h = len(weight)
        row_bytes = max(1, m * h * difference.element_size())
        self.size = min(max(1, _CACHE_BYTES // row_bytes), max(1, b))
        self.n = math.ceil(b / self.size)
        self.inputs = difference, weight, bias
        self.scale = 1 / (1 - dropout)
        self.pool: Tensor | None = None
        if dropout > 0:
            n_masks = max(self.size * m, min(b * m, _POOL_ROWS))
            generator = np.random.default_rng(int(torch.randint(2**62, ())))
            self.pool = _masks(n_masks, h, dropout, generator).to(difference.dtype)
            # A pool that suffices for all rows is laid out over them, else drawn from.
            last = n_masks - self.size * m
            self.offsets = generator.integers(0, last + 1, self.n)
            if b * m <= n_masks:
                self.offsets = np.arange(self.n) * self.size * m

    def hidden(self, numbers: range) -> Iterator[tuple[slice, Tensor]]:
        """Yield the rows and the activations (r, m, h) of the chunks of a range."""
        difference, weight, bias = self.inputs
        b, m, p = difference.shape
        h = len(weight)
        buffer = difference.new_empty(self.size * m, h)
        for number in numbers:
            rows = slice(number * self.size, min((number + 1) * self.size, b))
            n_rows = rows.stop - rows.start
            hidden = buffer[: n_rows * m]
            torch.addmm(bias, difference[rows].reshape(-1, p), weight.T, out=hidden)
            hidden.relu_()
            if self.pool is not None:
                offset = int(self.offsets[number])
                hidden.mul_(self.pool[offset : offset + len(hidden)])
            yield rows, hidden.view(n_rows, m, h)


def _masks(n: int, h: int, dropout: float, generator: np.random.Generator) -> Tensor:
    """Draw n dropout masks (n, h) of zeros and 1 / (1 - dropout)."""
    # Sixteen random bits a value: the rate is exact to 2 ** -16.
    words = generator.integers(0, 2**64, (n * h + 3) // 4, dtype=np.uint64)
    bits = torch.from_numpy(words.view(np.int16)[: n * h])
    threshold = round(dropout * 2**16) - 2**15
    return (bits >= threshold).float().mul_(1 / (1 - dropout)).view(n, h)
