"""The hidden sum of `pairs` as Triton kernels, for GPUs.

The activations (b, m, h) never reach memory: each program makes a tile of them in
registers, draws its dropout mask from a counter, and reduces it at once. The backward
pass makes the tiles again. Products are exact to float32 rounding (three TF32 passes).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BM = 32  # neighbours of a tile
_BH = 64  # activations of a tile
_PROGRAMS = 528  # four for each multiprocessor of a large GPU
WIDEST = 16  # wider points: torch's products win, as measured at widths 54 and 93


@triton.jit
def _tile(
    difference, weight, bias, r, i, j, k, m, h, p, seed, rate, HAS_DROPOUT: tl.constexpr
):
    """Make pre-activations (BM, BH), which of them live, and the tile of inputs."""
    rows = (r * m + i)[:, None]
    inputs = (i < m)[:, None] & (k < p)[None, :]
    d = tl.load(difference + rows * p + k[None, :], mask=inputs, other=0.0)
    parameters = (j < h)[:, None] & (k < p)[None, :]
    v = tl.load(weight + j[:, None] * p + k[None, :], mask=parameters, other=0.0)
    b = tl.load(bias + j, mask=j < h, other=0.0)
    pre = tl.dot(d, tl.trans(v), input_precision="tf32x3") + b[None, :]
    alive = pre > 0
    if HAS_DROPOUT:
        alive = alive & (tl.rand(seed, rows * h + j[None, :]) >= rate)
    return pre, alive, d, v


@triton.jit
def _forward(
    difference, weights, weight, bias, seed_ptr, out, m, h, p, rate, scale,
    HAS_DROPOUT: tl.constexpr, BM: tl.constexpr, BH: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """One program sums one row's activations of one block of h."""
    r = tl.program_id(0)
    j = tl.program_id(1) * BH + tl.arange(0, BH)
    k = tl.arange(0, BP)
    seed = tl.load(seed_ptr)
    total = tl.zeros((BH,), tl.float32)
    for start in range(0, m, BM):
        i = start + tl.arange(0, BM)
        pre, alive, _, _ = _tile(
            difference, weight, bias, r, i, j, k, m, h, p, seed, rate, HAS_DROPOUT
        )
        w = tl.load(weights + r * m + i, mask=i < m, other=0.0)
        total += tl.sum(tl.where(alive, pre, 0.0) * w[:, None], 0)
    tl.store(out + r * h + j, total * scale, mask=j < h)


@triton.jit
def _backward_rows(
    difference, weights, weight, bias, seed_ptr, grad, grad_weights, grad_difference,
    m, h, p, rate, scale, HAS_DROPOUT: tl.constexpr, NEEDS_DIFFERENCE: tl.constexpr,
    BM: tl.constexpr, BH: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """One program takes some neighbours of one row through all of h."""
    r = tl.program_id(0)
    i = tl.program_id(1) * BM + tl.arange(0, BM)
    k = tl.arange(0, BP)
    seed = tl.load(seed_ptr)
    for_weights = tl.zeros((BM,), tl.float32)
    for_difference = tl.zeros((BM, BP), tl.float32)
    for start in range(0, h, BH):
        j = start + tl.arange(0, BH)
        pre, alive, _, v = _tile(
            difference, weight, bias, r, i, j, k, m, h, p, seed, rate, HAS_DROPOUT
        )
        g = tl.load(grad + r * h + j, mask=j < h, other=0.0)
        for_weights += tl.sum(tl.where(alive, pre, 0.0) * g[None, :], 1)
        if NEEDS_DIFFERENCE:
            gate = tl.where(alive, g[None, :], 0.0)
            for_difference += tl.dot(gate, v, input_precision="tf32x3")
    tl.store(grad_weights + r * m + i, for_weights * scale, mask=i < m)
    if NEEDS_DIFFERENCE:
        w = tl.load(weights + r * m + i, mask=i < m, other=0.0) * scale
        where = grad_difference + (r * m + i)[:, None] * p + k[None, :]
        inside = (i < m)[:, None] & (k < p)[None, :]
        tl.store(where, for_difference * w[:, None], mask=inside)


@triton.jit
def _backward_parameters(
    difference, weights, weight, bias, seed_ptr, grad, part_weight, part_bias,
    b, m, h, p, n_rows, rate, scale, HAS_DROPOUT: tl.constexpr,
    BM: tl.constexpr, BH: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """One program sums one block of h over some rows; parts are added up later."""
    j = tl.program_id(0) * BH + tl.arange(0, BH)
    part = tl.program_id(1)
    k = tl.arange(0, BP)
    seed = tl.load(seed_ptr)
    for_weight = tl.zeros((BH, BP), tl.float32)
    for_bias = tl.zeros((BH,), tl.float32)
    for r in range(part * n_rows, tl.minimum((part + 1) * n_rows, b)):
        g = tl.load(grad + r * h + j, mask=j < h, other=0.0)
        for start in range(0, m, BM):
            i = start + tl.arange(0, BM)
            _, alive, d, _ = _tile(
                difference, weight, bias, r, i, j, k, m, h, p, seed, rate, HAS_DROPOUT
            )
            w = tl.load(weights + r * m + i, mask=i < m, other=0.0)
            gate = tl.where(alive, w[:, None] * g[None, :], 0.0)
            for_weight += tl.dot(tl.trans(gate), d, input_precision="tf32x3")
            for_bias += tl.sum(gate, 0)
    inside = (j < h)[:, None] & (k < p)[None, :]
    where = part_weight + (part * h + j)[:, None] * p + k[None, :]
    tl.store(where, for_weight * scale, mask=inside)
    tl.store(part_bias + part * h + j, for_bias * scale, mask=j < h)


class HiddenSum(torch.autograd.Function):
    """`pairs.hidden_sum` for float32 points; it pays up to the width `WIDEST`."""

    @staticmethod
    def forward(
        ctx: Any,
        difference: Tensor,
        weights: Tensor,
        weight: Tensor,
        bias: Tensor,
        dropout: float,
    ) -> Tensor:
        """Return the sums (b, h); the shapes are those of `pairs.hidden_sum`."""
        inputs = [t.contiguous() for t in (difference, weights, weight, bias)]
        (b, m, p), h = difference.shape, len(weight)
        # Drawn on the device: a captured graph draws a new seed at each replay.
        seed = torch.zeros(1, dtype=torch.int64, device=difference.device)
        if dropout:
            seed.random_(2**31 - 1)
        out = difference.new_empty(b, h)
        if b:
            _forward[(b, triton.cdiv(h, _BH))](
                *inputs,
                seed,
                out,
                m,
                h,
                p,
                dropout,
                1 / (1 - dropout),
                **_blocks(dropout, p),
            )
        ctx.save_for_backward(*inputs, seed)
        ctx.dropout = dropout
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of all inputs that need one."""
        *inputs, seed = ctx.saved_tensors
        difference, weights, weight = inputs[:3]
        (b, m, p), h, dropout = difference.shape, len(weight), ctx.dropout
        scale, blocks = 1 / (1 - dropout), _blocks(dropout, p)
        grad = grad.contiguous()
        needs_difference = ctx.needs_input_grad[0]
        grad_weights = torch.empty_like(weights)
        grad_difference = torch.empty_like(difference) if needs_difference else weights
        _backward_rows[(b, triton.cdiv(m, _BM))](
            *inputs, seed, grad, grad_weights, grad_difference,
            m, h, p, dropout, scale, NEEDS_DIFFERENCE=needs_difference, **blocks,
        )  # fmt: skip
        n_blocks = triton.cdiv(h, _BH)
        n_rows = triton.cdiv(b, max(1, min(b, _PROGRAMS // n_blocks)))
        n_parts = triton.cdiv(b, n_rows)
        part_weight = weight.new_empty(n_parts, h, p)
        part_bias = weight.new_empty(n_parts, h)
        _backward_parameters[(n_blocks, n_parts)](
            *inputs, seed, grad, part_weight, part_bias,
            b, m, h, p, n_rows, dropout, scale, **blocks,
        )  # fmt: skip
        return (
            grad_difference if needs_difference else None,
            grad_weights,
            part_weight.sum(0),
            part_bias.sum(0),
            None,
        )


def _blocks(dropout: float, p: int) -> dict[str, Any]:
    """Return the compile-time constants of all kernels."""
    width = max(16, triton.next_power_of_2(p))
    return {"HAS_DROPOUT": dropout > 0, "BM": _BM, "BH": _BH, "BP": width}
