"""The sums of `hidden_sum` on CPUs, in loops that numba compiles.

A tile of units is made for four neighbours at a time, in buffers that stay in a core's
first cache: product, ReLU, dropout and the weighted sum. The backward pass makes it
again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tabr.device.compiled import compiled
from tabr.device.threads import split_work
from tabr.device.tiles_numba import TILE, multiply
from tabr.network.activations_numba import (
    Drop,
    Pairs,
    add_four,
    as_arrays,
    draw_factors,
    ends,
    four_weights,
    in_tiles,
    rooms,
    totals,
    turn,
    units,
    weigh,
)


class Dense(torch.autograd.Function):
    """`hidden_sum` with every number of the differences."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """Return the sums (b, h); inputs are the arguments of `hidden_sum`."""
        d, w, weight, bias = (x.detach().contiguous() for x in inputs[:4])
        drop, c, pairs = Drop.drawn(inputs[4]), in_tiles(bias), Pairs.of(w)
        v = in_tiles(weight.T).transpose(0, 1).flatten(1)  # (n, p * TILE)
        out, d = d.new_empty(len(d), *c.shape), pairs.taken(d)

        def work(rows: range) -> None:
            arrays = drop.buffer(c), d, *pairs, v, c, out
            _sum(*as_arrays(*arrays), *drop, *ends(rows))

        split_work(work, len(w))
        ctx.save_for_backward(d, v, c, *pairs)
        ctx.drop, ctx.shape = drop, (*w.shape, len(weight))
        return units(out, len(weight))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of all inputs that need one."""
        d, v, c, *parts = ctx.saved_tensors
        pairs, drop, (b, m, h) = Pairs(*parts), ctx.drop, ctx.shape
        needed, g = ctx.needs_input_grad[0], in_tiles(grad)
        grad_w = torch.zeros_like(pairs.weights)
        grad_d = torch.zeros_like(d if needed else d[:0])

        def work(rows: range) -> tuple[Tensor, Tensor]:
            grad_v, grad_c = torch.zeros_like(v), torch.zeros_like(c)
            given = drop.buffer(c), d, *pairs, v, c, g
            grads = grad_d, grad_w, grad_v, grad_c
            _go_back(*as_arrays(*given, *grads), *drop, *ends(rows))
            return grad_v, grad_c

        grad_v, grad_c = totals(split_work(work, b))
        by_input = grad_v.view(len(c), -1, TILE).transpose(0, 1)  # (p, n, TILE)
        grad_weight, grad_bias = units(by_input, h).T, units(grad_c, h)
        of_d = pairs.spread(grad_d, b, m) if needed else None
        return of_d, pairs.spread(grad_w, b, m), grad_weight, grad_bias, None


class Shared(torch.autograd.Function):
    """`shared_hidden_sum`: nothing is multiplied for each neighbour."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """Return the sums (b, h); inputs are the arguments of `shared_hidden_sum`."""
        rows, candidates, index, w = (x.detach().contiguous() for x in inputs[:4])
        drop, tiles, pairs = Drop.drawn(inputs[4]), in_tiles(rows), Pairs.of(w)
        out, index = torch.empty_like(tiles), pairs.taken(index)

        def work(part: range) -> None:
            buffer = drop.buffer(tiles)
            arrays = buffer, tiles, candidates, index, *pairs, out
            _sum_shared(*as_arrays(*arrays), *drop, *ends(part))

        split_work(work, len(w))
        ctx.save_for_backward(tiles, candidates, index, *pairs)
        ctx.drop, ctx.shape = drop, w.shape
        return units(out, rows.shape[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of all inputs that need one."""
        tiles, candidates, index, *parts = ctx.saved_tensors
        pairs, drop, (b, m) = Pairs(*parts), ctx.drop, ctx.shape
        g, grad_rows = in_tiles(grad), torch.empty_like(tiles)
        grad_w = torch.zeros_like(pairs.weights)

        def work(part: range) -> tuple[Tensor]:
            grad_candidates = torch.zeros_like(candidates)
            given = drop.buffer(tiles), tiles, candidates, index, *pairs, g
            grads = grad_rows, grad_candidates, grad_w
            _go_back_shared(*as_arrays(*given, *grads), *drop, *ends(part))
            return (grad_candidates,)

        (grad_candidates,) = totals(split_work(work, b))
        of_rows = units(grad_rows, grad.shape[1])
        return of_rows, grad_candidates, None, pairs.spread(grad_w, b, m), None


# --- loops


@compiled
def _spread(z, d0, d1, d2, d3, grad_v):
    """Add to the gradient of v what four neighbours' z, gradients by now, give it."""
    p = len(d0)
    for q in range(0, p - 3, 4):
        a0, a1, a2, a3 = d0[q], d0[q + 1], d0[q + 2], d0[q + 3]
        b0, b1, b2, b3 = d1[q], d1[q + 1], d1[q + 2], d1[q + 3]
        e0, e1, e2, e3 = d2[q], d2[q + 1], d2[q + 2], d2[q + 3]
        f0, f1, f2, f3 = d3[q], d3[q + 1], d3[q + 2], d3[q + 3]
        u = grad_v[q * TILE : (q + 4) * TILE]
        for j in range(TILE):
            z0, z1, z2, z3 = z[j], z[TILE + j], z[2 * TILE + j], z[3 * TILE + j]
            u[j] += a0 * z0 + b0 * z1 + e0 * z2 + f0 * z3
            u[TILE + j] += a1 * z0 + b1 * z1 + e1 * z2 + f1 * z3
            u[2 * TILE + j] += a2 * z0 + b2 * z1 + e2 * z2 + f2 * z3
            u[3 * TILE + j] += a3 * z0 + b3 * z1 + e3 * z2 + f3 * z3
    for q in range(p // 4 * 4, p):
        a0, b0, e0, f0 = d0[q], d1[q], d2[q], d3[q]
        u = grad_v[q * TILE : (q + 1) * TILE]
        for j in range(TILE):
            z0, z1, z2, z3 = z[j], z[TILE + j], z[2 * TILE + j], z[3 * TILE + j]
            u[j] += a0 * z0 + b0 * z1 + e0 * z2 + f0 * z3


@compiled
def _pull(z, v, grad_d):
    """Add v z of up to four neighbours, gradients by now, to those of d (4, p)."""
    n = len(grad_d)
    zero = z.dtype.type(0)
    for q in range(grad_d.shape[1]):
        u = v[q * TILE : (q + 1) * TILE]
        s0 = s1 = s2 = s3 = zero
        for j in range(TILE):
            s0 += z[j] * u[j]
            s1 += z[TILE + j] * u[j]
            s2 += z[2 * TILE + j] * u[j]
            s3 += z[3 * TILE + j] * u[j]
        grad_d[0, q] += s0
        if n > 1:
            grad_d[1, q] += s1
        if n > 2:
            grad_d[2, q] += s2
        if n > 3:
            grad_d[3, q] += s3


@compiled
def _read_shared(z, row, candidates, index, k, last, a, b):
    """Write the units a..b of a row less those of four candidates, of index k on."""
    x0 = candidates[index[k]][a:b]
    x1 = candidates[index[min(k + 1, last)]][a:b]
    x2 = candidates[index[min(k + 2, last)]][a:b]
    x3 = candidates[index[min(k + 3, last)]][a:b]
    for j in range(len(x0)):
        z[j] = row[j] - x0[j]
        z[TILE + j] = row[j] - x1[j]
        z[2 * TILE + j] = row[j] - x2[j]
        z[3 * TILE + j] = row[j] - x3[j]


@compiled
def _sum(buffer, d, w, places, starts, v, c, out, seed, threshold, scale, first, last):
    """Write the sums of rows first..last.

    Shapes: d (n, p), w and places (n,), starts (b + 1,), v (tiles, p * TILE),
    c (tiles, TILE), out (b, tiles, TILE).
    """
    scale = buffer.dtype.type(scale)
    z, factors, sums, _ = rooms(buffer)
    for t in range(len(c)):
        for i in range(first, last):
            sums[:] = 0
            end = starts[i + 1] - 1
            for k in range(starts[i], end + 1, 4):
                k1, k2, k3 = min(k + 1, end), min(k + 2, end), min(k + 3, end)
                multiply(z, d[k], d[k1], d[k2], d[k3], v[t], c[t])
                if threshold > 0:
                    draw_factors(factors, seed, places, k, end, t, threshold, scale)
                weigh(z, factors, sums, four_weights(w, k, end))
            out[i, t] = sums


@compiled
def _go_back(
    buffer,
    d,
    w,
    places,
    starts,
    v,
    c,
    g,
    grad_d,
    grad_w,
    grad_v,
    grad_c,
    seed,
    threshold,
    scale,
    first,
    last,
):
    """Add to the gradients what rows first..last give them.

    Shapes: as in `_sum`; g is the gradient of its `out`. No room for the gradient of d
    means that nobody needs it.
    """
    scale = buffer.dtype.type(scale)
    z, factors, sums, near = rooms(buffer)
    for t in range(len(c)):
        sums[:] = 0
        for i in range(first, last):
            near[:] = g[i, t]
            end = starts[i + 1] - 1
            for k in range(starts[i], end + 1, 4):
                k1, k2, k3 = min(k + 1, end), min(k + 2, end), min(k + 3, end)
                multiply(z, d[k], d[k1], d[k2], d[k3], v[t], c[t])
                if threshold > 0:
                    draw_factors(factors, seed, places, k, end, t, threshold, scale)
                s = turn(z, factors, near, sums, four_weights(w, k, end))
                add_four(grad_w, k, end, s)
                _spread(z, d[k], d[k1], d[k2], d[k3], grad_v[t])
                if len(grad_d):
                    _pull(z, v[t], grad_d[k : k3 + 1])
        grad_c[t] += sums


@compiled
def _sum_shared(
    buffer,
    rows,
    candidates,
    index,
    w,
    places,
    starts,
    out,
    seed,
    threshold,
    scale,
    first,
    last,
):
    """Write the sums of rows first..last.

    Shapes: rows and out (b, tiles, TILE), candidates (c, h), index, w and places (n,),
    starts (b + 1,).
    """
    h, scale = candidates.shape[1], buffer.dtype.type(scale)
    z, factors, sums, near = rooms(buffer)
    for t in range(rows.shape[1]):
        a, b = t * TILE, min(h, (t + 1) * TILE)
        z[:] = 0
        for i in range(first, last):
            sums[:] = 0
            near[:] = rows[i, t]
            end = starts[i + 1] - 1
            for k in range(starts[i], end + 1, 4):
                _read_shared(z, near, candidates, index, k, end, a, b)
                if threshold > 0:
                    draw_factors(factors, seed, places, k, end, t, threshold, scale)
                weigh(z, factors, sums, four_weights(w, k, end))
            out[i, t] = sums


@compiled
def _go_back_shared(
    buffer,
    rows,
    candidates,
    index,
    w,
    places,
    starts,
    g,
    grad_rows,
    grad_candidates,
    grad_w,
    seed,
    threshold,
    scale,
    first,
    last,
):
    """Write or add to the gradients what rows first..last give them."""
    h, scale = candidates.shape[1], buffer.dtype.type(scale)
    z, factors, sums, near = rooms(buffer)
    for t in range(rows.shape[1]):
        a, b = t * TILE, min(h, (t + 1) * TILE)
        z[:] = 0
        for i in range(first, last):
            sums[:] = 0
            end = starts[i + 1] - 1
            for k in range(starts[i], end + 1, 4):
                near[:] = rows[i, t]
                _read_shared(z, near, candidates, index, k, end, a, b)
                near[:] = g[i, t]
                if threshold > 0:
                    draw_factors(factors, seed, places, k, end, t, threshold, scale)
                s = turn(z, factors, near, sums, four_weights(w, k, end))
                add_four(grad_w, k, end, s)
                for r in range(min(4, end + 1 - k)):
                    grad = grad_candidates[index[k + r]][a:b]
                    grad -= z[r * TILE : r * TILE + b - a]
            grad_rows[i, t] = sums
