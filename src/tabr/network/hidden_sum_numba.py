"""The sums of `hidden_sum` on CPUs, in loops that numba compiles.

A tile of units is made for four neighbours at a time, in buffers that stay in a core's
first cache: ReLU, dropout and the weighted sum, and where points are narrow the product
too. The backward pass makes it again. Whether an activation is dropped is a hash of the
seed, the pair of row and neighbour, and the unit, so that both passes see the same.

A neighbour whose weight is zero adds nothing, and loops pass it by: dropout of weights
spares them two in five. Its weight gets no gradient; it had none before the dropout.
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
        drop, c, pairs = _Drop.drawn(inputs[4]), _in_tiles(bias), _Pairs.of(w)
        v = _in_tiles(weight.T).transpose(0, 1).flatten(1)  # (n, p * TILE)
        out, d = d.new_empty(len(d), *c.shape), pairs.taken(d)

        def work(rows: range) -> None:
            arrays = drop.buffer(c), d, *pairs, v, c, out
            _sum(*_arrays(*arrays), *drop, *_ends(rows))

        split_work(work, len(w))
        ctx.save_for_backward(d, v, c, *pairs)
        ctx.drop, ctx.shape = drop, (*w.shape, len(weight))
        return _units(out, len(weight))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of all inputs that need one."""
        d, v, c, *parts = ctx.saved_tensors
        pairs, drop, (b, m, h) = _Pairs(*parts), ctx.drop, ctx.shape
        needed, g = ctx.needs_input_grad[0], _in_tiles(grad)
        grad_w = torch.zeros_like(pairs.weights)
        grad_d = torch.zeros_like(d if needed else d[:0])

        def work(rows: range) -> tuple[Tensor, Tensor]:
            grad_v, grad_c = torch.zeros_like(v), torch.zeros_like(c)
            given = drop.buffer(c), d, *pairs, v, c, g
            grads = grad_d, grad_w, grad_v, grad_c
            _go_back(*_arrays(*given, *grads), *drop, *_ends(rows))
            return grad_v, grad_c

        grad_v, grad_c = _totals(split_work(work, b))
        by_input = grad_v.view(len(c), -1, TILE).transpose(0, 1)  # (p, n, TILE)
        grad_weight, grad_bias = _units(by_input, h).T, _units(grad_c, h)
        of_d = pairs.spread(grad_d, b, m) if needed else None
        return of_d, pairs.spread(grad_w, b, m), grad_weight, grad_bias, None


class Wide(torch.autograd.Function):
    """`hidden_sum` from products that torch makes, a chunk of rows at a time."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """Return the sums (b, h); inputs are the arguments of `hidden_sum`."""
        d, w, v, bias = (x.detach().contiguous() for x in inputs[:4])
        drop, c, pairs = _Drop.drawn(inputs[4]), _in_tiles(bias), _Pairs.of(w)
        out, d = d.new_empty(len(d), *c.shape), pairs.taken(d)

        def work(rows: range) -> None:
            buffer = drop.buffer(c)
            for chunk, hidden, _ in _products(d, v, pairs, rows):
                arrays = buffer, hidden, *pairs, c, out
                _sum_given(*_arrays(*arrays), *drop, *_ends(chunk))

        split_work(work, len(w))
        ctx.save_for_backward(d, v, c, *pairs)
        ctx.drop, ctx.shape = drop, w.shape
        return _units(out, len(v))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of all inputs that need one."""
        d, v, c, *parts = ctx.saved_tensors
        pairs, drop, (b, m) = _Pairs(*parts), ctx.drop, ctx.shape
        needed, g = ctx.needs_input_grad[0], _in_tiles(grad)
        grad_w = torch.zeros_like(pairs.weights)
        grad_d = torch.empty_like(d) if needed else None

        def work(rows: range) -> tuple[Tensor, Tensor]:
            buffer, grad_v, grad_c = drop.buffer(c), torch.zeros_like(v), c * 0
            for chunk, hidden, part in _products(d, v, pairs, rows):
                arrays = buffer, hidden, *pairs, c, g, grad_w, grad_c
                _go_back_given(*_arrays(*arrays), *drop, *_ends(chunk))
                grad_v.addmm_(hidden.T, d[part])
                if grad_d is not None:
                    torch.mm(hidden, v, out=grad_d[part])
            return grad_v, grad_c

        grad_v, grad_c = _totals(split_work(work, b))
        of_d = None if grad_d is None else pairs.spread(grad_d, b, m)
        of_w, of_bias = pairs.spread(grad_w, b, m), _units(grad_c, len(v))
        return of_d, of_w, grad_v, of_bias, None


class Shared(torch.autograd.Function):
    """`shared_hidden_sum`: nothing is multiplied for each neighbour."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """Return the sums (b, h); inputs are the arguments of `shared_hidden_sum`."""
        rows, candidates, index, w = (x.detach().contiguous() for x in inputs[:4])
        drop, tiles, pairs = _Drop.drawn(inputs[4]), _in_tiles(rows), _Pairs.of(w)
        out, index = torch.empty_like(tiles), pairs.taken(index)

        def work(part: range) -> None:
            buffer = drop.buffer(tiles)
            arrays = buffer, tiles, candidates, index, *pairs, out
            _sum_shared(*_arrays(*arrays), *drop, *_ends(part))

        split_work(work, len(w))
        ctx.save_for_backward(tiles, candidates, index, *pairs)
        ctx.drop, ctx.shape = drop, w.shape
        return _units(out, rows.shape[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of all inputs that need one."""
        tiles, candidates, index, *parts = ctx.saved_tensors
        pairs, drop, (b, m) = _Pairs(*parts), ctx.drop, ctx.shape
        g, grad_rows = _in_tiles(grad), torch.empty_like(tiles)
        grad_w = torch.zeros_like(pairs.weights)

        def work(part: range) -> tuple[Tensor]:
            grad_candidates = torch.zeros_like(candidates)
            given = drop.buffer(tiles), tiles, candidates, index, *pairs, g
            grads = grad_rows, grad_candidates, grad_w
            _go_back_shared(*_arrays(*given, *grads), *drop, *_ends(part))
            return (grad_candidates,)

        (grad_candidates,) = _totals(split_work(work, b))
        of_rows = _units(grad_rows, grad.shape[1])
        return of_rows, grad_candidates, None, pairs.spread(grad_w, b, m), None


class _Pairs(NamedTuple):
    """The n pairs of a row and a neighbour whose weight is not zero, row by row.

    Attributes:
        weights: Their weights (n,).
        places: Their numbers (n,) among all pairs: row * m + neighbour.
        starts: Where each row's pairs begin, and where the last one's end (b + 1,).
    """

    weights: Tensor
    places: Tensor
    starts: Tensor

    @classmethod
    def of(cls, w: Tensor) -> _Pairs:
        """Return those of weights (b, m); what is no number is not zero."""
        b, m = w.shape
        places = w.flatten().nonzero().squeeze(1)
        starts = torch.searchsorted(places, torch.arange(b + 1) * m)
        return cls(w.flatten()[places], places, starts)

    def taken(self, of_all: Tensor) -> Tensor:
        """Return what belongs to these pairs (n, ...), of all of them (b, m, ...)."""
        flat = of_all.flatten(0, 1)
        return flat if len(flat) == len(self.places) else flat[self.places]

    def spread(self, of_these: Tensor, b: int, m: int) -> Tensor:
        """Return (b, m, ...) from what belongs to these pairs; zero for all others."""
        if len(of_these) == b * m:
            return of_these.unflatten(0, (b, m))
        whole = of_these.new_zeros(b * m, *of_these.shape[1:])
        return whole.index_copy_(0, self.places, of_these).unflatten(0, (b, m))


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


def _products(
    d: Tensor, v: Tensor, pairs: _Pairs, rows: range
) -> Iterator[tuple[range, Tensor, slice]]:
    """Yield rows, some at a time, products (n, h) of their pairs, and which these are.

    The next products overwrite the last.
    """
    starts = pairs.starts[rows.start : rows.stop + 1].tolist()
    most, h = max(np.diff(starts), default=0), len(v)  # pairs of a row
    size = max(1, CACHE_BYTES // max(1, int(most) * h * v.element_size()))
    buffer = v.new_empty(min(size, len(rows)) * int(most), h)
    for start in rows[::size]:
        chunk = range(start, min(start + size, rows.stop))
        first, last = (starts[end - rows.start] for end in (chunk.start, chunk.stop))
        hidden = buffer[: last - first]
        torch.mm(d[first:last], v.T, out=hidden)
        yield chunk, hidden, slice(first, last)


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
def _draw_factors(factors, seed, places, k, last, t, threshold, scale):
    """Write the factors of tile t for four pairs from k on, up to the last one.

    One hash serves two units, which lie half a tile apart.
    """
    low, high = np.uint32(threshold), np.uint32(threshold << 16)
    zero = factors.dtype.type(0)
    start = np.uint32(np.uint32(t * _HALF) * _STRIDE)
    key0 = np.uint32(_key(seed, places[k]) + start)
    key1 = np.uint32(_key(seed, places[min(k + 1, last)]) + start)
    key2 = np.uint32(_key(seed, places[min(k + 2, last)]) + start)
    key3 = np.uint32(_key(seed, places[min(k + 3, last)]) + start)
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
def _four_weights(w, k, last):
    """Return the weights of the pairs from k on; zero beyond the last one."""
    zero = w.dtype.type(0)
    w1 = w[k + 1] if k + 1 <= last else zero
    w2 = w[k + 2] if k + 2 <= last else zero
    w3 = w[k + 3] if k + 3 <= last else zero
    return w[k], w1, w2, w3


@compiled
def _add_four(grad_w, k, last, s):
    """Add s to the gradients of weights from pair k on, up to the last one."""
    for r in range(min(4, last + 1 - k)):
        grad_w[k + r] += s[r]


@compiled
def _sum(buffer, d, w, places, starts, v, c, out, seed, threshold, scale, first, last):
    """Write the sums of rows first..last.

    Shapes: d (n, p), w and places (n,), starts (b + 1,), v (tiles, p * TILE),
    c (tiles, TILE), out (b, tiles, TILE).
    """
    scale = buffer.dtype.type(scale)
    z, factors, sums, _ = _parts(buffer)
    for t in range(len(c)):
        for i in range(first, last):
            sums[:] = 0
            end = starts[i + 1] - 1
            for k in range(starts[i], end + 1, 4):
                k1, k2, k3 = min(k + 1, end), min(k + 2, end), min(k + 3, end)
                multiply(z, d[k], d[k1], d[k2], d[k3], v[t], c[t])
                if threshold > 0:
                    _draw_factors(factors, seed, places, k, end, t, threshold, scale)
                _weigh(z, factors, sums, _four_weights(w, k, end))
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
    z, factors, sums, near = _parts(buffer)
    for t in range(len(c)):
        sums[:] = 0
        for i in range(first, last):
            near[:] = g[i, t]
            end = starts[i + 1] - 1
            for k in range(starts[i], end + 1, 4):
                k1, k2, k3 = min(k + 1, end), min(k + 2, end), min(k + 3, end)
                multiply(z, d[k], d[k1], d[k2], d[k3], v[t], c[t])
                if threshold > 0:
                    _draw_factors(factors, seed, places, k, end, t, threshold, scale)
                s = _turn(z, factors, near, sums, _four_weights(w, k, end))
                _add_four(grad_w, k, end, s)
                _spread(z, d[k], d[k1], d[k2], d[k3], grad_v[t])
                if len(grad_d):
                    _pull(z, v[t], grad_d[k : k3 + 1])
        grad_c[t] += sums


@compiled
def _sum_given(
    buffer, hidden, w, places, starts, c, out, seed, threshold, scale, first, last
):
    """Write the sums of rows first..last, whose products are hidden (pairs, h)."""
    h, scale = hidden.shape[1], buffer.dtype.type(scale)
    z, factors, sums, _ = _parts(buffer)
    before = starts[first]
    for t in range(len(c)):
        a, b = t * TILE, min(h, (t + 1) * TILE)
        z[:] = 0
        for i in range(first, last):
            sums[:] = 0
            end = starts[i + 1] - 1
            for k in range(starts[i], end + 1, 4):
                k1, k2, k3 = min(k + 1, end), min(k + 2, end), min(k + 3, end)
                x0, x1 = hidden[k - before][a:b], hidden[k1 - before][a:b]
                x2, x3 = hidden[k2 - before][a:b], hidden[k3 - before][a:b]
                _read(z, x0, x1, x2, x3, c[t])
                if threshold > 0:
                    _draw_factors(factors, seed, places, k, end, t, threshold, scale)
                _weigh(z, factors, sums, _four_weights(w, k, end))
            out[i, t] = sums


@compiled
def _go_back_given(
    buffer,
    hidden,
    w,
    places,
    starts,
    c,
    g,
    grad_w,
    grad_c,
    seed,
    threshold,
    scale,
    first,
    last,
):
    """Turn products into their gradients, and add to those of weights and bias."""
    h, scale = hidden.shape[1], buffer.dtype.type(scale)
    z, factors, sums, near = _parts(buffer)
    before = starts[first]
    for t in range(len(c)):
        a, b = t * TILE, min(h, (t + 1) * TILE)
        z[:] = 0
        sums[:] = 0
        for i in range(first, last):
            near[:] = g[i, t]
            end = starts[i + 1] - 1
            for k in range(starts[i], end + 1, 4):
                k1, k2, k3 = min(k + 1, end), min(k + 2, end), min(k + 3, end)
                x0, x1 = hidden[k - before][a:b], hidden[k1 - before][a:b]
                x2, x3 = hidden[k2 - before][a:b], hidden[k3 - before][a:b]
                _read(z, x0, x1, x2, x3, c[t])
                if threshold > 0:
                    _draw_factors(factors, seed, places, k, end, t, threshold, scale)
                s = _turn(z, factors, near, sums, _four_weights(w, k, end))
                _add_four(grad_w, k, end, s)
                for r in range(k3 + 1 - k):
                    hidden[k + r - before][a:b] = z[r * TILE : r * TILE + b - a]
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
    z, factors, sums, near = _parts(buffer)
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
                    _draw_factors(factors, seed, places, k, end, t, threshold, scale)
                _weigh(z, factors, sums, _four_weights(w, k, end))
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
    z, factors, sums, near = _parts(buffer)
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
                    _draw_factors(factors, seed, places, k, end, t, threshold, scale)
                s = _turn(z, factors, near, sums, _four_weights(w, k, end))
                _add_four(grad_w, k, end, s)
                for r in range(min(4, end + 1 - k)):
                    grad = grad_candidates[index[k + r]][a:b]
                    grad -= z[r * TILE : r * TILE + b - a]
            grad_rows[i, t] = sums
