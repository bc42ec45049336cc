"""Differences of points that are mostly zero, on CPUs: products that pass zeros by.

A row and its neighbour have the same level of most categories, and the same number
where numbers are counts that are mostly zero. Four neighbours of a row at a time have
the columns in which one of them differs, and what these numbers are; products read the
metric at these columns alone. All else is as in `hidden_sum_numba`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tabr.device.compiled import compiled
from tabr.device.threads import split_work
from tabr.device.tiles_numba import FOUR, TILE
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

_FILL = 3  # columns at most that fill up a product of four


class Sparse(torch.autograd.Function):
    """`hidden_sum` of differences that are mostly zero, and get no gradient."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """Return the sums (b, h); inputs are the arguments of `hidden_sum`."""
        d, w, weight, bias = (x.detach().contiguous() for x in inputs[:4])
        drop, c, pairs = Drop.drawn(inputs[4]), in_tiles(bias), Pairs.of(w)
        v, fours = _by_input(weight.T), _Fours.of(pairs.taken(d), pairs.starts)
        out = d.new_empty(len(d), *c.shape)

        def work(rows: range) -> None:
            arrays = drop.buffer(c), *fours, *pairs, v, c, out
            _sum(*as_arrays(*arrays), *drop, *ends(rows))

        split_work(work, len(w))
        ctx.save_for_backward(v, c, *fours, *pairs)
        ctx.drop, ctx.shape = drop, (*w.shape, *weight.shape)
        return units(out, len(weight))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of all inputs that need one."""
        v, c, *parts = ctx.saved_tensors
        fours, pairs = _Fours(*parts[:4]), Pairs(*parts[4:])
        drop, (b, m, h, p), g = ctx.drop, ctx.shape, in_tiles(grad)
        grad_w = torch.zeros_like(pairs.weights)

        def work(rows: range) -> tuple[Tensor, Tensor]:
            grad_v, grad_c = torch.zeros_like(v), torch.zeros_like(c)
            given = drop.buffer(c), *fours, *pairs, v, c, g
            grads = grad_w, grad_v, grad_c
            _go_back(*as_arrays(*given, *grads), *drop, *ends(rows))
            return grad_v, grad_c

        grad_v, grad_c = totals(split_work(work, b))
        of_weight, of_bias = _by_unit(grad_v, p, h).T, units(grad_c, h)
        return None, pairs.spread(grad_w, b, m), of_weight, of_bias, None


class SquaredLength(torch.autograd.Function):
    """`squared_length` of differences that get no gradient."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        """Return the squared lengths (b, m); inputs are differences and the gram."""
        d, gram = (x.detach().contiguous() for x in inputs)
        (b, m, _), v = d.shape, _by_input(gram)
        starts = torch.arange(b + 1) * m
        fours, out = _Fours.of(d.flatten(0, 1), starts), d.new_zeros(b * m)

        def work(rows: range) -> None:
            arrays = d.new_zeros(FOUR + TILE), *fours, starts, v, out
            _lengths(*as_arrays(*arrays), *ends(rows))

        split_work(work, b)
        ctx.save_for_backward(*fours)
        ctx.shape = gram.shape
        return out.view(b, m)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of the gram."""
        fours, (b, m), (p, _) = _Fours(*ctx.saved_tensors), grad.shape, ctx.shape
        starts, g = torch.arange(b + 1) * m, grad.reshape(-1)

        def work(rows: range) -> tuple[Tensor]:
            grad_v = torch.zeros_like(_by_input(g.new_empty(p, p)))
            arrays = g.new_zeros(FOUR), *fours, starts, g, grad_v
            _go_back_lengths(*as_arrays(*arrays), *ends(rows))
            return (grad_v,)

        (grad_v,) = totals(split_work(work, b))
        return None, _by_unit(grad_v, p, p)


def _by_input(weight: Tensor) -> Tensor:
    """Return a weight (p, h) as tiles of units (n, (p + fill) * TILE).

    The last inputs are zeros, for what only fills up a product of four.
    """
    filled = F.pad(weight, (0, 0, 0, _FILL))
    return in_tiles(filled).transpose(0, 1).flatten(1)


def _by_unit(tiles: Tensor, p: int, h: int) -> Tensor:
    """Return the weight (p, h) of such tiles."""
    by_input = tiles.unflatten(1, (-1, TILE))[:, :p].transpose(0, 1)  # (p, n, TILE)
    return units(by_input, h)


class _Fours(NamedTuple):
    """Differences of up to four neighbours of a row each, without common zeros.

    Attributes:
        first: Where each row's fours begin, and where the last one's end (b + 1,).
        starts: Where the columns of each four begin, and where they end (fours + 1,).
            Their number is a multiple of four.
        columns: Numbers of the columns, or one beyond them for what only fills up.
        values: What each of the four differs by in a column, (columns, 4).
    """

    first: Tensor
    starts: Tensor
    columns: Tensor
    values: Tensor

    @classmethod
    def of(cls, d: Tensor, starts: Tensor) -> _Fours:
        """Return those of the differences (n, p) of rows; starts is (b + 1,)."""
        n_rows = len(starts) - 1
        first = torch.zeros_like(starts)
        torch.cumsum((starts.diff() + 3) // 4, 0, out=first[1:])
        counts = torch.zeros(int(first[-1]), dtype=torch.int64)

        def count(rows: range) -> None:
            _count(*as_arrays(d, starts, first, counts), *ends(rows))

        split_work(count, n_rows)
        column_starts = F.pad(counts.cumsum(0), (1, 0))
        size = int(column_starts[-1])
        columns = torch.empty(size, dtype=torch.int64)
        fours = cls(first, column_starts, columns, d.new_empty(size, 4))

        def fill(rows: range) -> None:
            _fill(*as_arrays(d, starts, *fours), *ends(rows))

        split_work(fill, n_rows)
        return fours


# --- loops


@compiled
def _count(d, starts, first, counts, top, bottom):
    """Write how many columns each four has, filled up to a multiple of four."""
    for i in range(top, bottom):
        g, end = first[i], starts[i + 1] - 1
        for k in range(starts[i], end + 1, 4):
            d0, d1 = d[k], d[min(k + 1, end)]
            d2, d3 = d[min(k + 2, end)], d[min(k + 3, end)]
            n = 0
            for q in range(len(d0)):
                n += (d0[q] != 0) | (d1[q] != 0) | (d2[q] != 0) | (d3[q] != 0)
            counts[g] = (n + 3) // 4 * 4
            g += 1


@compiled
def _fill(d, starts, first, column_starts, columns, values, top, bottom):
    """Write columns and values of the fours of rows; zero beyond a row's last pair."""
    p = d.shape[1]
    for i in range(top, bottom):
        g, end = first[i], starts[i + 1] - 1
        for k in range(starts[i], end + 1, 4):
            k1, k2, k3 = min(k + 1, end), min(k + 2, end), min(k + 3, end)
            d0, d1, d2, d3 = d[k], d[k1], d[k2], d[k3]
            a, stop = column_starts[g], column_starts[g + 1]
            for q in range(p):
                if (d0[q] != 0) | (d1[q] != 0) | (d2[q] != 0) | (d3[q] != 0):
                    columns[a] = q
                    values[a, 0] = d0[q]
                    values[a, 1] = d1[q] if k + 1 <= end else 0
                    values[a, 2] = d2[q] if k + 2 <= end else 0
                    values[a, 3] = d3[q] if k + 3 <= end else 0
                    a += 1
            for q in range(p, p + stop - a):
                columns[a] = q
                values[a] = 0
                a += 1
            g += 1


@compiled
def _multiply(z, columns, values, v, c):
    """Write c + d v for four differences into z (FOUR,): v (p * TILE), c (TILE)."""
    for j in range(TILE):
        z[j] = c[j]
        z[TILE + j] = c[j]
        z[2 * TILE + j] = c[j]
        z[3 * TILE + j] = c[j]
    for q in range(0, len(columns), 4):
        a0, b0, e0, f0 = values[q, 0], values[q, 1], values[q, 2], values[q, 3]
        q1, q2, q3 = q + 1, q + 2, q + 3
        a1, b1, e1, f1 = values[q1, 0], values[q1, 1], values[q1, 2], values[q1, 3]
        a2, b2, e2, f2 = values[q2, 0], values[q2, 1], values[q2, 2], values[q2, 3]
        a3, b3, e3, f3 = values[q3, 0], values[q3, 1], values[q3, 2], values[q3, 3]
        v0 = v[columns[q] * TILE : (columns[q] + 1) * TILE]
        v1 = v[columns[q1] * TILE : (columns[q1] + 1) * TILE]
        v2 = v[columns[q2] * TILE : (columns[q2] + 1) * TILE]
        v3 = v[columns[q3] * TILE : (columns[q3] + 1) * TILE]
        for j in range(TILE):
            u0, u1, u2, u3 = v0[j], v1[j], v2[j], v3[j]
            z[j] += a0 * u0 + a1 * u1 + a2 * u2 + a3 * u3
            z[TILE + j] += b0 * u0 + b1 * u1 + b2 * u2 + b3 * u3
            z[2 * TILE + j] += e0 * u0 + e1 * u1 + e2 * u2 + e3 * u3
            z[3 * TILE + j] += f0 * u0 + f1 * u1 + f2 * u2 + f3 * u3


@compiled
def _spread(z, columns, values, grad_v):
    """Add to the gradient of v what four neighbours' z, gradients by now, give it."""
    for q in range(0, len(columns), 4):
        a0, b0, e0, f0 = values[q, 0], values[q, 1], values[q, 2], values[q, 3]
        q1, q2, q3 = q + 1, q + 2, q + 3
        a1, b1, e1, f1 = values[q1, 0], values[q1, 1], values[q1, 2], values[q1, 3]
        a2, b2, e2, f2 = values[q2, 0], values[q2, 1], values[q2, 2], values[q2, 3]
        a3, b3, e3, f3 = values[q3, 0], values[q3, 1], values[q3, 2], values[q3, 3]
        v0 = grad_v[columns[q] * TILE : (columns[q] + 1) * TILE]
        v1 = grad_v[columns[q1] * TILE : (columns[q1] + 1) * TILE]
        v2 = grad_v[columns[q2] * TILE : (columns[q2] + 1) * TILE]
        v3 = grad_v[columns[q3] * TILE : (columns[q3] + 1) * TILE]
        for j in range(TILE):
            z0, z1, z2, z3 = z[j], z[TILE + j], z[2 * TILE + j], z[3 * TILE + j]
            v0[j] += a0 * z0 + b0 * z1 + e0 * z2 + f0 * z3
            v1[j] += a1 * z0 + b1 * z1 + e1 * z2 + f1 * z3
            v2[j] += a2 * z0 + b2 * z1 + e2 * z2 + f2 * z3
            v3[j] += a3 * z0 + b3 * z1 + e3 * z2 + f3 * z3


@compiled
def _sum(
    buffer,
    first,
    column_starts,
    columns,
    values,
    w,
    places,
    starts,
    v,
    c,
    out,
    seed,
    threshold,
    scale,
    top,
    bottom,
):
    """Write the sums of rows top..bottom.

    Shapes: w and places (n,), starts (b + 1,), v (tiles, (p + fill) * TILE),
    c (tiles, TILE), out (b, tiles, TILE).
    """
    scale = buffer.dtype.type(scale)
    z, factors, sums, _ = rooms(buffer)
    for t in range(len(c)):
        for i in range(top, bottom):
            sums[:] = 0
            g, end = first[i], starts[i + 1] - 1
            for k in range(starts[i], end + 1, 4):
                x, y = column_starts[g], column_starts[g + 1]
                _multiply(z, columns[x:y], values[x:y], v[t], c[t])
                if threshold > 0:
                    draw_factors(factors, seed, places, k, end, t, threshold, scale)
                weigh(z, factors, sums, four_weights(w, k, end))
                g += 1
            out[i, t] = sums


@compiled
def _go_back(
    buffer,
    first,
    column_starts,
    columns,
    values,
    w,
    places,
    starts,
    v,
    c,
    g,
    grad_w,
    grad_v,
    grad_c,
    seed,
    threshold,
    scale,
    top,
    bottom,
):
    """Add to the gradients what rows top..bottom give them."""
    scale = buffer.dtype.type(scale)
    z, factors, sums, near = rooms(buffer)
    for t in range(len(c)):
        sums[:] = 0
        for i in range(top, bottom):
            near[:] = g[i, t]
            four, end = first[i], starts[i + 1] - 1
            for k in range(starts[i], end + 1, 4):
                x, y = column_starts[four], column_starts[four + 1]
                _multiply(z, columns[x:y], values[x:y], v[t], c[t])
                if threshold > 0:
                    draw_factors(factors, seed, places, k, end, t, threshold, scale)
                s = turn(z, factors, near, sums, four_weights(w, k, end))
                add_four(grad_w, k, end, s)
                _spread(z, columns[x:y], values[x:y], grad_v[t])
                four += 1
        grad_c[t] += sums


@compiled
def _lengths(
    buffer, first, column_starts, columns, values, starts, v, out, top, bottom
):
    """Add to the squared lengths of the pairs of rows top..bottom, a tile at a time.

    Shapes: v (tiles, (p + fill) * TILE), the gram; out (n,).
    """
    z, c, zero = buffer[:FOUR], buffer[FOUR:], buffer.dtype.type(0)
    for t in range(len(v)):
        low = t * TILE
        for i in range(top, bottom):
            g, end = first[i], starts[i + 1] - 1
            for k in range(starts[i], end + 1, 4):
                x, y = column_starts[g], column_starts[g + 1]
                _multiply(z, columns[x:y], values[x:y], v[t], c)
                s0 = s1 = s2 = s3 = zero
                for q in range(x, y):
                    j = columns[q] - low
                    if 0 <= j < TILE:
                        s0 += values[q, 0] * z[j]
                        s1 += values[q, 1] * z[TILE + j]
                        s2 += values[q, 2] * z[2 * TILE + j]
                        s3 += values[q, 3] * z[3 * TILE + j]
                add_four(out, k, end, (s0, s1, s2, s3))
                g += 1


@compiled
def _go_back_lengths(
    z, first, column_starts, columns, values, starts, g, grad_v, top, bottom
):
    """Add to the gradient of the gram, as `v` of `_lengths`; z begins as zeros."""
    for t in range(len(grad_v)):
        low = t * TILE
        for i in range(top, bottom):
            four, end = first[i], starts[i + 1] - 1
            for k in range(starts[i], end + 1, 4):
                x, y = column_starts[four], column_starts[four + 1]
                g0, g1, g2, g3 = four_weights(g, k, end)
                for q in range(x, y):
                    j = columns[q] - low
                    if 0 <= j < TILE:
                        z[j] = g0 * values[q, 0]
                        z[TILE + j] = g1 * values[q, 1]
                        z[2 * TILE + j] = g2 * values[q, 2]
                        z[3 * TILE + j] = g3 * values[q, 3]
                _spread(z, columns[x:y], values[x:y], grad_v[t])
                for q in range(x, y):
                    j = columns[q] - low
                    if 0 <= j < TILE:
                        z[j] = z[TILE + j] = z[2 * TILE + j] = z[3 * TILE + j] = 0
                four += 1
