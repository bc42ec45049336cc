"""The sums of `hidden_sum` on CPUs, in chunks of rows that stay in cache.

The activations of a chunk are made in the forward pass and again in the backward pass.
Each thread takes whole chunks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tabr.device.threads import split_work

# One chunk of activations: small enough for a core's share of the caches, large enough
# that calling torch costs little beside the work (2 MB took half the time of 0.8 MB).
CACHE_BYTES = 2_000_000
_POOL_ROWS = 4096  # dropout masks that one call draws
NARROW = 32  # points of up to this width are summed by moments

Fill = Callable[[slice, Tensor], None]


class Wide(torch.autograd.Function):
    """`hidden_sum` by the activations themselves."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """Return the sums (b, h); inputs are the arguments of `hidden_sum`."""
        d, weights, v, chunks = _prepared(*inputs)
        ctx.save_for_backward(d, weights, v)
        ctx.chunks = chunks
        return chunks.sums(weights)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of all inputs that need one."""
        d, weights, v = ctx.saved_tensors
        chunks: _Chunks = ctx.chunks
        grad_weights = torch.empty_like(weights)
        grad_d = torch.empty_like(d) if ctx.needs_input_grad[0] else None

        def work(numbers: range) -> Tensor:
            grad_v = torch.zeros_like(v)
            for rows, hidden, mask in chunks.walk(numbers):
                hidden.relu_().mul_(mask)
                g = grad[rows, :, None]  # (r, h, 1)
                torch.bmm(hidden, g, out=grad_weights[rows, :, None])
                # The slope of an activation above zero is the mask's scale.
                gate = hidden.sign_()  # (r, m, h)
                w = weights[rows, :, None] * chunks.scale
                grad_v += (gate.transpose(1, 2) @ (w * d[rows]) * g).sum(0)
                if grad_d is not None:
                    torch.mul(gate.mul_(g.mT) @ v, w, out=grad_d[rows])
            return grad_v

        return _gradients(split_work(work, chunks.n), grad_weights, grad_d)


class Narrow(torch.autograd.Function):
    """`hidden_sum` by moments, for points of few numbers.

    With gates G (the mask where an activation is above zero, else 0) the sum is
    out_j = sum_p W_jp M_jp, where M_jp = sum_i G_ij w_i d_ip are moments (h, p) and a
    last column of ones in d carries the bias. Moments are all that the gradient of W
    needs, so the activations are passed over once in each direction.
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """Return the sums (b, h); inputs are the arguments of `hidden_sum`."""
        d, weights, v, chunks = _prepared(*inputs)
        moments = d.new_empty(len(d), *v.shape)
        out = d.new_empty(len(d), len(v))

        def work(numbers: range) -> None:
            for rows, hidden, mask in chunks.walk(numbers):
                gate = _gates(hidden, mask)
                weighted = d[rows] * weights[rows, :, None]
                torch.bmm(gate.transpose(1, 2), weighted, out=moments[rows])
                torch.sum(moments[rows] * v, -1, out=out[rows])

        split_work(work, chunks.n)
        ctx.save_for_backward(d, weights, v, moments)
        ctx.chunks = chunks
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of all inputs that need one."""
        d, weights, v, moments = ctx.saved_tensors
        chunks: _Chunks = ctx.chunks
        grad_weights = torch.empty_like(weights)
        grad_d = torch.empty_like(d) if ctx.needs_input_grad[0] else None

        def work(numbers: range) -> Tensor:
            grad_v = torch.zeros_like(v)
            for rows, hidden, mask in chunks.walk(numbers):
                g = grad[rows, :, None]  # (r, h, 1)
                pulled = _gates(hidden, mask) @ (g * v)  # (r, m, p + 1)
                torch.sum(pulled * d[rows], -1, out=grad_weights[rows])
                grad_v += (moments[rows] * g).sum(0)
                if grad_d is not None:
                    torch.mul(pulled, weights[rows, :, None], out=grad_d[rows])
            return grad_v

        return _gradients(split_work(work, chunks.n), grad_weights, grad_d)


class Shared(torch.autograd.Function):
    """`shared_hidden_sum`: nothing is multiplied for each neighbour."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """Return the sums (b, h); inputs are the arguments of `shared_hidden_sum`."""
        row_products, candidate_products, index, weights, dropout = inputs

        def fill(rows: slice, hidden: Tensor) -> None:
            near = index[rows]
            torch.index_select(candidate_products, 0, near.reshape(-1), out=hidden)
            pairs = hidden.view(*near.shape, -1)
            torch.sub(row_products[rows, None], pairs, out=pairs)

        unit = candidate_products.new_empty(candidate_products.shape[1])
        chunks = _Chunks(fill, index.shape, unit, dropout)
        ctx.save_for_backward(index, weights, candidate_products)
        ctx.chunks = chunks
        return chunks.sums(weights)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of all inputs that need one."""
        index, weights, candidate_products = ctx.saved_tensors
        chunks: _Chunks = ctx.chunks
        grad_weights, grad_rows = torch.empty_like(weights), grad.new_empty(grad.shape)

        def work(numbers: range) -> Tensor:
            grad_candidates = torch.zeros_like(candidate_products)
            for rows, hidden, mask in chunks.walk(numbers):
                hidden.relu_().mul_(mask)
                g = grad[rows, None]  # (r, 1, h)
                torch.bmm(hidden, g.mT, out=grad_weights[rows, :, None])
                # The slope of an activation above zero is the mask's scale.
                slope = hidden.sign_().mul_(g)  # (r, m, h)
                slope.mul_(weights[rows, :, None] * chunks.scale)
                torch.sum(slope, 1, out=grad_rows[rows])
                flat = slope.view(-1, slope.shape[2])
                grad_candidates.index_add_(0, index[rows].reshape(-1), flat, alpha=-1)
            return grad_candidates

        parts = split_work(work, chunks.n)
        return grad_rows, torch.stack(parts).sum(0), None, grad_weights, None


def _prepared(
    difference: Tensor, weights: Tensor, weight: Tensor, bias: Tensor, dropout: float
) -> tuple[Tensor, Tensor, Tensor, _Chunks]:
    """Return d (b, m, p + 1), weights, v (h, p + 1) and chunks of the products d v'.

    The last columns carry the bias: to add it would pass over the activations again.
    """
    d = torch.cat([difference, torch.ones_like(difference[..., :1])], -1)
    v = torch.cat([weight, bias[:, None]], 1)

    def fill(rows: slice, hidden: Tensor) -> None:
        torch.mm(d[rows].view(-1, d.shape[2]), v.T, out=hidden)

    return d, weights, v, _Chunks(fill, d.shape[:2], v[:, 0], dropout)


def _gradients(
    parts: list[Tensor], grad_weights: Tensor, grad_d: Tensor | None
) -> tuple[Tensor | None, ...]:
    """Return the gradients of the inputs, in their order, from those of d and v."""
    grad_v = torch.stack(parts).sum(0)
    grad_difference = None if grad_d is None else grad_d[..., :-1]
    return grad_difference, grad_weights, grad_v[:, :-1], grad_v[:, -1], None


def _gates(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the mask where activations are above zero, else zero; in place."""
    pass_through = torch.ops.aten.threshold_backward.grad_input
    gates: Tensor = pass_through(mask.expand_as(hidden), hidden, 0, grad_input=hidden)
    return gates


class _Chunks:
    """Cache-sized chunks of activations and masks, the same at each walk.

    Dropout masks are slices of a pool that is drawn for each call: to draw each one by
    itself would cost several times the arithmetic. Masks of a slice are independent;
    two rows of a batch may share some.
    """

    def __init__(
        self, fill: Fill, shape: torch.Size, unit: Tensor, dropout: float
    ) -> None:
        """Hold nothing yet.

        Args:
            fill: Writes the activations of a slice of rows, before ReLU and dropout.
            shape: b and m.
            unit: (h,), a tensor like the activations of one neighbour.
            dropout: Rate.
        """
        (b, m), h = shape, len(unit)
        row_bytes = max(1, m * h * unit.element_size())
        self.size = min(max(1, CACHE_BYTES // row_bytes), max(1, b))
        self.n = math.ceil(b / self.size)
        self.fill, self.shape, self.unit = fill, shape, unit
        self.scale = 1 / (1 - dropout)
        self.pool = unit.new_ones(1, 1)
        self.offsets = np.zeros(self.n, dtype=np.int64)
        if dropout > 0:
            n_masks = max(self.size * m, min(b * m, _POOL_ROWS))
            generator = np.random.default_rng(int(torch.randint(2**62, ())))
            self.pool = _masks(n_masks, h, dropout, generator).to(unit.dtype)
            # A pool that is large enough gives each row masks of its own.
            last = n_masks - self.size * m
            self.offsets = generator.integers(0, last + 1, self.n)
            if b * m <= n_masks:
                self.offsets = np.arange(self.n) * self.size * m

    def sums(self, weights: Tensor) -> Tensor:
        """Return the weighted sums (b, h) of all activations."""
        out = weights.new_empty(len(weights), len(self.unit))

        def work(numbers: range) -> None:
            for rows, hidden, mask in self.walk(numbers):
                hidden.relu_().mul_(mask)
                torch.bmm(weights[rows, None], hidden, out=out[rows, None])

        split_work(work, self.n)
        return out

    def walk(self, numbers: range) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield, for the chunks of a range, rows, activations and masks (r, m, h).

        The activations come before ReLU and dropout, in a buffer that the next chunk
        overwrites. Without dropout the masks are a single one.
        """
        (b, m), h = self.shape, len(self.unit)
        buffer = self.unit.new_empty(self.size * m, h)
        for number in numbers:
            rows = slice(number * self.size, min((number + 1) * self.size, b))
            n_rows = rows.stop - rows.start
            hidden = buffer[: n_rows * m]
            self.fill(rows, hidden)
            mask = self.pool
            if len(mask) > 1:
                offset = int(self.offsets[number])
                mask = mask[offset : offset + len(hidden)].view(n_rows, m, h)
            yield rows, hidden.view(n_rows, m, h), mask


def _masks(n: int, h: int, dropout: float, generator: np.random.Generator) -> Tensor:
    """Return n random dropout masks (n, h) of zeros and 1 / (1 - dropout)."""
    # Sixteen random bits a value: the rate is exact to 2 ** -16.
    words = generator.integers(0, 2**64, (n * h + 3) // 4, dtype=np.uint64)
    bits = torch.from_numpy(words.view(np.int16)[: n * h])
    threshold = round(dropout * 2**16) - 2**15
    return (bits >= threshold).float().mul_(1 / (1 - dropout)).view(n, h)
