"""The sums of `hidden_sum` on CPUs, in loops that numba compiles.

A tile of units is made for four neighbours at a time, in buffers that stay in a core's
first cache: ReLU, dropout and the weighted sum, and where points are narrow the product
too. The backward pass makes it again. Whether an activation is dropped is a hash of the
seed, the pair of row and neighbour, and the unit, so that both passes see the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tabr.device.compiled import compiled
from tabr.device.threads import split_work
from tabr.device.tiles_numba import FOUR, TILE, multiply
from tabr.network.hidden_sum_cpu import CACHE_BYTES

_HALF = TILE // 2
_STRIDE = np.uint32(0x9E3779B1)  # of the hash from unit to unit
_LOW = np.uint32(0xFFFF)


class Narrow(torch.autograd.Function):
    """`hidden_sum` in one loop, for points of few numbers."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """Return the sums (b, h); inputs are the arguments of `hidden_sum`."""
        d, w, weight, bias = (x.detach().contiguous() for x in inputs[:4])
        drop, c = _Drop.drawn(inputs[4]), _in_tiles(bias)
        v = _in_tiles(weight.T).transpose(0, 1).flatten(1)  # (n, p * TILE)
        out = d.new_empty(len(d), *c.shape)

        def work(rows: range) -> None:
            _sum(*_arrays(drop.buffer(c), d, w, v, c, out), *drop, *_ends(rows))

        split_work(work, len(d))
        ctx.save_for_backward(d, w, v, c)
        ctx.drop, ctx.h = drop, len(weight)
        return _units(out, ctx.h)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of all inputs that need one."""
        d, w, v, c = ctx.saved_tensors
        needed, drop, g = ctx.needs_input_grad[0], ctx.drop, _in_tiles(grad)
        grad_w, grad_d = torch.zeros_like(w), torch.zeros_like(d if needed else d[:0])

        def work(rows: range) -> tuple[Tensor, Tensor]:
            grad_v, grad_c = torch.zeros_like(v), torch.zeros_like(c)
            given = drop.buffer(c), d, w, v, c, g
            grads = grad_d, grad_w, grad_v, grad_c
            _go_back(*_arrays(*given, *grads), *drop, *_ends(rows))
            return grad_v, grad_c

        grad_v, grad_c = _totals(split_work(work, len(d)))
        by_input = grad_v.view(len(c), -1, TILE).transpose(0, 1)  # (p, n, TILE)
        grad_weight, grad_bias = _units(by_input, ctx.h).T, _units(grad_c, ctx.h)
        return grad_d if needed else None, grad_w, grad_weight, grad_bias, None


class Wide(torch.autograd.Function):
    """`hidden_sum` from products that torch makes, a chunk of rows at a time."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """Return the sums (b, h); inputs are the arguments of `hidden_sum`."""
        d, w, v, bias = (x.detach().contiguous() for x in inputs[:4])
        drop, c = _Drop.drawn(inputs[4]), _in_tiles(bias)
        out = d.new_empty(len(d), *c.shape)

        def work(rows: range) -> None:
            buffer = drop.buffer(c)
            for chunk, hidden in _products(d, v, rows):
                _sum_given(*_arrays(buffer, hidden, w, c, out), *drop, *_ends(chunk))

        split_work(work, len(d))
        ctx.save_for_backward(d, w, v, c)
        ctx.drop = drop
        return _units(out, len(v))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of all inputs that need one."""
        d, w, v, c = ctx.saved_tensors
        needed, drop, g = ctx.needs_input_grad[0], ctx.drop, _in_tiles(grad)
        grad_w, grad_d = torch.zeros_like(w), torch.empty_like(d) if needed else None

        def work(rows: range) -> tuple[Tensor, Tensor]:
            buffer, grad_v, grad_c = drop.buffer(c), torch.zeros_like(v), c * 0
            for chunk, hidden in _products(d, v, rows):
                arrays = buffer, hidden, w, c, g, grad_w, grad_c
                _go_back_given(*_arrays(*arrays), *drop, *_ends(chunk))
                part = slice(chunk.start, chunk.stop)
                grad_v.addmm_(hidden.T, d[part].flatten(0, 1))
                if grad_d is not None:
                    torch.mm(hidden, v, out=grad_d[part].flatten(0, 1))
            return grad_v, grad_c

        grad_v, grad_c = _totals(split_work(work, len(d)))
        return grad_d, grad_w, grad_v, _units(grad_c, len(v)), None


class Shared(torch.autograd.Function):
    """`shared_hidden_sum`: nothing is multiplied for each neighbour."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """Return the sums (b, h); inputs are the arguments of `shared_hidden_sum`."""
        rows, candidates, index, w = (x.detach().contiguous() for x in inputs[:4])
        drop, tiles = _Drop.drawn(inputs[4]), _in_tiles(rows)
        out = torch.empty_like(tiles)

        def work(part: range) -> None:
            arrays = drop.buffer(tiles), tiles, candidates, index, w, out
            _sum_shared(*_arrays(*arrays), *drop, *_ends(part))

        split_work(work, len(w))
        ctx.save_for_backward(tiles, candidates, index, w)
        ctx.drop = drop
        return _units(out, rows.shape[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of all inputs that need one."""
        tiles, candidates, index, w = ctx.saved_tensors
        drop, g = ctx.drop, _in_tiles(grad)
        grad_w, grad_rows = torch.zeros_like(w), torch.empty_like(tiles)

        def work(part: range) -> tuple[Tensor]:
            grad_candidates = torch.zeros_like(candidates)
            given = drop.buffer(tiles), tiles, candidates, index, w, g
            grads = grad_rows, grad_candidates, grad_w
            _go_back_shared(*_arrays(*given, *grads), *drop, *_ends(part))
            return (grad_candidates,)

        (grad_candidates,) = _totals(split_work(work, len(w)))
        return _units(grad_rows, grad.shape[1]), grad_candidates, None, grad_w, None


class _Drop(NamedTuple):
    """What decides who is dropped: sixteen bits of a hash below the threshold.

    So the rate is exact to 2 ** -16. All others are multiplied by `scale`.
    """

    seed: Any
    threshold: int
    scale: float

    @classmethod
    def drawn(cls, dropout: float) -> _Drop:
        """Return one of that rate; torch's generator draws the seed."""
        seed = int(torch.randint(2**62, ())) if dropout > 0 else 0
        threshold = min(round(dropout * 2**16), 2**16 - 1)
        return cls(np.uint64(seed), threshold, 1 / (1 - dropout))

    def buffer(self, like: Tensor) -> Tensor:
        """Return room for one thread's loops; torch's begins where a cache line does.

        It is for four neighbours' activations, their factors, a tile of sums and one
        of gradients. Without dropout nobody writes the factors.
        """
        return like.new_full((10 * TILE,), self.scale)


def _in_tiles(x: Tensor) -> Tensor:
    """Return (..., h) as (..., n, TILE); zeros, which change no sum, fill the last."""
    filled = F.pad(x, (0, -x.shape[-1] % TILE))
    tiles: Tensor = filled.unflatten(-1, (-1, TILE))
    return tiles


def _units(tiles: Tensor, h: int) -> Tensor:
    """Return the h units (..., h) of tiles (..., n, TILE)."""
    return tiles.flatten(-2)[..., :h].contiguous()


def _products(d: Tensor, v: Tensor, rows: range) -> Iterator[tuple[range, Tensor]]:
    """Yield rows, some at a time, and products (r * m, h), which the next overwrite."""
    m, h = d.shape[1], len(v)
    size = max(1, CACHE_BYTES // max(1, m * h * v.element_size()))
    buffer = v.new_empty(min(size, len(rows)) * m, h)
    for start in rows[::size]:
        chunk = range(start, min(start + size, rows.stop))
        hidden = buffer[: len(chunk) * m]
        torch.mm(d[chunk.start : chunk.stop].flatten(0, 1), v.T, out=hidden)
        yield chunk, hidden


def _totals(parts: list[tuple[Tensor, ...]]) -> list[Tensor]:
    """Return the sums of what threads made, in their order."""
    return [
        part[0] if len(part) == 1 else torch.stack(part).sum(0)
        for part in zip(*parts, strict=True)
    ]


def _arrays(*tensors: Tensor) -> list[Any]:
    return [x.contiguous().numpy() for x in tensors]


def _ends(rows: range) -> tuple[int, int]:
    return rows.start, rows.stop


# --- loops: each index is shown to lie within, else numba's look at it hides the loop
# --- from the compiler, and single numbers are read one by one


@compiled
def _parts(buffer):
    """Return room for activations, for factors, for sums and for one tile more."""
    sums = 2 * FOUR
    more = sums + TILE
    return buffer[:FOUR], buffer[FOUR:sums], buffer[sums:more], buffer[more:]


@compiled
def _key(seed, pair):
    """Return 32 random bits for a pair of row and neighbour."""
    x = seed + np.uint64(pair) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.uint32(x >> np.uint64(32))


@compiled
def _mixed(x):
    """Return 32 bits, each of which depends on all bits of x."""
    x = np.uint32(x ^ (x >> np.uint32(16)))
    x = np.uint32(x * np.uint32(0x7FEB352D))
    x = np.uint32(x ^ (x >> np.uint32(15)))
    x = np.uint32(x * np.uint32(0x846CA68B))
    return np.uint32(x ^ (x >> np.uint32(16)))


@compiled
def _draw_factors(factors, seed, pair, t, threshold, scale):
    """Write the factors of tile t for four pairs from a first one on.

    One hash serves two units, which lie half a tile apart.
    """
    low, high = np.uint32(threshold), np.uint32(threshold << 16)
    zero = factors.dtype.type(0)
    start = np.uint32(np.uint32(t * _HALF) * _STRIDE)
    key0 = np.uint32(_key(seed, pair) + start)
    key1 = np.uint32(_key(seed, pair + 1) + start)
    key2 = np.uint32(_key(seed, pair + 2) + start)
    key3 = np.uint32(_key(seed, pair + 3) + start)
    for j in range(_HALF):
        unit = np.uint32(np.uint32(j) * _STRIDE)
        x0 = _mixed(np.uint32(unit + key0))
        x1 = _mixed(np.uint32(unit + key1))
        x2 = _mixed(np.uint32(unit + key2))
        x3 = _mixed(np.uint32(unit + key3))
        factors[j] = scale if x0 >= high else zero
        factors[TILE + j] = scale if x1 >= high else zero
        factors[2 * TILE + j] = scale if x2 >= high else zero
        factors[3 * TILE + j] = scale if x3 >= high else zero
        factors[_HALF + j] = scale if np.uint32(x0 & _LOW) >= low else zero
        factors[TILE + _HALF + j] = scale if np.uint32(x1 & _LOW) >= low else zero
        factors[2 * TILE + _HALF + j] = scale if np.uint32(x2 & _LOW) >= low else zero
        factors[3 * TILE + _HALF + j] = scale if np.uint32(x3 & _LOW) >= low else zero


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
def _weigh(z, factors, sums, w):
    """Add to the sums of a tile what four neighbours of weights w give it."""
    zero = z.dtype.type(0)
    w0, w1, w2, w3 = w
    for j in range(TILE):
        z0, z1, z2, z3 = z[j], z[TILE + j], z[2 * TILE + j], z[3 * TILE + j]
        z0 = zero if z0 <= zero else z0 * factors[j]
        z1 = zero if z1 <= zero else z1 * factors[TILE + j]
        z2 = zero if z2 <= zero else z2 * factors[2 * TILE + j]
        z3 = zero if z3 <= zero else z3 * factors[3 * TILE + j]
        sums[j] += w0 * z0 + w1 * z1 + w2 * z2 + w3 * z3


@compiled
def _turn(z, factors, g, sums, w):
    """Turn z into its gradient, given that of the sums; return those of the weights.

    The gradient is added to that of the bias, in `sums`.
    """
    zero = z.dtype.type(0)
    w0, w1, w2, w3 = w
    s0 = s1 = s2 = s3 = zero
    for j in range(TILE):
        z0, z1, z2, z3 = z[j], z[TILE + j], z[2 * TILE + j], z[3 * TILE + j]
        g0 = zero if z0 <= zero else g[j] * factors[j]
        g1 = zero if z1 <= zero else g[j] * factors[TILE + j]
        g2 = zero if z2 <= zero else g[j] * factors[2 * TILE + j]
        g3 = zero if z3 <= zero else g[j] * factors[3 * TILE + j]
        s0 += g0 * z0
        s1 += g1 * z1
        s2 += g2 * z2
        s3 += g3 * z3
        z[j] = w0 * g0
        z[TILE + j] = w1 * g1
        z[2 * TILE + j] = w2 * g2
        z[3 * TILE + j] = w3 * g3
        sums[j] += w0 * g0 + w1 * g1 + w2 * g2 + w3 * g3
    return s0, s1, s2, s3


@compiled
def _read(z, x0, x1, x2, x3, c):
    """Write products of four neighbours (up to TILE,), with the bias c."""
    for j in range(len(x0)):
        z[j] = x0[j] + c[j]
        z[TILE + j] = x1[j] + c[j]
        z[2 * TILE + j] = x2[j] + c[j]
        z[3 * TILE + j] = x3[j] + c[j]


@compiled
def _read_shared(z, row, candidates, index, k, a, b):
    """Write the units a..b of a row less those of four candidates, of index k on."""
    last = len(index) - 1
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
def _four_weights(w, k):
    """Return the weights of the neighbours from k on; zero where there is none."""
    zero, m = w.dtype.type(0), len(w)
    w1 = w[k + 1] if k + 1 < m else zero
    w2 = w[k + 2] if k + 2 < m else zero
    w3 = w[k + 3] if k + 3 < m else zero
    return w[k], w1, w2, w3


@compiled
def _add_four(grad_w, k, s):
    """Add s to the gradients (m,) of weights from neighbour k on."""
    for r in range(min(4, len(grad_w) - k)):
        grad_w[k + r] += s[r]


@compiled
def _sum(buffer, d, w, v, c, out, seed, threshold, scale, first, last):
    """Write the sums of rows first..last.

    Shapes: d (b, m, p), w (b, m), v (n, p * TILE), c (n, TILE), out (b, n, TILE).
    """
    m, scale = d.shape[1], buffer.dtype.type(scale)
    z, factors, sums, _ = _parts(buffer)
    for t in range(len(c)):
        for i in range(first, last):
            sums[:] = 0
            for k in range(0, m, 4):
                k1, k2, k3 = min(k + 1, m - 1), min(k + 2, m - 1), min(k + 3, m - 1)
                multiply(z, d[i, k], d[i, k1], d[i, k2], d[i, k3], v[t], c[t])
                if threshold > 0:
                    _draw_factors(factors, seed, i * m + k, t, threshold, scale)
                _weigh(z, factors, sums, _four_weights(w[i], k))
            out[i, t] = sums


@compiled
def _go_back(
    buffer,
    d,
    w,
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
    m, scale = d.shape[1], buffer.dtype.type(scale)
    z, factors, sums, near = _parts(buffer)
    for t in range(len(c)):
        sums[:] = 0
        for i in range(first, last):
            near[:] = g[i, t]
            for k in range(0, m, 4):
                k1, k2, k3 = min(k + 1, m - 1), min(k + 2, m - 1), min(k + 3, m - 1)
                multiply(z, d[i, k], d[i, k1], d[i, k2], d[i, k3], v[t], c[t])
                if threshold > 0:
                    _draw_factors(factors, seed, i * m + k, t, threshold, scale)
                s = _turn(z, factors, near, sums, _four_weights(w[i], k))
                _add_four(grad_w[i], k, s)
                _spread(z, d[i, k], d[i, k1], d[i, k2], d[i, k3], grad_v[t])
                if len(grad_d):
                    _pull(z, v[t], grad_d[i, k : k + 4])
        grad_c[t] += sums


@compiled
def _sum_given(buffer, hidden, w, c, out, seed, threshold, scale, first, last):
    """Write the sums of rows first..last, whose products are hidden (r * m, h)."""
    m, h, scale = w.shape[1], hidden.shape[1], buffer.dtype.type(scale)
    z, factors, sums, _ = _parts(buffer)
    for t in range(len(c)):
        a, b = t * TILE, min(h, (t + 1) * TILE)
        z[:] = 0
        for i in range(first, last):
            sums[:] = 0
            x = hidden[(i - first) * m : (i - first + 1) * m]
            for k in range(0, m, 4):
                k1, k2, k3 = min(k + 1, m - 1), min(k + 2, m - 1), min(k + 3, m - 1)
                _read(z, x[k][a:b], x[k1][a:b], x[k2][a:b], x[k3][a:b], c[t])
                if threshold > 0:
                    _draw_factors(factors, seed, i * m + k, t, threshold, scale)
                _weigh(z, factors, sums, _four_weights(w[i], k))
            out[i, t] = sums


@compiled
def _go_back_given(
    buffer, hidden, w, c, g, grad_w, grad_c, seed, threshold, scale, first, last
):
    """Turn products into their gradients, and add to those of weights and bias."""
    m, h, scale = w.shape[1], hidden.shape[1], buffer.dtype.type(scale)
    z, factors, sums, near = _parts(buffer)
    for t in range(len(c)):
        a, b = t * TILE, min(h, (t + 1) * TILE)
        z[:] = 0
        sums[:] = 0
        for i in range(first, last):
            near[:] = g[i, t]
            x = hidden[(i - first) * m : (i - first + 1) * m]
            for k in range(0, m, 4):
                k1, k2, k3 = min(k + 1, m - 1), min(k + 2, m - 1), min(k + 3, m - 1)
                _read(z, x[k][a:b], x[k1][a:b], x[k2][a:b], x[k3][a:b], c[t])
                if threshold > 0:
                    _draw_factors(factors, seed, i * m + k, t, threshold, scale)
                s = _turn(z, factors, near, sums, _four_weights(w[i], k))
                _add_four(grad_w[i], k, s)
                for r in range(min(4, m - k)):
                    x[k + r][a:b] = z[r * TILE : r * TILE + b - a]
        grad_c[t] += sums


@compiled
def _sum_shared(
    buffer, rows, candidates, index, w, out, seed, threshold, scale, first, last
):
    """Write the sums of rows first..last.

    Shapes: rows and out (b, n, TILE), candidates (n, h), index and w (b, m).
    """
    m, h, scale = w.shape[1], candidates.shape[1], buffer.dtype.type(scale)
    z, factors, sums, near = _parts(buffer)
    for t in range(rows.shape[1]):
        a, b = t * TILE, min(h, (t + 1) * TILE)
        z[:] = 0
        for i in range(first, last):
            sums[:] = 0
            near[:] = rows[i, t]
            for k in range(0, m, 4):
                _read_shared(z, near, candidates, index[i], k, a, b)
                if threshold > 0:
                    _draw_factors(factors, seed, i * m + k, t, threshold, scale)
                _weigh(z, factors, sums, _four_weights(w[i], k))
            out[i, t] = sums


@compiled
def _go_back_shared(
    buffer,
    rows,
    candidates,
    index,
    w,
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
    m, h, scale = w.shape[1], candidates.shape[1], buffer.dtype.type(scale)
    z, factors, sums, near = _parts(buffer)
    for t in range(rows.shape[1]):
        a, b = t * TILE, min(h, (t + 1) * TILE)
        z[:] = 0
        for i in range(first, last):
            sums[:] = 0
            for k in range(0, m, 4):
                near[:] = rows[i, t]
                _read_shared(z, near, candidates, index[i], k, a, b)
                near[:] = g[i, t]
                if threshold > 0:
                    _draw_factors(factors, seed, i * m + k, t, threshold, scale)
                s = _turn(z, factors, near, sums, _four_weights(w[i], k))
                _add_four(grad_w[i], k, s)
                for r in range(min(4, m - k)):
                    grad = grad_candidates[index[i, k + r]][a:b]
                    grad -= z[r * TILE : r * TILE + b - a]
            grad_rows[i, t] = sums
