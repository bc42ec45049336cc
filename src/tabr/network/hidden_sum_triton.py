"""The sums of `hidden_sum` as Triton kernels, for GPUs.

The activations (b, m, h) never reach memory. The forward pass makes them a tile at a
time, in registers, and keeps one bit of each: whether it is active, that is, whether
ReLU and dropout let it through. The backward pass needs nothing but these bits:

* sums over neighbours, for V and c: bits (h, m) times w_i [d_i, 1];
* sums over activations, for d and w: bits (m, h) times g_j [V_j, c_j].

A word holds the bits of 32 neighbours of a row for one activation: (b, m / 32, h). The
bits of two adjacent neighbours are 16 apart: as bfloat16 they then share an integer.

Products are exact to float32 rounding. Tensor cores take less than 24 bits, so numbers
are split. For the first product each factor is split in two, and three of the four
parts count; in the other products bits are exact and numbers are split in three. Floats
are added in a fixed order: a seed gives the same result each time.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from tabr.device import random

_WORD = tl.constexpr(32)  # neighbours of a tile: the bits of a word
_DIGITS = 12  # of a dropout rate, in binary: four for each call of the generator
_ALIGNED = 128  # tables have a multiple of this many rows of h
_PROGRAMS = 1056  # eight for each multiprocessor of a large GPU
_DRAWN = 512  # words that a program draws
# Triton's pipelines lay points of odd widths out with bank conflicts: the loops load
# the next tile themselves.
_SIMPLE = {"num_warps": 4, "num_stages": 1}
WIDEST = 127  # one tile of columns; wider points were not measured


@triton.jit(do_not_specialize=["n_drawn", "keep"])
def _prepare(
    weight, bias, seed_ptr, table, words, n_drawn, h, p, stride, keep,
    DIGITS: tl.constexpr, HAS_DROPOUT: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write [V, c] and its halves, padded with zeros, and draw the bits dropout keeps.

    Bits are one at the rate keep / 2 ** DIGITS: where a random binary fraction is
    below it. The comparison goes digit by digit, from the last, for 32 bits at once.
    """
    member = tl.program_id(1).to(tl.int64)
    weight += member * h * p
    bias += member * h
    table += member * (3 * stride * WIDTH)
    words += member * n_drawn
    number = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if tl.program_id(0) * BLOCK < stride * WIDTH:
        j, k = number // WIDTH, number % WIDTH
        v = tl.load(weight + j * p + k, mask=(j < h) & (k < p), other=0.0)
        c = tl.load(bias + j, mask=(j < h) & (k == p), other=0.0)
        high, low = _halves(v + c)
        tl.store(table + number, v + c, mask=j < stride)
        tl.store(table + stride * WIDTH + number, high, mask=j < stride)
        tl.store(table + stride * (2 * WIDTH) + number, low, mask=j < stride)
    if HAS_DROPOUT:
        seed = tl.load(seed_ptr + member)
        zero = tl.zeros_like(number)
        kept = zero
        for call in tl.static_range(DIGITS // 4):
            # Seven rounds suffice for the generator to pass all known tests.
            drawn = tl.philox(seed, number, zero + call, zero, zero, n_rounds=7)
            for n in tl.static_range(4):
                digit = -((keep >> (call * 4 + n)) & 1)  # all ones, or all zeros
                w = drawn[n].to(tl.int32, bitcast=True)
                kept = (w & kept) | (digit & (w | kept))
        tl.store(words + number, kept, mask=number < n_drawn)


@triton.jit
def _bit_of(place):
    """Return the bit of each neighbour of a word."""
    return 1 << ((place >> 1) | ((place & 1) << 4))


@triton.jit
def _points(difference, t, last, k, m, p, n_words: tl.constexpr, BN: tl.constexpr = 1):
    """Return [d, 1] of the neighbours of tile t, columns k; d is 0 from `last` on."""
    steps = tl.cdiv(n_words, BN)
    row = tl.cast(t // steps, tl.int64)
    i = t % steps * (BN * _WORD) + tl.arange(0, BN * _WORD)
    inside = ((i < m) & (t < last))[:, None] & (k < p)[None, :]
    where = difference + row * m * p + i[:, None] * p + k[None, :]
    d = tl.load(where, mask=inside, other=0.0)
    return tl.where((k == p)[None, :], 1.0, d)


@triton.jit
def _halves(x):
    """Return what TF32 holds of numbers exactly, and the rest."""
    high = (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
    return high, x - high


@triton.jit
def _ones(words):
    """Return bits k and k + 16 of words (j, n) as bfloat16: (j, n, 16, 2)."""
    packed = _packed(words)
    return tl.join(_low(packed), _low(packed >> 16))


@triton.jit
def _packed(words):
    """Return bits k and k + 16 of words (j, n) in one integer: (j, n, 16).

    Its halves are the two as bfloat16, where 0x3F80 is one.
    """
    bits = tl.arange(0, 16)[None, None, :]
    return ((words[:, :, None] >> bits) & 0x10001) * 0x3F80


@triton.jit
def _low(x):
    """Return the lower halves of integers as bfloat16."""
    return x.to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def _thirds(x):
    """Return numbers as sums of three numbers of eight bits."""
    high = x.to(tl.bfloat16)
    rest = x - high.to(tl.float32)
    middle = rest.to(tl.bfloat16)
    return high, middle, (rest - middle.to(tl.float32)).to(tl.bfloat16)


@triton.jit(do_not_specialize=["b", "n_rows"])
def _forward(
    difference, weights, table, words, out,
    b, m, h, p, stride, n_rows, scale, n_words: tl.constexpr,
    HAS_DROPOUT: tl.constexpr, SAVES: tl.constexpr,
    BH: tl.constexpr, BP: tl.constexpr, NP: tl.constexpr,
):  # fmt: skip
    """Write the sums: one program for one block of h and some rows of a member."""
    member = tl.program_id(2).to(tl.int64)
    difference += member * b * m * p
    weights += member * b * m
    table += member * (3 * stride * NP * BP)
    words += member * b * n_words * stride
    out += member * b * h
    j = tl.program_id(0) * BH + tl.arange(0, BH)
    first = tl.program_id(1) * n_rows
    k = tl.arange(0, BP)
    place = tl.arange(0, _WORD)
    bit = _bit_of(place)
    v_where = table + j[:, None] * (NP * BP) + k[None, :]
    if NP == 1:  # as they come from memory, products read them in shared memory
        v_high = tl.load(v_where + stride * BP)
        v_low = tl.load(v_where + stride * (2 * BP))
    total = tl.zeros((BH, _WORD), tl.float32)
    last = tl.minimum(first + n_rows, b) * n_words
    d = _points(difference, first * n_words, last, k, m, p, n_words)
    for t in range(first * n_words, last):
        row, n = tl.cast(t // n_words, tl.int64), t % n_words
        i = n * _WORD + place
        where = words + (row * n_words + n) * stride + j
        if HAS_DROPOUT:
            kept = tl.load(where)
        w = tl.load(weights + row * m + i, mask=i < m, other=0.0)
        pre = tl.zeros((BH, _WORD), tl.float32)
        for part in tl.static_range(NP):
            d_high, d_low = _halves(tl.trans(d))
            if NP > 1:
                v_high, v_low = _halves(tl.load(v_where + part * BP))
            # The next tile is under way while this one is worked on.
            if part + 1 < NP:
                d = _points(difference, t, last, part * BP + BP + k, m, p, n_words)
            else:
                d = _points(difference, t + 1, last, k, m, p, n_words)
            pre = tl.dot(v_low, d_high, pre, input_precision="tf32")
            pre = tl.dot(v_high, d_low, pre, input_precision="tf32")
            pre = tl.dot(v_high, d_high, pre, input_precision="tf32")
        active = pre > 0
        if HAS_DROPOUT:
            active = active & ((kept[:, None] & bit[None, :]) != 0)
        if SAVES:
            tl.store(where, tl.sum(tl.where(active, bit[None, :], 0), 1))
        total += tl.where(active, pre, 0.0) * w[None, :]
        if n == n_words - 1:
            sums = tl.sum(total, 1) * scale
            tl.store(out + row * h + j, sums, mask=j < h)
            total = tl.zeros((BH, _WORD), tl.float32)


@triton.jit(do_not_specialize=["b", "n_rows", "n_parts"])
def _backward_parameters(
    difference, weights, words, grad, parts,
    b, m, h, p, stride, n_rows, n_parts, scale, n_words: tl.constexpr,
    BH: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """Write gradients of [V, c]: one program for one block and some rows.

    The parts of the programs are added up later.
    """
    member = (tl.program_id(1) // n_parts).to(tl.int64)
    difference += member * b * m * p
    weights += member * b * m
    words += member * b * n_words * stride
    grad += member * b * h
    parts += member * n_parts * h * (p + 1)
    j = tl.program_id(0) * BH + tl.arange(0, BH)
    part = tl.program_id(1) % n_parts
    k = tl.program_id(2) * BP + tl.arange(0, BP)
    total = tl.zeros((BH, BP), tl.float32)
    last = tl.minimum((part + 1) * n_rows, b) * n_words
    d = _points(difference, part * n_rows * n_words, last, k, m, p, n_words)
    for t in range(part * n_rows * n_words, last):
        row, n = tl.cast(t // n_words, tl.int64), t % n_words
        i = n * _WORD + tl.arange(0, _WORD)
        word = tl.load(words + (row * n_words + n) * stride + j)
        active = tl.reshape(_ones(word[:, None]), (BH, _WORD))
        g = tl.load(grad + row * h + j, mask=j < h, other=0.0)
        w = tl.load(weights + row * m + i, mask=i < m, other=0.0)
        high, middle, low = _thirds(w[:, None] * d)
        d = _points(difference, t + 1, last, k, m, p, n_words)
        moments = tl.dot(active, low)
        moments = tl.dot(active, middle, moments)
        moments = tl.dot(active, high, moments)
        total += g[:, None] * moments
    inside = (j < h)[:, None] & (k <= p)[None, :]
    where = parts + (part * h + j)[:, None] * (p + 1) + k[None, :]
    tl.store(where, total * scale, mask=inside)


@triton.jit
def _active(
    words, n, stride, n_words: tl.constexpr, BH: tl.constexpr, BN: tl.constexpr
):
    """Return a row's next BH activations as ones and zeros, (BN * 32, BH)."""
    # Two adjacent activations share an integer: products read them so.
    where = words.to(tl.pointer_type(tl.int64)) + n[None, :] * (stride // 2)
    where += tl.arange(0, BH // 2)[:, None]
    pair = tl.load(where, mask=(n < n_words)[None, :], other=0)
    even, odd = pair.to(tl.int32), (pair >> 32).to(tl.int32)
    lower = _packed((even & 0xFFFF) | (odd << 16))
    upper = _packed((even >> 16 & 0xFFFF) | (odd & -0x10000))
    packed = tl.reshape(tl.join(lower, upper), (BH // 2, BN * _WORD))
    active = tl.join(_low(packed), _low(packed >> 16))
    return tl.reshape(tl.permute(active, (1, 0, 2)), (BN * _WORD, BH))


@triton.jit(do_not_specialize=["b"])
def _backward_rows(
    difference, weights, table, words, grad, grad_weights, grad_difference,
    b, m, h, p, stride, scale,
    n_words: tl.constexpr, NEEDS_DIFFERENCE: tl.constexpr,
    BH: tl.constexpr, BN: tl.constexpr, BP: tl.constexpr, NP: tl.constexpr,
):  # fmt: skip
    """Write gradients of d and w: one program for some neighbours of one row."""
    r = tl.program_id(0)  # rows of all members
    table += (r // b).to(tl.int64) * (3 * stride * NP * BP)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    i = tl.program_id(1) * (BN * _WORD) + tl.arange(0, BN * _WORD)
    start = r.to(tl.int64) * m
    t = r * tl.cdiv(n_words, BN) + tl.program_id(1)
    for_weights = tl.zeros((BN * _WORD,), tl.float32)
    w = tl.load(weights + start + i, mask=i < m, other=0.0)
    words += r.to(tl.int64) * n_words * stride
    for part in range(NP):
        k = part * BP + tl.arange(0, BP)
        pulled = tl.zeros((BN * _WORD, BP), tl.float32)
        for first in range(0, h, BH):
            j = first + tl.arange(0, BH)
            active = _active(words + first, n, stride, n_words, BH, BN)
            g = tl.load(grad + r.to(tl.int64) * h + j, mask=j < h, other=0.0)
            v = tl.load(table + j[:, None] * (NP * BP) + k[None, :])
            high, middle, low = _thirds(g[:, None] * v)
            pulled = tl.dot(active, low, pulled)
            pulled = tl.dot(active, middle, pulled)
            pulled = tl.dot(active, high, pulled)
        pulled *= scale
        d = _points(difference, t, t + 1, k, m, p, n_words, BN)
        for_weights += tl.sum(pulled * d, 1)
        if NEEDS_DIFFERENCE:
            where = grad_difference + start * p + i[:, None] * p + k[None, :]
            inside = (i < m)[:, None] & (k < p)[None, :]
            tl.store(where, pulled * w[:, None], mask=inside)
    tl.store(grad_weights + start + i, for_weights, mask=i < m)


def _columns(p: int) -> dict[str, int]:
    """Return the width of a tile and how many there are: p columns and the bias."""
    width = max(16, triton.next_power_of_2(p + 1))
    width = width if width <= 128 else 64
    return {"BP": width, "NP": triton.cdiv(p + 1, width)}


def _split_rows(b: int, n_blocks: int) -> tuple[int, int]:
    """Return how many rows a program takes, and how many programs there are."""
    n_rows = max(1, triton.cdiv(b, max(1, _PROGRAMS // n_blocks)))
    return n_rows, triton.cdiv(b, n_rows)


class HiddenSum(torch.autograd.Function):
    """`hidden_sum` for float32 points; it pays up to the width `WIDEST`.

    All tensors may have a member axis in front.
    """

    @classmethod
    def apply(cls, *arguments: Any) -> Any:
        """Return the sums; `forward` cannot see whether gradients are off."""
        *tensors, dropout = arguments
        if not torch.is_grad_enabled():
            tensors = [tensor.detach() for tensor in tensors]
        alone = tensors[0].ndim == 3
        if alone:
            tensors = [tensor.unsqueeze(0) for tensor in tensors]
        out = super().apply(*tensors, dropout)
        return out.squeeze(0) if alone else out

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """Return the sums (k, b, h); inputs are the arguments of `hidden_sum`."""
        *tensors, dropout = inputs
        difference, weights, weight, bias = (t.contiguous() for t in tensors)
        (k, b, m, p), h = difference.shape, weight.shape[1]
        columns = _columns(p)
        n_words = max(1, triton.cdiv(m, 32))
        stride = triton.cdiv(h, _ALIGNED) * _ALIGNED
        width = columns["BP"] * columns["NP"]
        table = difference.new_empty(k, 3, stride, width)
        keep = max(1, round((1 - dropout) * 2**_DIGITS))
        saves, has_dropout = any(ctx.needs_input_grad), keep < 2**_DIGITS
        n_kept = b * n_words * stride if saves or has_dropout else 0
        words = torch.empty(k, n_kept, dtype=torch.int32, device=difference.device)
        seeds = random.seeds(difference.device) if has_dropout else words
        n_drawn = n_kept if has_dropout else 0
        _prepare[(triton.cdiv(max(n_drawn, stride * width), _DRAWN), k)](
            weight, bias, seeds, table, words, n_drawn, h, p, stride, keep,
            DIGITS=_DIGITS, HAS_DROPOUT=has_dropout, WIDTH=width, BLOCK=_DRAWN,
        )  # fmt: skip
        out: Tensor = difference.new_empty(k, b, h)
        scale = 2**_DIGITS / keep
        n_blocks = triton.cdiv(h, 64)
        n_rows, n_parts = _split_rows(b, n_blocks)  # many short programs, if k are many
        if b:
            _forward[(n_blocks, n_parts, k)](
                difference, weights, table, words, out,
                b, m, h, p, stride, n_rows, scale, n_words,
                HAS_DROPOUT=has_dropout, SAVES=saves,
                BH=64, **_SIMPLE, **columns,
            )  # fmt: skip
        ctx.save_for_backward(difference, weights, table, words)
        ctx.shape, ctx.scale = (h, n_words, stride), scale
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of all inputs that need one."""
        difference, weights, table, words = ctx.saved_tensors
        (k, b, m, p), (h, n_words, stride) = difference.shape, ctx.shape
        columns = _columns(p)
        grad = grad.contiguous()
        needs_difference = ctx.needs_input_grad[0]
        grad_weights = torch.empty_like(weights)
        grad_difference = torch.empty_like(difference) if needs_difference else weights
        is_widest = columns["BP"] > 64
        launch = {"num_warps": 8, "num_stages": 3} if is_widest else _SIMPLE
        if b:
            _backward_rows[(k * b, triton.cdiv(n_words, 4))](
                difference, weights, table, words, grad, grad_weights, grad_difference,
                b, m, h, p, stride, ctx.scale, n_words,
                NEEDS_DIFFERENCE=needs_difference, BH=64, BN=4, **launch, **columns,
            )  # fmt: skip
        width = min(64, columns["BP"])
        n_blocks, n_widths = triton.cdiv(h, 128), triton.cdiv(p + 1, width)
        n_rows, n_parts = _split_rows(b, n_blocks * n_widths * k)
        parts = table.new_empty(k, n_parts, h, p + 1)
        if b:
            _backward_parameters[(n_blocks, n_parts * k, n_widths)](
                difference, weights, words, grad, parts,
                b, m, h, p, stride, n_rows, n_parts, ctx.scale, n_words,
                BH=128, BP=width, num_warps=8 if width > 32 else 4, num_stages=1,
            )  # fmt: skip
        grad_parameters = parts.sum(1)
        return (
            grad_difference if needs_difference else None,
            grad_weights,
            grad_parameters[..., :p],
            grad_parameters[..., p],
            None,
        )
